"""Jobs by what they have in common: counted, then cancelled, retried or discarded, each once, whoever presses when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queueapp.errors import CountChanged, InvalidOption, StoreUnavailable
from queueapp.inspection.actions import Done
from queueapp.inspection.bulk import cancel_many, discard_many, retry_many
from queueapp.inspection.selection import WAITING, Count, Selection, batches, count
from queueapp.models import DeadLetterInspection, Pool, Tenant, TenantLimits
from queueapp.states import State
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import KeyUse
from queueapp.store.store import Store
from tests.lua.harness import Shard
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene
from tests.unit.inspection.selecting import FAST, dead, live, states

pytestmark = pytest.mark.django_db


def test_every_state_and_condition_finds_just_its_jobs(scene: Scene, shard: Shard) -> None:
    key = KeyUse(digest="d" * 16, limit=1, pattern="p" * 16, text="customer:1")
    mine = {
        State.PENDING: [
            *scene.add(3),
            *scene.add(2, lane="other"),
            *scene.add(2, keys=[key]),
            *scene.add(1, task="shop.tasks.mail"),
        ],
        State.SCHEDULED: scene.add(2, delay_ms=9_000_000),
        State.DEAD: scene.bury(3),
    }
    scene.add(4, tenant="globex")
    scene.bury(2, tenant="globex", task="shop.tasks.mail")
    scene.store.configure(1, scopes=[ScopeLimits(tenant="acme", lane="other", paused=True)])
    pool = Pool.objects.create(name="default")
    TenantLimits.objects.create(pool=pool, tenant=Tenant.objects.create(key="acme"), lane="other", paused=True)
    for state, ids in mine.items():
        asked = Selection(pool="default", states=(state,), tenant="acme")
        found = [job_id for _, page in batches(asked, size=2) for job_id in page]
        assert sorted(found) == sorted(scene.inner(ids)), state
        assert (count(asked).number, count(asked).exact) == (len(ids), True)
    assert count(live(State.PENDING)).number == 12
    assert count(live(State.PENDING, lane="other")).number == 2
    assert count(live(tenant="acme", tasks=("shop.tasks.mail",))).number == 1
    assert count(dead(tasks=("shop.tasks.mail",))).number == 2
    assert count(live(tenant="acme")).words() == "10 jobs (8 pending, 2 scheduled)"


def test_what_waits_for_a_leader_or_a_rate_is_found_too(shard: Shard, scene: Scene) -> None:
    term = shard.schedule()
    ids = scene.add(4)
    shard.dispatch(term, most=1)
    ids += scene.add(2)
    found = count(live(tenant="acme")).by_state
    assert found == {State.INGRESS: 2, State.PENDING: 3, State.READY: 1, State.SCHEDULED: 0, State.BACKLOG: 0} | {
        State.WAITING: 0,
        State.MOVING: 0,
        State.ACTIVE: 0,
    }
    assert cancel_many(live(tenant="acme")).counts == {"cancelled": 6}
    assert set(states(ids)) == {"cancelled"}


def test_what_comes_into_ingress_later_is_left_alone(shard: Shard) -> None:
    shard.schedule()
    old = shard.add(*(shard.job() for _ in range(3)))
    as_of = shard.now_ms
    shard.now_ms += 1
    new = shard.add(*(shard.job() for _ in range(2)))
    meant = Selection(pool="default", states=(State.INGRESS,), as_of_ms=as_of)
    assert [ids for _, ids in batches(meant, size=2)] == [old[:2], old[2:]]
    assert cancel_many(meant).counts == {"cancelled": 3}
    assert [job.state for job in shard.reads.jobs(new) if job] == [State.INGRESS] * 2


def test_a_count_is_bounded_and_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.bury(30, task="shop.tasks.one")
    monkeypatch.setattr("queueapp.inspection.selection.LOOKS", 10)
    found = count(dead(tenant="acme", tasks=("shop.tasks.one",)), reads=2)
    assert (found.number, found.exact, found.words()) == (20, False, "at least 20 jobs (20 dead)")
    assert count(dead(tenant="acme", tasks=("shop.tasks.one",)), reads=3).exact


def test_jobs_that_came_later_are_left_alone(scene: Scene, shard: Shard) -> None:
    old, old_dead = scene.add(3), scene.bury(3)
    meant, meant_dead = live(tenant="acme").fixed(), dead().fixed()
    shard.now_ms = meant.as_of_ms + 1_000  # their own clock is ahead
    new = shard.add(*(shard.job(payload=b'{"args":[],"kwargs":{}}') for _ in range(3)))
    shard.store.move_to_dlq(new[:1], "why")
    assert cancel_many(meant).counts == {"cancelled": 3}
    assert discard_many(meant_dead).counts == {"discarded": 3}
    assert set(states(old)) == {"cancelled"}
    assert set(states(old_dead)) == {"discarded"}
    assert [job.state for job in shard.reads.jobs(new) if job] == [State.DEAD, State.PENDING, State.PENDING]


def test_more_than_were_shown_changes_nothing_and_fewer_are_what_happens_meanwhile(scene: Scene) -> None:
    ids = scene.bury(5)
    meant = dead(tenant="acme").fixed()
    with pytest.raises(
        CountChanged, match="5 jobs match now, more than the 4 of before; nothing was changed"
    ) as caught:
        retry_many(meant, expected=4)
    assert (caught.value.expected, caught.value.number) == (4, 5)
    assert states(ids) == ["dead"] * 5
    discard_many(ids[:2])
    assert retry_many(meant, expected=5, redrive=FAST).counts == {"retried": 3}


def test_older_jobs_that_came_due_meanwhile_do_not_take_the_place_of_those_that_were_shown(
    shard: Shard, scene: Scene
) -> None:
    """Three were shown; one was leased since, and two that were scheduled then are pending now."""
    waiting, scheduled = scene.add(3), scene.add(2, delay_ms=1)
    meant = live(State.PENDING).fixed()
    assert count(meant).number == 3
    shard.now_ms = meant.as_of_ms + 1_000
    shard.store.promote_due()
    with pytest.raises(CountChanged):
        cancel_many(meant, expected=3)
    scene.lease(1)
    done = cancel_many(meant, expected=4, progress=lambda _: None)
    assert (done.counts, done.more) == ({"cancelled": 4}, False)
    assert states([*waiting, *scheduled]).count("cancelled") == 4


def test_no_more_are_met_than_were_shown(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recount was right, and then others entered."""
    ids = scene.add(5)
    monkeypatch.setattr("queueapp.inspection.bulk.count", lambda *_, **__: Count(by_state={}, exact=True))
    done = cancel_many(live(State.PENDING), expected=3)
    assert (done.counts, done.more) == ({"cancelled": 3}, True)
    assert cancel_many(live(State.PENDING), place=done.place).counts == {"cancelled": 2}
    assert set(states(ids)) == {"cancelled"}


def test_a_chunk_is_one_round_trip_to_find_and_one_to_do(scene: Scene, round_trips: RoundTrips) -> None:
    scene.add(1_000)
    cancel_many(live(State.SCHEDULED, tenant="nobody"))
    list(batches(live(State.PENDING, tenant="acme")))
    round_trips.since_last()
    told: list[int] = []
    done = cancel_many(live(State.PENDING, tenant="acme"), progress=lambda done: told.append(done.done))
    assert (done.counts, told) == ({"cancelled": 1_000}, [250, 500, 750, 1_000])
    assert round_trips.since_last() <= 4 * 2 + 15, "and what it looks at first: the moment, the lanes, the cut"


def test_an_error_in_the_middle_is_told_and_the_same_again_does_the_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = scene.bury(600)
    discard, calls = Store.discard, []

    def failing(self: Store, inner: Sequence[str]) -> list[str]:
        calls.append(len(inner))
        if len(calls) == 2:
            raise StoreUnavailable("The store does not answer.")
        return discard(self, inner)

    monkeypatch.setattr(Store, "discard", failing)
    first = discard_many(dead())
    assert (first.counts, first.fault) == ({"discarded": 250}, "The store does not answer.")
    assert discard_many(dead()).counts == {"discarded": 350}
    assert set(states(ids)) == {"discarded"}
    assert DeadLetterInspection.objects.count() == 600, "each written down once"


def test_the_result_counts_done_refused_and_changed_since() -> None:
    done = Done(counts={"retried": 4, "stopping": 1, "skipped": 2, "already": 3, "gone": 1})
    assert (done.done, done.refused, done.changed) == (5, 2, 4)


# -- cancel by tenant --------------------------------------------------------------------------------------------------


def test_cancelling_a_tenant_takes_effect_before_the_first_chunk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that asks while the bulk has not come to the jobs yet gets none of them."""
    ids, others = scene.add(5), scene.add(1, tenant="globex")
    leased: list[str] = []
    cancel = Store.cancel

    def late(self: Store, inner: Sequence[str]) -> list[str]:
        leased.extend(job.id for job in scene.lease())
        return cancel(self, inner)

    monkeypatch.setattr(Store, "cancel", late)
    cancel_many(live(tenant="acme"))
    assert leased == scene.inner(others)
    assert set(states(ids)) == {"cancelled"}
    [new] = scene.add()
    assert [job.id for job in scene.lease()] == scene.inner([new])
    assert not scene.store.client.exists(scene.keys["cuts"]), "it ends with the bulk"


def test_two_that_cancel_a_tenant_at_once_do_not_end_each_other(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the jobs that the slower one has not come to, no worker gets any when the faster one is through."""
    scene.add(3)
    cancel = Store.cancel
    leased: list[object] = []
    inside: list[bool] = []

    def meanwhile(self: Store, inner: Sequence[str]) -> list[str]:
        if not inside:
            inside.append(True)
            cancel_many(live(State.PENDING, tenant="acme"))
            leased.extend(scene.lease())
            assert scene.store.client.exists(scene.keys["cuts"])
        return cancel(self, inner)

    monkeypatch.setattr(Store, "cancel", meanwhile)
    cancel_many(live(tenant="acme"))
    assert leased == []
    assert not scene.store.client.exists(scene.keys["cuts"])


def test_a_cut_ends_with_a_bulk_that_fails(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.add(2)

    def away(*_: object) -> list[str]:
        assert scene.store.client.exists(scene.keys["cuts"])
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "cancel", away)
    with pytest.raises(KeyboardInterrupt):
        cancel_many(live(tenant="acme"))
    assert not scene.store.client.exists(scene.keys["cuts"])


def test_a_part_of_a_tenant_is_cancelled_chunk_by_chunk(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(Store, "cut", never)
    scene.add(2, lane="other")
    kept = scene.add(1)
    assert cancel_many(live(*WAITING, tenant="acme", lane="other")).counts == {"cancelled": 2}
    assert states(kept) == ["pending"]


def test_the_cut_stays_while_a_request_leaves_jobs_for_the_next_one(scene: Scene) -> None:
    ids = scene.add(5)
    assert cancel_many(live(tenant="acme"), most=2).more
    assert scene.lease() == []
    assert set(states(ids)) == {"cancelled"}, "the others were met by the worker"
    cancel_many(live(tenant="acme"))
    [new] = scene.add()
    assert len(scene.lease()) == 1
    assert states([new]) == ["active"]


def test_running_jobs_are_told_to_stop_and_counted(scene: Scene) -> None:
    scene.add(2)
    running, waiting = scene.lease(), scene.add(1)
    done = cancel_many(live(tenant="acme"))
    assert done.counts == {"cancelled": 1, "stopping": 2}
    assert states(waiting) == ["cancelled"]
    assert len(running) == 2


# -- C125 --------------------------------------------------------------------------------------------------------------


def test_c125_pause_and_resume_keep_every_job_and_the_order(shard: Shard) -> None:
    """C125: pause and resume lose waiting jobs or their priority order. Right: same count, same order."""
    store, want = shard.store, []
    for number in range(1_000):
        want.append((-(number * 7 % 41 - 20), number, shard.job(priority=number * 7 % 41 - 20)))
    for position in range(50):
        store.enqueue([job for _, _, job in want[position * 20 : position * 20 + 20]])
        for paused in (True, False):
            version = 1 + position * 2 + (not paused)
            if position % 3 == 0:
                store.configure(version, pool=PoolConf(paused=paused))
            elif position % 3 == 1:
                store.configure(version, scopes=[ScopeLimits(tenant="acme", paused=paused)])
            else:
                store.configure(version, scopes=[ScopeLimits(tenant="acme", lane="main", paused=paused)])
            if paused:
                assert shard.lease(5) == [], "nothing starts meanwhile"
    leased = [job.id for _ in range(11) for job in shard.lease(100)]
    assert leased == [job.id for _, _, job in sorted(want, key=lambda row: row[:2])]


def test_a_cut_spares_what_came_after_the_moment_that_was_asked_about(scene: Scene) -> None:
    old = scene.add(2)
    asked = live(tenant="acme").fixed()
    while live().fixed().as_of_ms <= asked.as_of_ms + 1:
        pass  # the moment is one of whole milliseconds
    new = scene.add(1)
    leased: list[str] = []

    def leases(_: Done) -> None:
        leased.extend(job.id for job in scene.lease())

    assert cancel_many(asked, progress=leases).counts == {"cancelled": 2}
    assert leased == scene.inner(new)
    assert states(old) == ["cancelled"] * 2


def test_with_a_moment_from_outside_nothing_is_cut(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which number of submission belongs to it nobody knows."""
    monkeypatch.setattr(Store, "cut", lambda *_: pytest.fail("cut"))
    ids = scene.add(2)
    moment = live(tenant="acme").fixed().as_of_ms
    assert cancel_many(live(tenant="acme", as_of_ms=moment)).counts == {"cancelled": 2}
    assert states(ids) == ["cancelled"] * 2


@pytest.mark.parametrize("task", ["a\nb", "a\0", "", "x" * 513], ids=["newline", "nul", "nothing", "long"])
def test_what_is_no_name_of_a_task_is_refused(task: str) -> None:
    with pytest.raises(InvalidOption, match="no name of a task"):
        live(tasks=(task,))
