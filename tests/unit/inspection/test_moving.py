"""Jobs that go on in another pool: what is said of them, who finds them there, and what a mover that died leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from django.core.management import CommandError

from queueapp.errors import CountChanged, InvalidOption, StoreUnavailable, WaitTimeout
from queueapp.inspection.bulk import move_many
from queueapp.models import Pool
from queueapp.scheduler.duties.moves import Moves
from queueapp.states import State
from queueapp.store import shards, transit
from queueapp.store.records import SingletonUse
from queueapp.store.store import Store
from tests.producing import add
from tests.unit.inspection.conftest import Scene
from tests.unit.inspection.moved import ductor, mine, run, states, there

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("two_pools")]


def test_what_matches_goes_and_the_rest_stays(scene: Scene) -> None:
    ids, others = scene.add(3), scene.add(2, tenant="globex")
    held = scene.add(1, singleton=SingletonUse(digest="s" * 16))
    done = move_many(mine(tenant="acme"), to="other", by="ann", note="why")
    assert done.counts == {"moved": 3, "held": 1}
    assert states([*ids, *others, *held]) == ["moved"] * 3 + ["pending"] * 3
    assert {there(job_id) for job_id in ids} == {"other"}
    assert run("other") == 3
    assert move_many(mine(tenant="acme"), to="other").counts == {"held": 1}


def test_another_number_than_was_expected_moves_nothing(scene: Scene) -> None:
    ids = scene.add(2)
    with pytest.raises(CountChanged):
        move_many(mine(), to="other", expected=1)
    assert states(ids) == ["pending"] * 2


def test_a_pool_is_not_moved_to_itself(scene: Scene) -> None:
    ids = scene.add(1)
    with pytest.raises(InvalidOption, match="these are one pool"):
        move_many(mine(), to="default")
    assert states(ids) == ["pending"]


@pytest.mark.parametrize("step", ["departed", "arrive", "arrived"])
def test_a_mover_that_died_is_gone_on_for_by_a_scheduler(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    ids = scene.add(5)
    done = getattr(Store, step)

    def dies(store: Store, *args: Any, **options: Any) -> Any:
        if step == "arrive":  # the reply is lost: it was done
            done(store, *args)
        raise StoreUnavailable("away")

    monkeypatch.setattr(Store, step, dies)
    with pytest.raises(StoreUnavailable):
        move_many(mine(), to="other")
    monkeypatch.undo()
    assert states(ids) == ["moving"] * 5
    duty = Moves("default", shards.store("default"))
    duty.run()
    assert states(ids) == ["moved"] * 5
    assert run("other") == 5
    assert run("default") == 0
    duty.run()
    assert run("other") == 0


def test_the_next_move_goes_on_for_one_that_died(scene: Scene) -> None:
    ids = scene.add(2)
    keys = shards.keys("other")
    shards.store("default").depart(scene.inner(ids), f"{keys.code}.0")
    more = scene.add(1)
    assert move_many(more, to="other").counts == {"moved": 1}
    assert states(ids) == ["moved"] * 2


def test_those_that_are_stuck_hold_up_no_other(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no job is let go that the other pool has not said it has."""
    monkeypatch.setattr(transit, "CHUNK", 2)
    stuck, more = scene.add(5), scene.add(3)
    shards.store("default").depart(scene.inner(stuck), "nobody.0")
    assert move_many(more, to="other").counts == {"moved": 3}
    assert states([*stuck, *more]) == ["moving"] * 5 + ["moved"] * 3
    assert run("other") == 3


def test_a_target_that_refuses_lets_nothing_go_and_holds_up_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pool.objects.create(name="third")
    first, second = scene.add(1), scene.add(1)
    arrive = Store.arrive

    def refuses(store: Store, jobs: Any) -> Any:
        if store.keys.code == shards.keys("other").code:
            raise StoreUnavailable("full")
        return arrive(store, jobs)

    monkeypatch.setattr(Store, "arrive", refuses)
    with pytest.raises(StoreUnavailable):
        move_many(first, to="other")
    with pytest.raises(StoreUnavailable):
        move_many(second, to="third")  # it went, and the other fault is told
    assert states([*first, *second]) == ["moving", "moved"]


def test_there_and_back_again(scene: Scene) -> None:
    [job_id] = scene.add(1)
    there = shards.keys("other").public_id(job_id[-22:])
    assert move_many([job_id], to="other").counts == {"moved": 1}
    assert move_many([there], to="default").counts == {"moved": 1}
    assert states([job_id, there]) == ["pending", "moved"]
    assert run("default") == 1


def test_where_nobody_knows_the_pool_they_wait(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    ids = scene.add(1)
    shards.store("default").depart(scene.inner(ids), "nobody.0")
    assert transit.deliver("default", shards.store("default")) == 0
    assert "nobody knows that pool" in caplog.text
    assert states(ids) == ["moving"]


def test_a_handle_follows(store: Store, scene: Scene) -> None:
    result = add.enqueue(1, 2)
    move_many([result.id], to="other")
    result.refresh()
    assert (result.state, result.outcome, result.id) == ("pending", "", result.id)
    assert there(result.id) == "other"
    assert result.moved_to == shards.keys("other").public_id(result.id[-22:])
    with pytest.raises(WaitTimeout):
        result.wait(0.01)
    run("other", b"3")
    assert result.wait(5).return_value == 3
    again = add.get_result(result.id)
    assert (again.id, again.moved_to, again.return_value) == (result.id, result.moved_to, 3)
    assert asyncio.run(add.aget_result(result.id)).return_value == 3


def test_who_waits_while_it_moves_has_its_result(scene: Scene) -> None:
    result = add.enqueue(1, 2)
    waits = threading.Thread(target=result.wait, args=(20,))
    waits.start()
    move_many([result.id], to="other")
    run("other", b"3")
    waits.join(20)
    assert not waits.is_alive()
    assert result.return_value == 3


def test_a_handle_cancels_it_where_it_is_now(scene: Scene) -> None:
    result = add.enqueue(1, 2)
    move_many([result.id], to="other")
    result.refresh()
    assert result.cancel()
    assert (result.outcome, run("other")) == ("cancelled", 0)


def test_the_command(scene: Scene) -> None:
    ids, late = scene.add(2), scene.add(1, delay_ms=9_000_000)
    dry = ductor("move", "--from", "default", "--to", "other", "--dry-run")
    assert dry == "Would move 3 jobs of default (2 pending, 1 scheduled). Nothing was changed."
    assert ductor("move", "--from", "default", "--to", "other", "--state", "scheduled", "--yes") == "1 moved."
    assert states([*ids, *late]) == ["pending", "pending", "moved"]
    shown = ductor("job", late[0])
    assert shards.keys("other").public_id(late[0][-22:]) in shown
    for wrong, words in (
        (["--to", "default"], "are one pool"),
        (["--to", "nowhere"], "nowhere"),
        (["--to", "other", "--state", "dead"], "'dead' is no state in which jobs wait"),
    ):
        with pytest.raises(CommandError, match=words):
            ductor("move", "--from", "default", *wrong)
    assert State.MOVING.value == "moving"
