"""Room: how many jobs of a tenant, or of a pool, may wait; and when it is worth another try."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from tests.lua.harness import Shard, completed


def of_tenant(shard: Shard, most: int | None, tenant: str = "acme") -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant=tenant, backlog_limit=most)])


def words(shard: Shard, count: int = 1, **options: Any) -> list[str]:
    return [shard.store.enqueue([shard.job(**options)])[0].outcome for _ in range(count)]


def test_a_tenant_has_as_many_waiting_jobs_as_it_may(shard: Shard) -> None:
    of_tenant(shard, 3)
    assert words(shard, 4) == ["enqueued"] * 3 + ["backlog_full"]
    assert words(shard, 2, tenant="other") == ["enqueued"] * 2
    before = shard.snapshot()
    assert words(shard) == ["backlog_full"]
    assert shard.snapshot() == before
    [job] = [job for job in shard.lease(5) if job.tenant == "acme"][:1]
    assert words(shard, 3) == ["enqueued"] * 3  # what runs does not wait
    shard.store.complete([completed(job)])
    assert words(shard) == ["backlog_full"]


def test_scheduled_and_parked_jobs_wait_too(shard: Shard) -> None:
    shard.store.configure(
        1, scopes=[ScopeLimits(tenant="acme", backlog_limit=3, rate=Rate(rate=1, period_ms=60_000, burst=2))]
    )
    assert words(shard, delay_ms=60_000) == ["enqueued"]
    assert words(shard) == ["enqueued"]
    assert words(shard, 2, parks=True) == ["parked", "backlog_full"]
    # What is refused for its rate is told so first, and what finds no room has not paid.
    assert words(shard) == ["throttled"]
    stored: Any = shard.client.get(shard.keys["gcra:t:acme"])
    assert words(shard, parks=True) == ["backlog_full"]
    assert shard.client.get(shard.keys["gcra:t:acme"]) == stored


def test_a_pool_has_as_many_as_it_may(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(backlog_limit=3))
    assert [words(shard, tenant=tenant)[0] for tenant in "abcd"] == ["enqueued"] * 3 + ["backlog_full"]
    shard.store.configure(2, pool=PoolConf(backlog_limit=None))
    assert words(shard, 5) == ["enqueued"] * 5


def test_jobs_of_one_call_share_the_room(shard: Shard) -> None:
    of_tenant(shard, 2)
    answers = shard.store.enqueue([shard.job() for _ in range(4)])
    assert [answer.outcome for answer in answers] == ["enqueued"] * 2 + ["backlog_full"] * 2


def test_no_room_at_all_closes_the_door(shard: Shard) -> None:
    of_tenant(shard, 0)
    assert words(shard) == ["backlog_full"]


def wait_of(shard: Shard) -> int:
    [answer] = shard.store.enqueue([shard.job()])
    assert answer.outcome == "backlog_full"
    return answer.wait_ms


def test_the_wait_follows_the_pace_at_which_the_tenant_s_own_jobs_start(shard: Shard) -> None:
    of_tenant(shard, 60)
    words(shard, 60)
    assert wait_of(shard) == 300_000  # none has started: nobody knows
    shard.add(*(shard.job("other") for _ in range(60)))
    jobs = [job for job in shard.lease(40) if job.tenant == "acme"]
    assert len(jobs) == 20
    words(shard, 20)
    # 20 of its own in the last minute, whatever others had: one in 3 s.
    shard.now_ms += 59_999 - shard.now_ms % 60_000
    assert wait_of(shard) == pytest.approx(3_000 * 2, abs=1)
    shard.now_ms += 1
    assert wait_of(shard) == 3_000


@pytest.mark.parametrize(("limit", "least", "most"), [(1, 1_000, 300_000), (0, 1_000, 300_000)])
def test_the_wait_is_bounded_whatever_the_figures(shard: Shard, limit: int, least: int, most: int) -> None:
    shard.add(*(shard.job() for _ in range(100)))
    shard.lease(99)
    of_tenant(shard, limit)
    assert least <= wait_of(shard) <= most
    shard.now_ms -= 3_600_000  # a clock that stepped back
    assert least <= wait_of(shard) <= most
