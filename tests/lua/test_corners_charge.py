"""What a job is charged, and how the charge is settled: bounded, in the unit of the pool, whatever ends the attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queueapp.store.configuration import PoolConf
from queueapp.store.records import Failed, Finish, LeasedJob
from tests.lua.harness import LEASE_MS, Shard, completed, failed


def walk_of(shard: Shard) -> dict[bytes, float]:
    return dict(shard.snapshot()["walk"])


def one_running(shard: Shard, cost: float = 0) -> LeasedJob:
    """A job that runs, of a tenant that has another one waiting."""
    shard.add(shard.job(cost=cost), shard.job(cost=cost))
    (job,) = shard.lease()
    return job


def finish_of(job: LeasedJob, ending: str, run_ms: int, cost: float = 0) -> Finish:
    if ending == "complete":
        return completed(job, run_ms=run_ms, cost=cost)
    return Failed(id=job.id, attempts=job.attempts, run_ms=run_ms, error=b"{}", cost=cost)


def settle(shard: Shard, job: LeasedJob, ending: str, run_ms: int, cost: float = 0) -> None:
    finished = [finish_of(job, ending, run_ms, cost)]
    shard.seqs["w1"] += 1
    shard.store.cycle("w1", shard.seqs["w1"], want=0, begin=0, lease_ms=LEASE_MS, finished=finished)


def test_no_job_costs_less_than_one(shard: Shard) -> None:
    """A tenant of free jobs would be served for ever."""
    one_running(shard, cost=0.25)
    assert walk_of(shard) == {b"acme": 1.0}


def test_a_task_that_takes_no_time_costs_one_too(shard: Shard) -> None:
    shard.store.complete([completed(one_running(shard), run_ms=0)])
    assert shard.snapshot()["est"][b"1"].startswith(b"0|")
    before = walk_of(shard)[b"acme"]
    shard.add(shard.job())
    shard.lease()
    assert walk_of(shard) == {b"acme": before + 1}


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_an_estimate_is_settled_whatever_ends_the_attempt(shard: Shard, ending: str) -> None:
    job = one_running(shard)
    assert walk_of(shard) == {b"acme": 50.0}
    shard.now_ms += 100
    settle(shard, job, ending, run_ms=80)
    assert walk_of(shard) == {b"acme": 80.0}


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_a_run_time_longer_than_the_lease_lasted_is_not_believed(shard: Shard, ending: str) -> None:
    job = one_running(shard)
    shard.now_ms += 100
    settle(shard, job, ending, run_ms=1_000_000_000)
    assert walk_of(shard) == {b"acme": 100.0}
    if ending == "complete":
        assert shard.snapshot()["est"][b"1"].startswith(b"1600|")


@pytest.mark.parametrize("ending", ["complete", "fail"])
@pytest.mark.parametrize("declared", [0, 10])
def test_a_cost_that_the_handler_set_is_the_truth(shard: Shard, ending: str, declared: float) -> None:
    """Over an estimate and over what was declared; less than one counts as one."""
    job = one_running(shard, cost=declared)
    shard.now_ms += 100
    settle(shard, job, ending, run_ms=80, cost=700)
    assert walk_of(shard) == {b"acme": 700.0}


@pytest.mark.parametrize("ending", ["complete", "fail"])
def test_a_cost_below_one_that_the_handler_set_counts_as_one(shard: Shard, ending: str) -> None:
    job = one_running(shard)
    settle(shard, job, ending, run_ms=80, cost=0.01)
    assert walk_of(shard) == {b"acme": 1.0}


def test_a_pool_whose_unit_is_not_time_learns_nothing_from_time(shard: Shard) -> None:
    """An undeclared cost is one unit there; run times neither settle it nor are remembered."""
    shard.store.configure(1, pool=PoolConf(cost_unit="pages"))
    job = one_running(shard)
    assert walk_of(shard) == {b"acme": 1.0}
    shard.now_ms += 80
    shard.store.complete([completed(job, run_ms=80)])
    assert walk_of(shard) == {b"acme": 1.0}
    assert "est" not in shard.snapshot()


def test_estimates_of_another_unit_are_not_used(shard: Shard) -> None:
    """The pool counted time before; what it learnt then is no cost in pages."""
    shard.store.complete([completed(one_running(shard), run_ms=0)])
    shard.client.hset(shard.keys["est"], "1", "16000|20833")
    shard.store.configure(1, pool=PoolConf(cost_unit="pages"))
    before = walk_of(shard)[b"acme"]
    shard.add(shard.job())
    shard.lease()
    assert walk_of(shard) == {b"acme": before + 1}


def test_a_run_that_outlives_its_tag_is_still_settled_in_full(shard: Shard) -> None:
    """Charged as it runs, then V passes the tag, then it ends: the tag stands where the whole run puts it."""
    shard.add(shard.job("a"), *(shard.job("b", cost=1_000) for _ in range(60)))
    (job,) = (job for job in shard.lease(2) if job.tenant == "a")
    shard.now_ms += 20_000
    shard.store.extend_lease([(job.id, 1)], LEASE_MS)
    assert dict(shard.snapshot()["tags"]) == {b"a": 20_000.0}
    for _ in range(20):
        shard.lease(1)
    assert "tags" not in shard.snapshot()
    shard.now_ms += 15_000
    shard.store.complete([completed(job, run_ms=35_000)])
    assert dict(shard.snapshot()["tags"]) == {b"a": 35_000.0}


def zranges(shard: Shard, act: Callable[[], object]) -> int:
    """How many times `act` makes the server read a sorted set."""
    shard.client.config_resetstat()
    act()
    stats: Any = shard.client.info("commandstats")
    return int(stats.get("cmdstat_zrange", {"calls": 0})["calls"])


@pytest.mark.parametrize("tenants", [1, 100])
def test_settling_reads_the_walk_once_and_each_tenant_once(shard: Shard, tenants: int) -> None:
    shard.add(*(shard.job(f"t{number % tenants:03d}") for number in range(300)))
    leased = shard.lease(100)
    shard.now_ms += 1_000
    finished = [completed(job, run_ms=100 + number) for number, job in enumerate(leased)]
    assert zranges(shard, lambda: shard.store.complete(finished)) <= tenants + 10


@pytest.mark.parametrize("lanes", [10, 60])
def test_leasing_reads_each_lane_twice_at_most(shard: Shard, lanes: int) -> None:
    shard.add(*(shard.job(lane=f"lane{number % lanes}", cost=1) for number in range(200)))
    assert zranges(shard, lambda: shard.lease(100)) <= 2 * lanes + 20


def test_a_cost_of_any_size_and_a_row_of_any_length_are_kept(shard: Shard) -> None:
    """The header is read up to a fixed length: the longest one must fit."""
    huge = shard.job("t" * 64, lane="l" * 64, cost=1e300)
    long = shard.job(
        "u" * 64,
        lane="l" * 64,
        cost=123456789.12345678,
        priority=-100,
        tier="continue",
        max_attempts=2**31,
        max_crashes=2**31,
        expires_after_ms=10**14,
        fingerprint="f" * 128,
    )
    shard.add(huge, long)
    assert [answer.outcome for answer in shard.store.enqueue([huge, long])] == ["enqueued", "enqueued"]
    assert shard.snapshot()["counts"][b"w"] == b"2"
    assert shard.store.cancel([long.id]) == ["cancelled"]
    (job,) = shard.lease(2)
    assert (job.id, job.cost) == (huge.id, 1e300)
    shard.store.fail([failed(job)])


def test_a_settlement_that_ends_the_busy_period_leaves_nothing_of_its_tenant(shard: Shard) -> None:
    """The clock reaches the tag in the same call: what goes then is looked at as when the clock passes it later."""
    shard.add(shard.job("acme"), shard.job("globex", cost=7))
    jobs = {job.tenant: job for job in shard.lease(2)}
    shard.now_ms += 900
    shard.store.complete([completed(jobs["acme"], run_ms=800), completed(jobs["globex"], run_ms=800)])
    assert shard.store.verify() == []
