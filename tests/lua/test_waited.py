"""What a leased job had waited for: its schedule, backoff, its own limits, the line; the four add up."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.configuration import PoolConf, Rate
from queueapp.store.records import DebounceUse, Returned
from queueapp.store.waits import Waits
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import keyed
from tests.lua.waits import blocks, limit, summed, waits

SCOPES = [("acme", ""), ("acme", "main")]


def line(ms: int) -> Waits:
    return Waits(line_ms=ms)


def fields(shard: Shard, job_id: str) -> set[str]:
    """Which fields of the hash tell of waiting."""
    known: Any = shard.client.hkeys(shard.keys.run(job_id))
    return {name.decode() for name in known} & {"ws", "wb", "wl", "wa", "le", "ue", "us", "tw"}


def test_a_job_that_waits_its_turn_waits_in_line_and_writes_nothing_of_it(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    assert waits(shard, job_id) is None
    shard.now_ms += 700
    (job,) = shard.lease()
    assert job.waits == waits(shard, job_id) == summed(shard) == line(700)
    assert fields(shard, job_id) == set()
    shard.store.complete([completed(job)])
    shard.now_ms += 900
    assert waits(shard, job_id) == line(700), "what it waited does not change after its end"


def test_until_its_time_it_waits_for_its_schedule_and_what_comes_then_is_the_line(shard: Shard) -> None:
    (first, second) = shard.add(shard.job(delay_ms=3000), shard.job(due_ms=shard.now_ms + 4000))
    shard.now_ms += 5000
    shard.store.promote_due()
    shard.now_ms += 10
    leased = shard.lease(2)
    want = [Waits(schedule_ms=3000, line_ms=2010), Waits(schedule_ms=4000, line_ms=1010)]
    assert [job.waits for job in leased] == [waits(shard, first), waits(shard, second)] == want
    assert fields(shard, first) == {"ws"}
    assert summed(shard) == Waits(schedule_ms=7000, line_ms=3020)


def test_a_debounce_that_puts_it_off_is_its_schedule(shard: Shard) -> None:
    use = DebounceUse(digest="d" * 16, period_ms=1000)
    (job_id,) = shard.add(shard.job(debounce=use))
    shard.now_ms += 600
    assert shard.store.enqueue([shard.job(debounce=use)])[0].outcome == "debounced"
    shard.now_ms += 1000
    shard.store.promote_due()
    shard.lease()
    assert waits(shard, job_id) == Waits(schedule_ms=1600)


def test_a_parked_job_waits_for_its_schedule(shard: Shard) -> None:
    limit(shard, rate=Rate(rate=1, period_ms=1000))
    (_, parked) = shard.store.enqueue([shard.job(parks=True), shard.job(parks=True)])
    assert parked.outcome == "parked"
    shard.now_ms += 1300
    shard.store.backlog_promote(1)
    shard.lease(2)
    assert waits(shard, parked.id) == Waits(schedule_ms=1000, line_ms=300)


def test_a_retry_waits_for_its_backoff_and_its_attempts_count_for_nothing(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_attempts=3))
    shard.now_ms += 100
    (job,) = shard.lease()
    shard.now_ms += 5000  # it runs
    shard.store.fail([failed(job, retry_ms=2000)])
    assert waits(shard, job_id) == line(100), "until its newest lease"
    shard.now_ms += 2500
    shard.store.promote_due()
    shard.now_ms += 30
    (job,) = shard.lease()
    assert job.waits == Waits(backoff_ms=2000, line_ms=530)
    assert waits(shard, job_id) == summed(shard) == Waits(backoff_ms=2000, line_ms=630)
    shard.now_ms += 7000
    shard.store.fail([failed(job, retry_ms=1000)])
    shard.now_ms += 1000
    shard.store.promote_due()
    (job,) = shard.lease()
    assert waits(shard, job_id) == Waits(backoff_ms=3000, line_ms=630)


def test_given_back_for_an_unknown_task_it_waits_for_its_backoff(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    back = Returned(id=job.id, attempts=1, delay_ms=400, unknown_task=True, grace_ms=9999)
    shard.store.partition_requeue([back])
    shard.now_ms += 500
    shard.store.promote_due()
    shard.lease()
    assert waits(shard, job_id) == Waits(backoff_ms=400, line_ms=100)


@pytest.mark.parametrize("begin", [0, 1])
def test_a_lost_lease_counts_as_an_attempt(shard: Shard, begin: int) -> None:
    (job_id,) = shard.add(shard.job())
    shard.now_ms += 50
    shard.lease(begin=begin)
    shard.now_ms += LEASE_MS + 5
    shard.store.partition_recover()
    shard.now_ms += 20
    shard.lease()
    assert waits(shard, job_id) == line(70)


def test_the_time_as_a_dead_letter_is_backoff(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    shard.now_ms += 1000
    shard.store.fail([failed(job)])
    shard.now_ms += 60_000
    shard.store.retry_from_dlq([job_id])
    shard.now_ms += 7
    (job,) = shard.lease()
    assert waits(shard, job_id) == Waits(backoff_ms=60_000, line_ms=7)
    shard.now_ms += 1000
    shard.store.fail([failed(job)])
    shard.now_ms += 500
    shard.store.retry_from_dlq([job_id])
    shard.lease()
    assert waits(shard, job_id) == Waits(backoff_ms=60_500, line_ms=7), "from its newest death"


def test_moved_to_the_dead_letters_before_its_first_lease(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.now_ms += 30
    shard.store.move_to_dlq([job_id], "by_hand")
    shard.now_ms += 500
    shard.store.retry_from_dlq([job_id])
    shard.now_ms += 7
    shard.lease()
    assert waits(shard, job_id) == Waits(backoff_ms=500, line_ms=37)


@pytest.mark.parametrize(("tenant", "lane"), SCOPES)
def test_while_it_is_paused_it_waits_for_its_limits(shard: Shard, tenant: str, lane: str) -> None:
    (job_id, other) = shard.add(shard.job(), shard.job("bert"))
    shard.now_ms += 100
    limit(shard, tenant, lane, paused=True)
    shard.now_ms += 1000
    (late,) = shard.add(shard.job())
    shard.now_ms += 1000
    limit(shard, tenant, lane, clear=True)
    shard.now_ms += 10
    shard.lease(3)
    assert waits(shard, job_id) == Waits(limits_ms=2000, line_ms=110)
    assert waits(shard, late) == Waits(limits_ms=1000, line_ms=10)
    assert waits(shard, other) == line(2110)
    assert summed(shard) == Waits(limits_ms=3000, line_ms=120)


@pytest.mark.parametrize(("tenant", "lane"), SCOPES)
def test_at_its_ceiling_it_waits_for_its_limits(shard: Shard, tenant: str, lane: str) -> None:
    limit(shard, tenant, lane, max_in_flight=1)
    (_, second) = shard.add(shard.job(), shard.job())
    shard.now_ms += 100
    (first,) = shard.lease(2)
    shard.now_ms += 400
    shard.store.complete([completed(first)])
    shard.now_ms += 30
    shard.lease()
    assert waits(shard, second) == Waits(limits_ms=400, line_ms=130)


def test_without_a_token_it_waits_for_its_limits(shard: Shard) -> None:
    limit(shard, dispatch_rate=Rate(rate=1, period_ms=1000))
    (_, second) = shard.add(shard.job(), shard.job())
    shard.lease(2)
    shard.now_ms += 1000
    shard.store.promote_due()
    shard.now_ms += 30
    shard.lease(2)
    assert waits(shard, second) == Waits(limits_ms=1000, line_ms=30)


def test_for_a_concurrency_key_it_waits_for_its_limits(shard: Shard) -> None:
    (_, second, plain) = shard.add(keyed(shard, "k"), keyed(shard, "k"), shard.job())
    shard.now_ms += 100
    (first, also) = shard.lease(3)
    assert also.id == plain
    shard.now_ms += 400
    shard.store.complete([completed(first)])
    shard.now_ms += 30
    shard.lease()
    assert waits(shard, second) == Waits(limits_ms=400, line_ms=130)
    assert waits(shard, plain) == line(100)


def test_what_overlaps_counts_once(shard: Shard) -> None:
    """A full key, a paused lane, a paused tenant, one within the other and beyond."""
    (_, second) = shard.add(keyed(shard, "k"), keyed(shard, "k"))
    (first,) = shard.lease(2)
    shard.now_ms += 10
    limit(shard, "acme", "main", paused=True)
    shard.now_ms += 10
    limit(shard, "acme", paused=True)
    shard.now_ms += 10
    shard.store.complete([completed(first)])
    shard.now_ms += 10
    limit(shard, "acme", "main", clear=True)
    shard.now_ms += 10
    limit(shard, "acme", clear=True)
    shard.now_ms += 5
    shard.lease()
    assert waits(shard, second) == Waits(limits_ms=50, line_ms=5)


def test_a_lane_within_its_tenant_and_a_key_within_its_lane_overlap(shard: Shard) -> None:
    """Other work of the tenant, so that each of them holds something back all the while."""
    shard.add(keyed(shard, "k", lane="x"))
    (first,) = shard.lease()
    shard.store.configure(1, pool=PoolConf(paused=True))
    ids = shard.add(keyed(shard, "k", lane="x"), shard.job(lane="x"), shard.job(lane="y"))
    shard.now_ms += 1000  # in line, but for the key
    limit(shard, "acme", "x", paused=True)
    shard.now_ms += 10
    limit(shard, "acme", paused=True)
    shard.now_ms += 10
    limit(shard, "acme", "x", clear=True)
    shard.now_ms += 10
    limit(shard, "acme", clear=True)
    shard.now_ms += 5
    shard.store.complete([completed(first)])
    shard.now_ms += 2000
    shard.versions += 1
    shard.store.configure(shard.versions, pool=PoolConf())
    shard.lease(9)
    assert [waits(shard, job_id) for job_id in ids] == [
        Waits(limits_ms=1035, line_ms=2000),
        Waits(limits_ms=30, line_ms=3005),
        Waits(limits_ms=20, line_ms=3015),
    ]


def test_a_pause_and_a_ceiling_of_the_pool_are_the_line(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(max_in_flight=1))
    (_, second) = shard.add(shard.job(), shard.job())
    (first,) = shard.lease(2)
    shard.now_ms += 100
    shard.store.configure(2, pool=PoolConf(paused=True))
    shard.store.complete([completed(first)])
    shard.now_ms += 100
    shard.store.configure(3, pool=PoolConf())
    shard.lease()
    assert waits(shard, second) == line(200)
    assert blocks(shard) == {}


@pytest.mark.parametrize("delayed", [False, True])
def test_only_what_comes_after_it_came_into_line_counts(shard: Shard, delayed: bool) -> None:
    """Its lane was held back before, in the same rush."""
    limit(shard, max_in_flight=1)
    (_, second) = shard.add(shard.job(), shard.job())
    (first,) = shard.lease(2)
    (late,) = shard.add(shard.job(delay_ms=700)) if delayed else ("",)
    shard.now_ms += 700
    shard.store.promote_due()
    if not delayed:
        (late,) = shard.add(shard.job())
    shard.now_ms += 300
    for job in (first, *shard.lease(3)):
        shard.store.complete([completed(job)])
    (job,) = shard.lease()
    shard.store.complete([completed(job)])
    shard.lease()
    assert waits(shard, second) == Waits(limits_ms=1000)
    assert waits(shard, late) == Waits(limits_ms=300, schedule_ms=700 if delayed else 0)
