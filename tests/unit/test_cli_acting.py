"""`ductor cancel`, `pause`, `resume`, `drain`, `obliterate`, and how a long work shows how far it is."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueapp.cli.console import Console
from queueapp.errors import Obliterating, StoreUnavailable
from queueapp.inspection import draining
from queueapp.inspection.jobs import find_jobs
from queueapp.models import Pool, TenantLimits
from queueapp.store import scripts, shards
from queueapp.store.records import Completed
from queueapp.store.store import Store
from queueapp.sync import delivery
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scene(store: Store, shard_keys: Any) -> Scene:
    return Scene(store, shard_keys)


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def states(ids: Sequence[str]) -> list[str]:
    found = {job.id: job.state for job in find_jobs(ids)}
    return [found[job_id] for job_id in ids]


# -- cancel ------------------------------------------------------------------------------------------------------------


def test_cancel_by_what_they_have_in_common(scene: Scene) -> None:
    running, _ = scene.add(2), scene.lease()
    mine, others = scene.add(2), scene.add(1, tenant="globex")
    late = scene.add(1, delay_ms=9_000_000)
    dry = ductor("cancel", "--tenant", "acme", "--dry-run")
    assert dry == "Would cancel 5 jobs of default (2 pending, 1 scheduled, 2 active). Nothing was changed."
    assert ductor("cancel", "--tenant", "acme", "--state", "scheduled", "--yes") == "1 cancelled."
    assert ductor("cancel", "--tenant", "acme", "--yes") == "2 cancelled, 2 told to stop."
    assert states([*mine, *late, *others, *running]) == ["cancelled"] * 3 + ["pending"] + ["active"] * 2
    assert ductor("cancel", *others, "--yes") == "1 cancelled."
    assert ductor("cancel", "--tenant", "globex", "--yes") == "No job matches."


def test_cancel_says_which_and_knows_its_states() -> None:
    with pytest.raises(CommandError, match="Say which: ids, or --tenant, --lane, --task, --state, or --all"):
        ductor("cancel", "--yes")
    with pytest.raises(CommandError, match="'dead' is no state that can be cancelled; there are"):
        ductor("cancel", "--state", "dead", "--yes")
    with pytest.raises(CommandError, match="'nowhere' is not a known pool"):
        ductor("cancel", "--all", "--pool", "nowhere", "--yes")


def test_ctrl_c_says_what_was_done(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.bury(600)
    discard, calls = Store.discard, []

    def interrupted(self: Store, inner: Sequence[str]) -> list[str]:
        calls.append(len(inner))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return discard(self, inner)

    monkeypatch.setattr(Store, "discard", interrupted)
    with pytest.raises(CommandError) as caught:
        ductor("dlq", "discard", "--all", "--pool", "default", "--yes")
    assert str(caught.value) == (
        "Interrupted: 250 discarded. The others are as they were; say the same again to go on."
    )
    assert ductor("dlq", "discard", "--all", "--pool", "default", "--yes") == "350 discarded."


def test_a_redrive_takes_a_rate_and_a_place_to_stop(scene: Scene) -> None:
    ids = scene.bury(3)
    assert ductor("dlq", "retry", "--rate", "0.1", "--yes", "--stop-after", "0", *ids[:1])
    assert ductor("dlq", "retry", "--tenant", "acme", "--rate", "1000", "--yes") == "2 retried."
    assert states(ids)[0] == "pending"


def test_what_ended_before_its_end_fails(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ductor dlq retry … && next` must not go on."""
    ids = scene.bury(300)
    discard, calls = Store.discard, []

    def goes_away(self: Store, inner: Sequence[str]) -> list[str]:
        calls.append(len(inner))
        if len(calls) % 2 == 0:
            raise StoreUnavailable("The store is away.")
        return discard(self, inner)

    monkeypatch.setattr(Store, "discard", goes_away)
    for which in (["--all", "--pool", "default"], ids):
        with pytest.raises(CommandError, match=r"\(The store is away\.\)"):
            ductor("dlq", "discard", "--yes", *which)


@pytest.mark.parametrize(
    ("verb", "option"),
    [
        (["cancel"], ["--tenant", "acme"]),
        (["cancel"], ["--as-of", "5"]),
        (["cancel"], ["--all"]),
        (["dlq", "retry"], ["--group", "0123456789ab"]),
        (["dlq", "discard"], ["--pool", "default"]),
    ],
)
def test_ids_and_conditions_exclude_each_other(scene: Scene, verb: list[str], option: list[str]) -> None:
    """A condition that is not looked at would be believed."""
    ids = scene.add(1) if verb == ["cancel"] else scene.bury(1)
    before = states(ids)
    with pytest.raises(CommandError, match=f"Ids and {option[0]} exclude each other"):
        ductor(*verb, *ids, *option, "--yes")
    assert states(ids) == before


def test_a_terminal_has_a_bar_and_a_file_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    notes: list[str] = []
    monkeypatch.setattr("queueapp.cli.console.QUIET_S", 0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Console(print, notes.append).bar(100, "jobs") as bar:
        bar.at(40, "40 cancelled.")
        bar.at(100, "100 cancelled.")
    assert notes == ["  40 of 100 jobs", "  100 of 100 jobs"]
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with Console(print, notes.append).bar(100, "jobs") as bar:
        bar.at(40, "40 cancelled.")
    assert "40/100" in screen.getvalue()


# -- pause and resume --------------------------------------------------------------------------------------------------


def test_pause_and_resume_a_pool_a_tenant_and_a_lane(scene: Scene) -> None:
    for options, field in (
        ((), ("pool", "")),
        (("--tenant", "acme"), ("acme", "")),
        (("--tenant", "acme", "--lane", "slow"), ("acme", "slow")),
    ):
        said = ductor("pause", "default", *options)
        resumes = " ".join(["ductor resume default", *options])
        assert said.endswith(f"What runs goes on; `{resumes}` lets the rest go on.")
        assert ductor("pause", "default", *options).endswith("is paused already.")
        reads = shards.reads("default")
        scope = () if field[0] == "pool" else field
        assert reads.is_paused(*scope)
        assert ductor("resume", "default", *options).endswith("is at work.")
        assert ductor("resume", "default", *options).endswith("is at work already.")
        assert not reads.is_paused(*scope)


def test_a_pause_changes_nothing_else(scene: Scene) -> None:
    Pool.objects.create(name="default", default_weight=7)
    ductor("pause", "default", "--tenant", "acme")
    row = TenantLimits.objects.get()
    assert (row.weight, row.max_in_flight, row.min_share, row.paused) == (None, None, 0, True), "no weight of its own"
    assert shards.reads("default").weights(["acme"]) == {"acme": 7}


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("pause", "nowhere"), "'nowhere' is not a known pool"),
        (("pause", "default", "--lane", "slow"), "A lane is a tenant's: name the tenant of 'slow'"),
        (("pause", "default", "--tenant", "no tenant"), "tenant"),
    ],
)
def test_what_cannot_be_paused_is_said(arguments: tuple[str, ...], refusal: str) -> None:
    with pytest.raises(CommandError, match=refusal):
        ductor(*arguments)


def test_a_pause_that_is_not_in_force_yet_is_said(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StoreUnavailable

    monkeypatch.setattr(delivery, "_push", away)
    assert "the store did not take it yet" in ductor("pause", "default")
    assert Pool.objects.get(name="default").paused
    with pytest.raises(CommandError, match="jobs may still start"):
        ductor("drain", "default")


# -- drain -------------------------------------------------------------------------------------------------------------


def test_drain_waits_for_what_runs_and_leaves_the_pool_paused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.add(3)
    first, second = scene.lease(2)
    rounds = iter([first, second])

    def meanwhile(_: float) -> None:
        job = next(rounds)
        scene.store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1)])

    seen: list[draining.Left] = []
    found = draining.drain("default", progress=seen.append, sleep=meanwhile)
    assert [(left.running, left.waiting) for left in seen] == [(2, 1), (1, 1)]
    assert seen[0].jobs[0].record.task == "shop.tasks.pay"
    assert (found.running, found.waiting, found.drained) == (0, 1, True)
    assert scene.lease() == [], "paused"
    said = ductor("drain", "default")
    assert said == "The pool default is paused; nothing runs, 1 wait. `ductor resume default` lets it go on."


def test_drain_gives_up_after_its_time(scene: Scene) -> None:
    scene.add(2)
    [job] = scene.lease(1)
    with pytest.raises(CommandError) as caught:
        ductor("drain", "default", "--timeout", "0")
    assert str(caught.value) == (
        f"1 run: shop.tasks.pay {scene.keys.public_id(job.id)} on w.1 after 0 s. It stays paused; "
        "`ductor resume default` lets it go on."
    )
    ductor("resume", "default")
    with pytest.raises(CommandError, match=r"1 run, 1 wait: .* It is at work"):
        ductor("drain", "default", "--until-empty", "--timeout", "0")
    assert not shards.reads("default").is_paused()


def test_drain_until_empty_lets_jobs_start_and_pauses_in_the_end(scene: Scene) -> None:
    scene.add(3)

    def work(_: float) -> None:
        for job in scene.lease(1):
            scene.store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1)])

    found = draining.drain("default", until_empty=True, sleep=work)
    assert (found.running, found.waiting, found.drained) == (0, 0, True)
    assert shards.reads("default").is_paused()


def test_drain_until_empty_has_one_timeout_and_says_that_it_paused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job begins between the last look and the pause, and outlives the timeout."""
    looked = draining.left

    def left(pool: str) -> draining.Left:
        found = looked(pool)
        if not shards.reads("default").is_paused():
            scene.add(1)
            scene.lease(1)
        return found

    monkeypatch.setattr(draining, "left", left)
    with pytest.raises(CommandError, match=r"1 run, 0 wait: .* after 0 s\. It stays paused"):
        ductor("drain", "default", "--until-empty", "--timeout", "0")
    assert shards.reads("default").is_paused()


# -- obliterate --------------------------------------------------------------------------------------------------------


def test_obliterate_asks_for_the_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [*scene.end(1), *scene.bury(3), *scene.add(2)]
    asked: list[str] = []
    answers = iter(["emails", "default"])

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("builtins.input", answer)
    with pytest.raises(CommandError, match=r"'emails' is not the name of the pool\. Nothing"):
        ductor("obliterate", "default")
    assert len(find_jobs(ids)) == 6
    assert ductor("obliterate", "default").startswith("The pool default is empty: 6 jobs are gone.")
    assert find_jobs(ids) == []
    assert "2 that wait, 0 that run" in asked[0]


def test_obliterate_refuses_while_jobs_run_unless_forced(scene: Scene) -> None:
    scene.add(2)
    scene.lease(1)
    with pytest.raises(CommandError, match="1 job of the pool 'default' run"):
        ductor("obliterate", "default", "--yes-delete", "default")
    with pytest.raises(CommandError, match="is not the name of the pool"):
        ductor("obliterate", "default", "--yes-delete", "reports", "--force")
    assert "2 jobs are gone" in ductor("obliterate", "default", "--yes-delete", "default", "--force")


def test_an_interrupted_obliterate_is_finished_by_the_next(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.add(3)
    obliterate, calls = Store.obliterate, []

    def interrupted(self: Store, token: str, **how: Any) -> Any:
        calls.append(token)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return obliterate(self, token, **how | {"limit": 1})

    with monkeypatch.context() as patch:
        patch.setattr(Store, "obliterate", interrupted)
        with pytest.raises(CommandError, match="nobody can use the pool until it is empty; say the same again"):
            ductor("obliterate", "default", "--yes-delete", "default")
    with pytest.raises(Obliterating):
        scene.add()
    ductor("obliterate", "default", "--yes-delete", "default")
    scene.add()


def between_shares(monkeypatch: pytest.MonkeyPatch, happens: Callable[[Store], object]) -> None:
    """Something happens before the second share of an obliteration; all shares are small."""
    obliterate, calls = Store.obliterate, []

    def act(self: Store, token: str, **how: Any) -> Any:
        calls.append(token)
        if len(calls) == 2:
            happens(self)
        return obliterate(self, token, **how | {"limit": 1})

    monkeypatch.setattr(Store, "obliterate", act)


def test_an_obliterate_that_another_one_overtook_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.add(30)

    def overtakes(store: Store) -> None:
        whole = store.obliterate("another", force=False)
        while whole.word != "done":
            whole = store.obliterate("another", force=False, cursor=whole.cursor)
        scene.add(2)

    between_shares(monkeypatch, overtakes)
    with pytest.raises(CommandError, match=r"'default' \(shard 0\) is at work again.* another run of .*ductor jobs"):
        ductor("obliterate", "default", "--yes-delete", "default")
    assert shards.reads("default").running_and_waiting() == (0, 2)


def test_an_obliterate_whose_mark_is_lost_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a failover to a replica that had not got it yet."""
    scene.add(30)

    def loses(store: Store) -> None:
        store.client.hset(scene.keys["conf"], "schema", scripts.SCHEMA)
        store.client.hdel(scene.keys["conf"], "obliterating")

    between_shares(monkeypatch, loses)
    with pytest.raises(CommandError, match=r"\(shard 0\) .* failover\. Jobs may be left, .*obliterate default` again"):
        ductor("obliterate", "default", "--yes-delete", "default")
    monkeypatch.undo()
    # Which of its keys a share meets first, the counts among them, is the server's dice.
    left = {*scene.store.client.scan_iter(f"{scene.keys.prefix}*")} - {scene.keys["conf"].encode()}
    assert left
    assert "is empty" in ductor("obliterate", "default", "--yes-delete", "default")


def test_an_obliterate_that_loses_the_store_says_how_it_leaves_the_pool(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.add(30)

    def goes_away(_: Store) -> None:
        raise StoreUnavailable("The store is away.")

    between_shares(monkeypatch, goes_away)
    with pytest.raises(CommandError, match=r"The store is away\. .* nobody can use the pool until it is empty"):
        ductor("obliterate", "default", "--yes-delete", "default")
    monkeypatch.undo()
    ductor("obliterate", "default", "--yes-delete", "default")
