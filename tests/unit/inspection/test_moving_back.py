"""Jobs that cannot be brought to another pool, or are cancelled on their way; and what moved jobs leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from django.core.management import CommandError

from queueapp.errors import Obliterating, StoreUnavailable
from queueapp.inspection.bulk import cancel_many, move_many, take_back_many
from queueapp.inspection.jobs import find_jobs
from queueapp.inspection.overview import pool_status
from queueapp.inspection.selection import NOT_ENDED, Selection
from queueapp.scheduler.duties.moves import Moves
from queueapp.states import Outcome
from queueapp.store import scripts, shards, transit
from queueapp.store.following import read_job
from queueapp.store.store import Store
from tests.lua.harness import Shard
from tests.producing import add
from tests.unit.inspection.conftest import Scene
from tests.unit.inspection.moved import ductor, later, leaving, long_ago, mine, run, states, stuck, there

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("two_pools")]


def test_status_says_what_is_stuck_and_how_it_comes_back(scene: Scene, shard: Shard) -> None:
    ids = stuck(scene)
    assert not any("--back" in note for note in pool_status("default").notes), "a moment ago"
    shard.client.zincrby(shard.keys["moving"], -700_000, ids[0][-22:])
    (note,) = [note for note in pool_status("default").notes if "another pool" in note]
    assert "1 job is on the way" in note
    assert "The first left 11 min " in note
    assert "`manage.py ductor move --from default --back`" in note


def test_the_command_takes_back_what_nobody_has(scene: Scene) -> None:
    mine, other = stuck(scene, 2), stuck(scene, 1, tenant="globex")
    dry = ductor("move", "--from", "default", "--back", "--dry-run")
    assert dry == "Would take back 3 jobs of default (3 moving). Nothing was changed."
    again = ("move", "--from", "default", "--back", "--tenant", "acme", "--yes")
    assert ductor(*again).startswith("2 asked back: in line again within a minute")
    assert states(mine) == ["moving"] * 2
    long_ago(mine)
    assert ductor(*again) == "2 back in line."
    assert states([*mine, *other]) == ["pending", "pending", "moving"]
    assert run("default") == 2
    for wrong, words in ((["--to", "other"], "not allowed with"), (["--state", "pending"], "exclude each other")):
        with pytest.raises(CommandError, match=words):
            ductor("move", "--from", "default", "--back", *wrong)


def test_a_scheduler_brings_back_what_was_asked_back(scene: Scene) -> None:
    ids = stuck(scene, 2)
    shards.store("default").recall([(job_id, 0) for job_id in scene.inner(ids)])
    Moves("default", shards.store("default")).run()
    assert states(ids) == ["moving"] * 2, "not yet"
    long_ago(ids)
    Moves("default", shards.store("default")).run()
    assert states(ids) == ["pending"] * 2


def test_what_the_other_pool_has_does_not_come_back(scene: Scene) -> None:
    there = shards.store("other")
    ids = stuck(scene, 2, to=f"{there.keys.code}.0")
    first = shards.store("default").departed(1).jobs
    there.arrive([(one.id, one.packed or b"") for one in first])
    assert take_back_many(ids).counts == {"moved": 1, "recalled": 1}
    long_ago(ids[1:])
    assert take_back_many(ids).counts == {"back": 1, "already": 1}
    assert states(ids) == ["moved", "pending"]
    assert (run("default"), run("other")) == (1, 1)


def test_nothing_comes_back_while_the_other_pool_cannot_say(scene: Scene) -> None:
    """Half emptied, it knows of none."""
    there = shards.store("other")
    ids = stuck(scene, 1, to=f"{there.keys.code}.0")
    assert take_back_many(ids).counts == {"recalled": 1}
    long_ago(ids)
    there.client.hset(there.keys["conf"], "schema", scripts.OBLITERATING)
    with pytest.raises(Obliterating):
        take_back_many(ids)
    assert states(ids) == ["moving"]
    there.client.hdel(there.keys["conf"], "schema")
    assert take_back_many(ids).counts == {"back": 1}


def test_what_is_asked_back_comes_also_from_a_pool_that_takes_none(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others are still to be brought to that pool."""
    to = f"{shards.keys('other').code}.0"
    stays, back = stuck(scene, 1, to=to), stuck(scene, 1, to=to)
    shards.store("default").recall([(back[0][-22:], 0)])
    long_ago(back)

    def full(store: Store, jobs: Any) -> Any:
        raise StoreUnavailable("full")

    monkeypatch.setattr(Store, "arrive", full)
    with pytest.raises(StoreUnavailable):
        Moves("default", shards.store("default")).run()
    assert states([*stays, *back]) == ["moving", "pending"]


def test_a_share_of_a_scheduler_goes_on_behind_those_that_are_stuck(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transit, "CHUNK", 2)
    stuck(scene, 4)
    last = stuck(scene, 1, to=f"{shards.keys('other').code}.0")
    duty = Moves("default", shards.store("default"))
    pauses = [duty.run() for _ in range(3)]
    assert states(last) == ["moved"]
    assert pauses[:2] == [0.0, 0.0]
    assert pauses[2] > 0


def test_a_large_move_looks_once_at_those_that_are_stuck(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck(scene, 3)
    asked: list[int] = []
    departed = Store.departed

    def counted(store: Store, most: int = 250, after: Any = None, ids: Sequence[str] = ()) -> Any:
        found = departed(store, most, after, ids)
        asked.append(len(found.jobs))
        return found

    monkeypatch.setattr(Store, "departed", counted)
    scene.add(600)
    assert move_many(mine(), to="other").counts == {"moved": 600}
    assert sum(asked) == 603


# -- cancelled on their way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrived", [False, True])
def test_who_is_cancelled_on_its_way_does_not_run(scene: Scene, arrived: bool) -> None:
    ids = leaving(scene, 2, arrived=arrived)
    assert cancel_many(ids).counts == {"cancelled": 2}
    assert [found[1].outcome for job_id in ids if (found := read_job(job_id))] == [Outcome.CANCELLED] * 2
    assert (run("default"), run("other")) == (0, 0)
    assert cancel_many(ids).counts == {"already": 2}


def test_who_runs_there_already_is_told_to_stop(scene: Scene) -> None:
    ids = leaving(scene, arrived=True)
    assert len(shards.store("other").check_and_lease("w.9", 1, want=1, begin=1, lease_ms=30_000).jobs) == 1
    assert cancel_many(ids).counts == {"stopping": 1}


def test_who_has_ended_there_is_too_late(scene: Scene) -> None:
    ids = leaving(scene, arrived=True)
    assert run("other") == 1
    assert cancel_many(ids).counts == {"already": 1}


def test_all_of_a_tenant_are_also_those_on_their_way(scene: Scene) -> None:
    leaving(scene, 2)
    scene.add(1)
    assert cancel_many(Selection(pool="default", states=NOT_ENDED, tenant="acme")).counts == {"cancelled": 3}
    assert (run("default"), run("other")) == (0, 0)


def test_one_that_cannot_be_brought_is_told_so_and_ends_when_it_can(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = leaving(scene)

    def refuses(store: Store, jobs: Any) -> Any:
        raise StoreUnavailable("full")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "arrive", refuses)
        assert cancel_many(ids).counts == {"moving": 1}
        assert states(ids) == ["moving"]
    Moves("default", shards.store("default")).run()
    assert (states(ids), run("other")) == (["moved"], 0)
    assert cancel_many(ids).counts == {"already": 1}


@pytest.mark.parametrize("arrived", [False, True])
def test_a_handle_cancels_it_on_its_way(scene: Scene, arrived: bool) -> None:
    handles = [add.enqueue(1, 2), add.enqueue(1, 2)]
    there = shards.store("other")
    store = shards.store("default")
    store.depart([handle.id[-22:] for handle in handles], f"{there.keys.code}.0")
    if arrived:
        there.arrive([(one.id, one.packed or b"") for one in store.departed().jobs])
    assert handles[0].cancel()
    assert asyncio.run(handles[1].acancel())
    assert [handle.outcome for handle in handles] == ["cancelled"] * 2
    assert run("other") == 0


# -- what they leave behind ------------------------------------------------------------------------------------------


def test_the_old_id_leads_to_it_as_long_as_it_lives_and_no_longer(scene: Scene, shard: Shard) -> None:
    first, second = scene.add(2)
    move_many([first, second], to="other")
    store, duty = shards.store("default"), Moves("default", shards.store("default"))
    keep = {"result_ttl_ms": 0, "result_max": 0, "dead_ttl_ms": 0, "dead_max": 0, "replay_window_ms": 0}
    later(shard)
    store.trim(**keep)
    duty.run()
    assert there(first) == "other"
    assert shard.client.zcount(shard.keys["stubs"], shard.client.time()[0] * 1000 - 60_000, "+inf") == 2, "renewed"
    shards.store("other").cancel([first[-22:]])
    shards.store("other").trim(**keep)
    duty.run()
    later(shard)
    duty.run()
    assert (read_job(first), there(second)) == (None, "other")
    assert shard.client.zcard(shard.keys["stubs"]) == 1


def test_what_leads_to_a_pool_that_nobody_knows_goes(scene: Scene, shard: Shard) -> None:
    ids = stuck(scene)
    shards.store("default").arrived([(ids[0][-22:], 1, False)])
    later(shard)
    assert not transit.look_at_stubs(shards.store("default"))
    assert find_jobs(ids) == []


def test_who_is_not_asked_leaves_what_leads_there(scene: Scene, shard: Shard) -> None:
    ids = scene.add(1)
    move_many(ids, to="other")
    later(shard)
    other = shards.store("other")
    other.client.hset(other.keys["conf"], "schema", scripts.OBLITERATING)
    assert not transit.look_at_stubs(shards.store("default"))
    other.client.hdel(other.keys["conf"], "schema")
    assert there(ids[0]) == "other"
