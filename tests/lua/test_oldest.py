"""oldest: who has stood in line longest, found at the heads of lanes and priorities, in bounded looks."""

from __future__ import annotations

import pytest

from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import Returned
from queueapp.store.views import Standing
from tests.lua.harness import LEASE_MS, START_MS, Shard, failed


def first_of(answer: Standing) -> tuple[str, int]:
    """Id of the oldest, and since when."""
    return answer.jobs[0].id, answer.jobs[0].since_ms


def later(shard: Shard, *, ms: int = 1_000) -> int:
    shard.now_ms += ms
    return shard.now_ms


def test_nothing_waits(shard: Shard) -> None:
    shard.add(shard.job(delay_ms=5_000))
    answer = shard.reads.oldest()
    assert (answer.jobs, answer.first, answer.cursor) == ([], -1, "-1")


@pytest.mark.parametrize("policy", sorted(DIRECT))
def test_the_first_submitted_of_several_tenants_and_lanes(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    (first,) = shard.add(shard.job("z", lane="slow"))
    later(shard)
    shard.add(*(shard.job(tenant, lane=lane) for tenant in "az" for lane in ("main", "slow") for _ in range(3)))
    assert first_of(shard.reads.oldest()) == (first, START_MS)


@pytest.mark.parametrize("policy", ["tiered", "priority", "aging"])
def test_a_low_priority_that_starves_is_found_behind_the_others(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    (starved,) = shard.add(shard.job(priority=-100))
    since = shard.now_ms
    later(shard)
    shard.add(*(shard.job(priority=priority) for priority in (100, 0, -99, 50) for _ in range(3)))
    assert first_of(shard.reads.oldest()) == (starved, since)


def test_one_whose_deadline_is_far_is_found_behind_the_others(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(policy="edf"))
    (first,) = shard.add(shard.job(deadline_ms=START_MS + 10**9))
    since = later(shard) - 1_000
    shard.add(*(shard.job(deadline_ms=START_MS + number) for number in range(1, 60)))
    assert first_of(shard.reads.oldest()) == (first, since)


def test_one_that_starves_is_not_crowded_out_by_later_ones(shard: Shard) -> None:
    (starved,) = shard.add(shard.job(priority=-100))
    later(shard)
    shard.add(*(shard.job(f"t{number}", priority=100) for number in range(30)))
    assert first_of(shard.reads.oldest())[0] == starved


def test_one_that_continues_is_found_among_the_continuations(shard: Shard) -> None:
    (first,) = shard.add(shard.job(tier="continue"))
    later(shard)
    shard.add(shard.job())
    assert first_of(shard.reads.oldest())[0] == first


@pytest.mark.parametrize(
    "limits",
    [
        ScopeLimits(tenant="a", paused=True),
        ScopeLimits(tenant="a", max_in_flight=0),
        ScopeLimits(tenant="a", lane="slow", paused=True),
        ScopeLimits(tenant="a", lane="slow", max_in_flight=0),
    ],
    ids=["tenant paused", "tenant full", "lane paused", "lane full"],
)
def test_who_left_the_walk_is_found(shard: Shard, limits: ScopeLimits) -> None:
    (first,) = shard.add(shard.job("a", lane="slow"))
    shard.store.configure(1, scopes=[limits])
    later(shard)
    shard.add(shard.job("b"))
    assert [tenant for tenant, _, _ in shard.store.peek(9)] == ["b"]
    assert first_of(shard.reads.oldest())[0] == first


def test_the_time_before_it_was_due_is_no_wait(shard: Shard) -> None:
    (first,) = shard.add(shard.job(delay_ms=3_600_000))
    since = later(shard, ms=3_600_000)
    shard.store.promote_due()
    later(shard)
    assert first_of(shard.reads.oldest()) == (first, since)


def test_a_backoff_is_no_wait(shard: Shard) -> None:
    (first,) = shard.add(shard.job(max_attempts=3))
    shard.store.fail([failed(shard.lease()[0], retry_ms=60_000)])
    since = later(shard, ms=60_000)
    shard.store.promote_due()
    later(shard)
    assert first_of(shard.reads.oldest()) == (first, since)


def test_a_retried_dead_letter_waits_anew(shard: Shard) -> None:
    (first,) = shard.add(shard.job())
    shard.store.fail([failed(shard.lease()[0])])
    since = later(shard)
    shard.store.retry_from_dlq([first])
    later(shard)
    assert first_of(shard.reads.oldest()) == (first, since)


@pytest.mark.parametrize("policy", ["tiered", "wfq"])
def test_who_kept_its_place_has_waited_all_along(shard: Shard, policy: str) -> None:
    """Given back unrun, or lost with its worker: one lease does not end its wait; after a second, that one counts."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    (first,) = shard.add(shard.job(max_crashes=9))
    (job,) = shard.lease(begin=0)
    later(shard)
    shard.store.partition_requeue([Returned(id=first, attempts=job.attempts)])
    assert first_of(shard.reads.oldest()) == (first, START_MS)
    leased = later(shard)
    shard.lease(begin=0)
    later(shard, ms=LEASE_MS)
    shard.store.partition_recover()
    assert first_of(shard.reads.oldest()) == (first, leased)


def test_sixteen_are_told_the_oldest_first(shard: Shard) -> None:
    ids = []
    for number in range(20):
        ids += shard.add(shard.job(f"t{number:02}"))
        later(shard)
    assert [job.id for job in shard.reads.oldest().jobs] == ids[:16]


def test_a_large_pool_is_looked_through_in_bounded_steps(shard: Shard) -> None:
    (first,) = shard.add(shard.job("zz"))
    later(shard)
    shard.add(*(shard.job(f"t{number:03}") for number in range(300) for _ in range(2)))
    at, calls, found = 0, 0, []
    while at >= 0:
        before = int(shard.client.info("commandstats")["cmdstat_zrangebyscore"]["calls"])
        answer = shard.reads.oldest(first=at, cursor="-1", looks=20)
        looked = int(shard.client.info("commandstats")["cmdstat_zrangebyscore"]["calls"]) - before
        assert looked <= 23, "a lane is finished once it is begun"
        at, calls = answer.first, calls + 1
        found += [job.id for job in answer.jobs]
    assert calls > 30
    assert first in found


def test_every_lane_of_a_tenant_has_its_turn(shard: Shard) -> None:
    """The one that was submitted first stands last in the walk, by its priority."""
    shard.store.configure(1, pool=PoolConf(policy="priority"))
    (first,) = shard.add(shard.job(lane="last", priority=-100))
    later(shard)
    shard.add(*(shard.job(lane=f"lane{number:03}") for number in range(250)))
    assert first_of(shard.reads.oldest()) == (first, START_MS)
    place, calls, found = (0, 0), 0, []
    while place[0] >= 0:
        answer = shard.reads.oldest(first=place[0], lane=place[1], cursor="-1", looks=50)
        place, calls = (answer.first, answer.lane), calls + 1
        found += [job.id for job in answer.jobs]
    assert (calls, first in found) == (4, True), "a page of lanes is finished once it is begun"


def test_named_lanes_are_looked_at_before_all_others(shard: Shard) -> None:
    shard.add(*(shard.job("a") for _ in range(5)))
    (job_id,) = shard.add(shard.job("b", lane="slow"))
    answer = shard.reads.oldest(first=-1, cursor="-1", lanes=[("b", "slow"), ("no", "such")])
    assert [job.id for job in answer.jobs] == [job_id]
    assert (answer.first, answer.cursor) == (-1, "-1")


def test_many_limits_are_looked_through_by_cursor(shard: Shard) -> None:
    lanes = [f"lane{number:04}" for number in range(1_500)]
    shard.store.configure(1, scopes=[ScopeLimits(tenant="a", lane=lane, paused=True) for lane in lanes])
    (first,) = shard.add(shard.job("a", lane=lanes[777]))
    cursor, calls, found = "0", 0, []
    while cursor != "-1":
        answer = shard.reads.oldest(first=-1, cursor=cursor, looks=400)
        cursor, calls = answer.cursor, calls + 1
        found += [job.id for job in answer.jobs]
    assert calls > 5
    assert found == [first]


def test_a_row_that_cannot_be_read_is_passed_over(shard: Shard) -> None:
    broken, good = shard.add(shard.job("a"), shard.job("b"))
    text = shard.client.getrange(shard.keys.job(broken), 0, -1)
    shard.client.set(shard.keys.job(broken), "nonsense")
    assert [job.id for job in shard.reads.oldest().jobs] == [good]
    shard.client.set(shard.keys.job(broken), text)
