"""Guaranteed minima: who is below its own goes first, at most nine times in a row, and nobody is charged for it."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store import calls
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import LeasedJob, Returned
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.lua.test_costs import commands

POLICIES = ["tiered", "ring", "fifo", "priority", "edf", "aging", "wfq"]
each_policy = pytest.mark.parametrize("policy", POLICIES)


def minimum(shard: Shard, version: int, tenant: str, slots: int, **more: Any) -> None:
    shard.store.configure(version, scopes=[ScopeLimits(tenant=tenant, min_share=slots, **more)])


def crowd(shard: Shard, policy: str = "tiered", small: int = 40) -> None:
    """`big` was there first, with more than it will get; `small` comes after it."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(*(shard.job("big", cost=1) for _ in range(200)))
    shard.add(*(shard.job("small", cost=100) for _ in range(small)))


def tenants(jobs: list[LeasedJob]) -> str:
    return "".join(job.tenant[0] for job in jobs)


def end(shard: Shard, jobs: list[LeasedJob]) -> None:
    shard.store.complete([completed(job) for job in jobs])


@each_policy
def test_a_tenant_below_its_minimum_goes_first_under_every_policy(shard: Shard, policy: str) -> None:
    crowd(shard, policy)
    minimum(shard, 2, "small", 3)
    assert tenants(shard.lease(3)) == "sss"
    assert tenants(shard.lease(4)).count("b") >= 2, "it has its slots: the rest goes by the policy's turns"


@each_policy
def test_it_gets_its_slots_back_as_they_are_freed(shard: Shard, policy: str) -> None:
    crowd(shard, policy)
    """Each freed slot is its own again; after nine in a row another may come first."""
    minimum(shard, 2, "small", 2)
    running = shard.lease(8)
    for _ in range(25):
        mine = [job for job in running if job.tenant == "small"]
        assert len(mine) >= 2
        end(shard, [mine[0]])
        freed = shard.lease(1)
        if freed[0].tenant != "small":
            freed += shard.lease(1)
        running = [job for job in running if job.id != mine[0].id] + freed


def test_at_most_nine_in_a_row_within_a_call_and_over_calls(shard: Shard) -> None:
    crowd(shard)
    minimum(shard, 2, "small", 30)
    assert tenants(shard.lease(25)) == "s" * 9 + "b" + "s" * 9 + "s" + "s" * 5, "the twentieth is its own turn"
    assert tenants([job for _ in range(7) for job in shard.lease(1)]) == "ssssbss"


def test_the_tenth_may_be_the_tenants_own_turn(shard: Shard) -> None:
    shard.add(*(shard.job("small", cost=1) for _ in range(30)), shard.job("big", cost=1))
    minimum(shard, 1, "small", 30)
    assert tenants(shard.lease(10)) == "sssssssssb"
    assert tenants(shard.lease(19)) == "s" * 19
    assert shard.snapshot()["policy"][b"floor_run"] == b"9"
    assert shard.snapshot()["walk"] == [(b"small", 1.0)], "that one was charged, the other eighteen were not"


def test_a_minimum_charges_no_turn_and_what_it_gave_is_not_settled_there(shard: Shard) -> None:
    shard.add(*(shard.job("small") for _ in range(5)), *(shard.job("big", cost=1) for _ in range(5)))
    minimum(shard, 1, "small", 2)
    first, second = shard.lease(2)
    seen = shard.snapshot()
    assert dict(seen["walk"]) == {b"big": 0.0, b"small": 0.0}
    assert dict(seen["lanes:small"]) == {b"main": 100.0}, "its lanes share what it gave"
    assert "floor" not in seen
    shard.now_ms += 20_000
    shard.store.extend_lease([(first.id, 1), (second.id, 1)], LEASE_MS)
    shard.store.partition_requeue([Returned(id=second.id, attempts=1)])
    end(shard, [first])
    seen = shard.snapshot()
    assert dict(seen["walk"]) == {b"big": 0.0, b"small": 0.0}
    assert dict(seen["floor"]) == {b"small": 0.0}
    assert dict(seen["lanes:small"]) == {b"main": 10.0}


@each_policy
def test_nobody_is_punished_when_it_goes(shard: Shard, policy: str) -> None:
    """What it gave moved no turn: afterwards both go on as if it had never been (wfq charges when a job comes)."""
    crowd(shard, policy)
    before = dict(shard.snapshot()["walk"])
    minimum(shard, 2, "small", 9)
    jobs = shard.lease(9)
    assert tenants(jobs) == "s" * 9
    if policy in ("tiered", "ring"):
        assert dict(shard.snapshot()["walk"]) == before
    minimum(shard, 3, "small", 0)
    end(shard, jobs)
    after = tenants(shard.lease(20))
    assert after.count("s") == {"tiered": 1, "ring": 10}.get(policy, 0)


def test_pause_ceiling_and_a_closed_pool_go_before_it(shard: Shard) -> None:
    crowd(shard)
    minimum(shard, 2, "small", 5, max_in_flight=2)
    assert tenants(shard.lease(4)) == "ssbb"
    minimum(shard, 3, "small", 5, paused=True)
    assert "floor" not in shard.snapshot()
    assert tenants(shard.lease(2)) == "bb"
    shard.store.configure(4, pool=PoolConf(max_in_flight=6))
    minimum(shard, 5, "small", 5)
    assert shard.lease(3) == [], "nobody is sent away for it"


def test_it_counts_what_runs_already(shard: Shard) -> None:
    crowd(shard)
    running = [job for job in shard.lease(20) if job.tenant == "small"]
    minimum(shard, 2, "small", len(running))
    assert "floor" not in shard.snapshot()
    end(shard, running[:1])
    assert dict(shard.snapshot()["floor"]).keys() == {b"small"}
    assert tenants(shard.lease(1)) == "s"


def test_idle_it_takes_nothing_from_anybody(shard: Shard) -> None:
    """Work-conserving: the slots of a tenant without work are the others'."""
    shard.add(*(shard.job("big", cost=1) for _ in range(20)))
    minimum(shard, 1, "small", 10)
    assert len(shard.lease(20)) == 20
    assert "floor" not in shard.snapshot()


def test_several_share_by_their_turns(shard: Shard) -> None:
    shard.add(*(shard.job(name, cost=1) for name in ("a", "b", "c") for _ in range(9)))
    for version, name in enumerate(("b", "c"), 1):
        minimum(shard, version, name, 2)
    assert tenants(shard.lease(5)) == "bbcca"


def test_many_below_their_minimum_are_read_in_parts(shard: Shard) -> None:
    names = [f"t{number:03d}" for number in range(150)]
    shard.add(*(shard.job("a", cost=1) for _ in range(40)))
    for start in range(0, 150, 50):
        part = names[start : start + 50]
        shard.add(*(shard.job(name, cost=1) for name in part for _ in range(2)))
        shard.store.configure(start + 1, scopes=[ScopeLimits(tenant=name, min_share=1) for name in part])
    assert len(shard.snapshot()["floor"]) == 150
    first = [job.tenant for job in shard.lease(100)]
    assert len(set(first) - {"a"}) == 90, "one each, and a turn after nine"
    assert len(shard.snapshot()["floor"]) == 60


@pytest.mark.parametrize("left", ["cleared", "lane"])
def test_what_is_cleared_is_gone(shard: Shard, left: str) -> None:
    crowd(shard)
    minimum(shard, 2, "small", 2)
    assert "floor" in shard.snapshot()
    if left == "cleared":
        shard.store.configure(3, scopes=[ScopeLimits(tenant="small", clear=True)])
    else:
        shard.store.cancel([job_id for _, _, job_id in shard.store.peek(2)])
        shard.store.configure(3, scopes=[ScopeLimits(tenant="small", min_share=0)])
    seen = shard.snapshot()
    assert "floor" not in seen
    assert not [key for key in seen if key.startswith("slots:")]


def test_with_the_last_minimum_all_that_minima_cost_is_gone(shard: Shard) -> None:
    """Repeats, changes, a clear and a ceiling that stays: only the last one to go takes the flag along."""

    def lease() -> dict[str, int]:
        return commands(shard, lambda: shard.lease(1))

    def floors() -> object:
        return shard.client.hget(shard.keys["conf"], "floors")

    crowd(shard)
    lease()
    without = lease()
    both = [ScopeLimits(tenant="small", min_share=2, max_in_flight=5), ScopeLimits(tenant="big", min_share=1)]
    for _ in range(2):
        shard.store.configure(2, scopes=both)
        assert floors() == b"2"
    minimum(shard, 3, "small", 7, max_in_flight=5)
    assert floors() == b"2"
    shard.lease(1)
    for _ in range(2):
        shard.store.configure(4, scopes=[ScopeLimits(tenant="big", clear=True)])
        assert floors() == b"1"
    assert shard.store.verify() == []
    minimum(shard, 5, "small", 0, max_in_flight=5)
    seen = shard.snapshot()
    assert floors() is None
    assert "floor" not in seen
    assert b"floor_run" not in seen["policy"]
    assert shard.store.verify() == []
    shard.store.configure(6, scopes=[ScopeLimits(tenant="small", clear=True)])
    assert lease() == without


def test_a_suspect_below_the_minimum_is_passed_over(shard: Shard) -> None:
    """A worker that holds something may not have it, and gets what comes next; an idle one gets it."""
    shard.add(*(shard.job("big", cost=1) for _ in range(9)))
    (held,) = shard.lease(1, "busy")
    suspect = shard.job("small", max_crashes=9, cost=1)
    shard.add(suspect)
    minimum(shard, 1, "small", 2)
    for number in range(2):
        assert [job.id for job in shard.lease(1, f"dies{number}")] == [suspect.id]
        shard.now_ms += LEASE_MS // 2
        shard.store.extend_lease([(held.id, held.attempts)], LEASE_MS)
        shard.now_ms += LEASE_MS // 2
        shard.store.partition_recover(10)
    assert tenants(shard.lease(2, "busy")) == "bb"
    assert tenants(shard.lease(1, "idle")) == "s"


def test_the_configuration_in_force_tells_it(shard: Shard) -> None:
    scopes = [ScopeLimits(tenant="a", min_share=3), ScopeLimits(tenant="b", max_in_flight=4, min_share=2, paused=True)]
    shard.store.configure(1, scopes=scopes)
    assert shard.reads.scope_limits() == {(scope.tenant, ""): scope for scope in scopes}
    assert [entry.active for entry in shard.reads.tenants_of(["a", "b", "c"])] == [0, 0, None]


@pytest.mark.dirty_store
@pytest.mark.parametrize("harm", ["lacks", "score", "holds"])
def test_verify_sees_a_wrong_floor(shard: Shard, harm: str) -> None:
    crowd(shard)
    minimum(shard, 2, "small", 2)
    key = shard.keys["floor"]
    if harm == "lacks":
        shard.client.delete(key)
    else:
        shard.client.zadd(key, {"small": 5.0} if harm == "score" else {"big": 0.0})
    assert any("floor" in problem for problem in shard.store.verify())


def exchange(shard: Shard, jobs: list[LeasedJob], want: int = 1, run_ms: int = 10) -> str:
    """Ends some jobs and leases others, as one call."""
    finished = [completed(job, run_ms=run_ms) for job in jobs]
    shard.seqs["w1"] = shard.seqs.get("w1", 0) + 1
    answer = shard.store.cycle("w1", shard.seqs["w1"], want=want, begin=want, lease_ms=LEASE_MS, finished=finished)
    return tenants(list(answer.jobs))


@pytest.mark.parametrize("cost", [0, 1])
@each_policy
def test_a_slot_freed_in_the_same_call_counts(shard: Shard, policy: str, cost: float) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(*(shard.job("big", cost=1) for _ in range(20)), *(shard.job("small", cost=cost) for _ in range(20)))
    minimum(shard, 2, "small", 1)
    jobs = shard.lease(1)
    for _ in range(5):
        assert tenants(jobs) == "s"
        shard.now_ms += 10
        assert exchange(shard, jobs) == "s"
        jobs = held(shard)


def held(shard: Shard) -> list[LeasedJob]:
    """What the last call of w1 leased, asked for once more."""
    answer = shard.store.cycle("w1", shard.seqs["w1"], want=0, begin=0, lease_ms=LEASE_MS)
    return list(answer.jobs)


def test_a_turn_that_was_settled_in_the_same_call_counts(shard: Shard) -> None:
    """Among those below their minimum the turn decides, and it is the one of this moment."""
    shard.add(shard.job("a"), shard.job("b", cost=100), *(shard.job(name) for name in "ab" for _ in range(3)))
    first = shard.lease(2)
    assert tenants(first) == "ab"
    assert walk_of(shard) == {b"a": 50.0, b"b": 100.0}
    for version, name in enumerate(("a", "b"), 1):
        minimum(shard, version, name, 5)
    shard.now_ms += 1000
    assert exchange(shard, first[:1], run_ms=1000) == "b"


def walk_of(shard: Shard) -> dict[bytes, float]:
    return dict(shard.snapshot()["walk"])


def test_behind_suspects_the_rest_of_those_below_is_read(shard: Shard) -> None:
    """The first part that was read has suspects alone, whom this worker may not have."""
    shard.add(*(shard.job("big", cost=1) for _ in range(3)))
    (mine,) = shard.lease(1, "busy")
    suspects = [shard.job(name, cost=1, max_crashes=9) for name in ("a1", "a2", "a3")]
    shard.add(*suspects)
    for version, name in enumerate(("a1", "a2", "a3", "z"), 1):
        minimum(shard, version, name, 1)
    for number in range(2):
        assert tenants(shard.lease(3, f"dies{number}")) == "aaa"
        shard.now_ms += LEASE_MS // 2
        shard.store.extend_lease([(mine.id, mine.attempts)], LEASE_MS)
        shard.now_ms += LEASE_MS // 2
        shard.store.partition_recover(10)
    shard.add(shard.job("z", cost=1))
    assert tenants(shard.lease(1, "busy")) == "z"


def test_until_its_slots_are_counted_it_gives_nothing(shard: Shard) -> None:
    """Six hundred run, and one page of the count has seen a third of them: who is below is not known yet."""
    shard.add(*(shard.job("small", cost=1) for _ in range(700)))
    while len(shard.snapshot().get("active", [])) < 600:
        shard.lease(100)
    scopes = [ScopeLimits(tenant="small", min_share=500)]
    cursor = shard.store._run(calls.configure(1, None, scopes, "0", shard.now_ms))
    assert cursor != "0"
    assert "floor" not in shard.snapshot()
    shard.store.configure(1, scopes=scopes)
    assert "floor" not in shard.snapshot()
    minimum(shard, 2, "small", 601)
    assert "floor" in shard.snapshot()


@pytest.mark.parametrize("below", [5, 40])
def test_limits_of_those_below_are_read_together(shard: Shard, below: int) -> None:
    """They stand behind all that the walk alone would come to."""
    shard.add(*(shard.job(f"a{number:02d}", cost=1) for number in range(60)))
    names = [f"z{number:02d}" for number in range(below)]
    shard.add(*(shard.job(name, cost=1) for name in names))
    shard.store.configure(1, scopes=[ScopeLimits(tenant=name, min_share=1) for name in names])
    seen = commands(shard, lambda: shard.lease(below))
    assert seen["hget"] <= 10


def test_a_turn_that_heartbeats_move_is_moved_in_both(shard: Shard) -> None:
    """A job of its own turn, charged as it runs, of a tenant that is below its minimum since."""
    shard.add(*(shard.job("small") for _ in range(3)))
    (job,) = shard.lease(1)
    minimum(shard, 1, "small", 2)
    shard.now_ms += 20_000
    shard.store.extend_lease([(job.id, 1)], LEASE_MS)
    seen = shard.snapshot()
    assert dict(seen["floor"]) == dict(seen["walk"]) == {b"small": 20_000.0}
