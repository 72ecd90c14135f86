"""check_and_lease: the order of the walk, the token (worker, seq), ceilings, suspects, rows that cannot be read."""

from __future__ import annotations

import pytest

from queueapp.errors import StaleCall, StoreError
from queueapp.states import Outcome
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import LeasedJob
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed
from tests.lua.keyed import keyed


def test_fifo_is_the_order_of_submission_across_tenants(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    ids = shard.add(*(shard.job(tenant, lane=lane) for tenant in "cab" for lane in ("x", "a") for _ in range(3)))
    assert [job.id for job in shard.lease(5)] == ids[:5]
    assert [job.id for worker in ("w2", "w3") for job in shard.lease(7, worker)] == ids[5:]


def test_tiered_serves_by_weight_exactly(shard: Shard) -> None:
    """1:2:4 over 7,000 dispatches of declared cost 1 with all tenants busy."""
    scopes = [ScopeLimits(tenant=tenant, weight=weight) for tenant, weight in (("a", 1), ("b", 2), ("c", 4))]
    shard.store.configure(1, scopes=scopes)
    shard.add(*(shard.job(tenant, cost=1) for tenant in "abc" for _ in range(4_001)))
    served = {"a": 0, "b": 0, "c": 0}
    while sum(served.values()) < 7_000:
        for job in shard.lease(min(70, 7_000 - sum(served.values()))):
            served[job.tenant] += 1
    assert served == {"a": 1_000, "b": 2_000, "c": 4_000}


def test_a_flood_of_one_tenant_does_not_delay_a_newcomer(shard: Shard) -> None:
    """C057: one tenant's flood is drained before everyone else's single job."""
    shard.add(*(shard.job("flood") for _ in range(500)))
    shard.lease(50)
    (late,) = shard.add(shard.job("late"))
    assert late in [job.id for job in shard.lease(2)]


def test_an_idle_tenant_banks_no_credit(shard: Shard) -> None:
    """C059: after an hour of idleness a tenant takes its share, not everything."""
    shard.add(*(shard.job("busy", cost=1) for _ in range(300)), shard.job("idle", cost=1))
    shard.lease(100)
    shard.now_ms += 3_600_000
    shard.add(*(shard.job("idle", cost=1) for _ in range(100)))
    served = [job.tenant for job in shard.lease(40)]
    assert abs(served.count("idle") - served.count("busy")) <= 1


def test_many_lanes_get_a_tenant_no_more_than_one(shard: Shard) -> None:
    shard.add(*(shard.job("wide", lane=f"lane{number}", cost=1) for number in range(60)))
    shard.add(*(shard.job("narrow", cost=1) for _ in range(60)))
    served = [job.tenant for job in shard.lease(40)]
    assert served.count("wide") == served.count("narrow") == 20


def test_priority_orders_a_lane_and_never_crosses_tenants(shard: Shard) -> None:
    low, high = shard.add(shard.job("a", priority=-100), shard.job("a", priority=100))
    (other,) = shard.add(shard.job("b"))
    assert [job.id for job in shard.lease(3)] == [high, other, low]


def test_continuations_go_ten_to_one_inside_a_lane(shard: Shard) -> None:
    shard.add(*(shard.job(tier="start") for _ in range(5)), *(shard.job(tier="continue") for _ in range(40)))
    fresh = {f"{number:022d}" for number in range(1, 6)}
    marks = "".join("s" if job.id in fresh else "c" for job in shard.lease(33))
    assert marks == "cccccccccc" + "s" + "cccccccccc" + "s" + "cccccccccc" + "s"


def test_peek_says_what_lease_then_does_and_changes_nothing(shard: Shard) -> None:
    shard.add(*(shard.job(tenant, cost=cost) for cost in (1, 7, 3) for tenant in "abcd" for _ in range(4)))
    before = shard.snapshot()
    seen = [job_id for _, _, job_id in shard.store.peek(20)]
    assert shard.snapshot() == before
    assert seen == [job.id for job in shard.lease(20)]


def test_the_same_seq_answers_the_same_jobs_and_leases_nothing_new(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(5)))
    first = shard.store.check_and_lease("w1", 1, want=2, begin=2, lease_ms=LEASE_MS).jobs
    again = shard.store.check_and_lease("w1", 1, want=2, begin=2, lease_ms=LEASE_MS).jobs
    assert sorted(first, key=lambda job: job.id) == sorted(again, key=lambda job: job.id)
    assert shard.snapshot()["counts"][b"w"] == b"3"


def test_a_call_that_comes_too_late_is_refused_without_a_trace(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(5)))
    shard.lease(1)
    shard.lease(1)
    before = shard.snapshot()
    with pytest.raises(StaleCall):
        shard.store.check_and_lease("w1", 1, want=2, begin=2, lease_ms=LEASE_MS)
    assert shard.snapshot() == before


def test_the_claim_writes_owner_attempt_start_and_deadline_together(shard: Shard) -> None:
    """C007, C013: claim and lease are one atomic step, so that a sweep in between has nothing to see."""
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    assert (job.attempts, job.leased_ms, job.deadline_ms) == (1, START_MS, START_MS + LEASE_MS)
    seen = shard.snapshot()
    assert seen["active"] == [(job_id.encode(), START_MS + LEASE_MS)]
    assert seen[f"run:{job_id}"][b"w"] == b"w1"
    assert seen["held:w1"] == {job_id.encode()}
    assert shard.store.partition_recover().pending == 0


@pytest.mark.parametrize("scope", ["pool", "tenant", "lane"])
def test_a_ceiling_holds_and_frees_with_the_job(shard: Shard, scope: str) -> None:
    if scope == "pool":
        shard.store.configure(1, pool=PoolConf(max_in_flight=3))
    else:
        lane = "main" if scope == "lane" else ""
        shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", lane=lane, max_in_flight=3)])
    shard.add(*(shard.job() for _ in range(6)))
    leased = shard.lease(6)
    assert len(leased) == 3
    assert shard.store.verify() == []
    assert shard.lease(6) == []
    shard.store.complete([completed(leased[0])])
    assert len(shard.lease(6)) == 1


def test_a_blocked_tenant_costs_the_others_nothing(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=0)])
    shard.add(*(shard.job("acme") for _ in range(5)), *(shard.job("globex") for _ in range(5)))
    assert {job.tenant for job in shard.lease(10)} == {"globex"}


def test_a_job_past_its_expiry_ends_at_the_pick_and_never_runs(shard: Shard) -> None:
    """C071: expired jobs get their own outcome and count, never run, and do not delay fresh ones."""
    shard.add(*(shard.job(expires_after_ms=100) for _ in range(20)))
    (fresh,) = shard.add(shard.job())
    shard.now_ms += 200
    # One call looks at 2 * want + 16 heads at most; it says that more is runnable, and the next one goes on.
    assert [job.id for _ in range(2) for job in shard.lease(1)] == [fresh]
    assert shard.snapshot()["stats"][b"expired"] == b"20"


@pytest.mark.parametrize("broken", ["missing row", "row of a wrong type", "foreign text"])
@pytest.mark.dirty_store
def test_c056_a_row_that_cannot_be_read_is_set_aside_once(shard: Shard, broken: str) -> None:
    """C056: keys of a wrong type under our prefix: no error loop, the others go on."""
    bad, good = shard.add(shard.job(), shard.job())
    key = shard.keys.job(bad)
    shard.client.delete(key)
    if broken == "row of a wrong type":
        shard.client.rpush(key, "x")
    elif broken == "foreign text":
        shard.client.set(key, "something else")
    assert [job.id for job in shard.lease(2)] == [good]
    assert shard.snapshot()["quarantine"] == {bad.encode()}
    assert shard.lease(2) == []


@pytest.mark.dirty_store
def test_c056_an_index_of_a_wrong_type_is_named(shard: Shard) -> None:
    """C056: WRONGTYPE errors repeat for ever and say nothing."""
    shard.client.set(shard.keys["walk"], "somebody else's")
    with pytest.raises(StoreError, match=r"walk is a string, and Ductor keeps a zset there.*NAMESPACE"):
        shard.add(shard.job())


def test_a_large_reply_is_bounded_by_bytes(shard: Shard) -> None:
    shard.add(*(shard.job(payload=b"x" * 250_000) for _ in range(10)))
    leased = shard.lease(10)
    assert 4 <= len(leased) <= 6
    assert len(leased) + len(shard.lease(10)) == 10


def test_more_tenants_than_one_call_reads_ahead(shard: Shard) -> None:
    ids = shard.add(*(shard.job(f"t{number:04d}", expires_after_ms=10) for number in range(300)))
    late = shard.add(shard.job("zz"))
    shard.now_ms += 20
    leased = [job.id for _ in range(40) for job in shard.lease(5)]
    assert leased == late
    assert shard.snapshot()["stats"][b"expired"] == str(len(ids)).encode()


@pytest.mark.parametrize("policy", ["tiered", "ring", "edf"])
def test_each_job_comes_with_its_own_row_however_rows_are_read_ahead(shard: Shard, policy: str) -> None:
    """Of many tenants in one call, several of each, with and without keys, of both tiers and of two sizes."""
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="t3", min_share=2, weight=3)])
    jobs = [
        keyed(
            shard,
            *(() if number % 3 else (f"k{number % 5}",)),
            limit=99,
            tenant=f"t{number % 13}",
            lane=f"l{number % 2}",
            tier="continue" if number % 7 == 0 else "start",
            payload=f"mine is {number}".encode() + b"x" * (9_000 if number % 11 == 0 else 0),
            cost=1 + number % 4,
        )
        for number in range(180)
    ]
    shard.add(*jobs)
    own = {job.id: job.payload for job in jobs}
    leased = [job for want in (1, 40, 7, 100, 100) for job in shard.lease(want)]
    assert len(leased) == len(jobs)
    assert {job.id: job.payload for job in leased} == own


@pytest.mark.parametrize("tenants", [10, 100])
def test_rows_limits_and_counts_of_many_tenants_are_read_and_written_together(shard: Shard, tenants: int) -> None:
    """What cannot be: its two queues are read, two pointers are written, its job leaves its queue."""
    shard.add(*(shard.job(f"t{number:03d}") for number in range(tenants) for _ in range(2)))
    shard.lease(1)
    shard.client.config_resetstat()
    assert len(shard.lease(tenants)) == tenants
    stats: dict[str, dict[str, int]] = shard.client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}
    assert [calls.get(name, 0) for name in ("zincrby", "zrangebyscore")] == [0, 1]
    assert calls["mget"] <= 8


@pytest.mark.parametrize("policy", ["fifo", "edf"])
def test_c071_a_thousand_past_their_expiry_hold_up_no_fresh_one(shard: Shard, policy: str) -> None:
    """C071: they end as expired, are counted and never run; another expires between its lease and its start."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    past = shard.now_ms - 1
    old = shard.add(*(shard.job(expires_after_ms=100, deadline_ms=past) for _ in range(1_000)))
    without, with_deadline = (
        shard.add(*(shard.job() for _ in range(5))),
        shard.add(*(shard.job(deadline_ms=shard.now_ms + 60_000) for _ in range(5))),
    )
    shard.now_ms += 200
    leased: list[LeasedJob] = []
    calls = 0
    while len(leased) < 10:
        leased += shard.lease(10 - len(leased))
        calls += 1
    fresh = [*with_deadline, *without] if policy == "edf" else [*without, *with_deadline]
    assert [job.id for job in leased] == fresh, "under edf those without a deadline come last"
    assert calls <= 30, "each call that finds nothing puts dozens away"
    assert shard.snapshot()["stats"][b"expired"] == b"1000"
    assert {job.outcome for job in shard.reads.jobs(old) if job} == {Outcome.EXPIRED}
    [late] = shard.add(shard.job(expires_after_ms=100))
    [taken] = shard.lease(1)
    shard.now_ms += 200
    assert shard.store.promote_due().expired == 0, "who was leased in time runs"
    assert (taken.id, shard.store.complete([completed(taken)])) == (late, ["done"])
