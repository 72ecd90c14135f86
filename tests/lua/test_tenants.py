"""`tenants`: who had work here, by how much waits; the count is exact, and who is idle is forgotten beyond a number."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.configuration import ScopeLimits
from tests.lua.harness import Shard, completed, failed

KEEP: dict[str, Any] = {"result_ttl_ms": 10**9, "result_max": 10**6, "dead_ttl_ms": 10**9, "dead_max": 10**6}


def tenants(shard: Shard) -> dict[str, int]:
    return {name.decode(): int(score) for name, score in shard.snapshot().get("tenants", [])}


def test_waiting_jobs_are_counted_through_their_lives(shard: Shard) -> None:
    shard.add(*(shard.job("a") for _ in range(3)), shard.job("b", delay_ms=5), shard.job("b", max_attempts=2))
    assert tenants(shard) == {"a": 3, "b": 2}
    jobs = shard.lease(4)
    assert tenants(shard) == {"a": 0, "b": 1}
    (of_b,) = [job for job in jobs if job.tenant == "b"]
    assert shard.store.fail([failed(of_b, retry_ms=5)]) == ["retry"]
    assert tenants(shard) == {"a": 0, "b": 2}
    shard.store.complete([completed(job) for job in jobs if job.tenant == "a"])
    shard.now_ms += 5
    shard.store.promote_due()
    shard.store.complete([completed(job) for job in shard.lease(9)])
    assert tenants(shard) == {"a": 0, "b": 0}, "seen, with nothing waiting"


def test_the_overview_names_those_with_most_and_counts_those_with_any(shard: Shard) -> None:
    shard.add(*(shard.job(tenant) for tenant, number in (("a", 1), ("b", 3), ("c", 2)) for _ in range(number)))
    shard.store.complete([completed(job) for job in shard.lease(1)])
    seen = shard.reads.overview()
    assert (dict(seen.tenants), seen.tenant_count) == ({"b": 3, "c": 2}, 2)


def test_a_page_tells_waiting_dead_and_what_a_ceiling_counts(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="b", max_in_flight=5)])
    shard.add(*(shard.job("a") for _ in range(2)), *(shard.job("b") for _ in range(4)), shard.job("c"))
    jobs = shard.lease(3)
    shard.store.fail([failed(job) for job in jobs if job.tenant != "b"])
    entries, total = shard.reads.tenants(offset=0, count=2)
    assert total == 3
    found = {entry.tenant: (entry.waiting, entry.dead, entry.active) for entry in entries}
    assert found == {"b": (3, 0, 1), "a": (1, 1, None)}
    assert [entry.tenant for entry in shard.reads.tenants(offset=2, count=2)[0]] == ["c"]


def test_idle_tenants_are_remembered_up_to_a_number(shard: Shard) -> None:
    shard.add(*(shard.job(f"t{number}") for number in range(12)))
    for job in shard.lease(10):
        shard.store.complete([completed(job)])
    shard.store.trim(**KEEP, tenants=12)
    assert len(tenants(shard)) == 12
    shard.store.trim(**KEEP, tenants=5)
    left = tenants(shard)
    assert len(left) == 5
    assert sorted(left.values()) == [0, 0, 0, 1, 1]
    shard.store.trim(**KEEP, tenants=0)
    assert list(tenants(shard).values()) == [1, 1], "never one with work"


def test_a_tenant_with_dead_letters_stays_listed(shard: Shard) -> None:
    shard.add(shard.job("a"), shard.job("b"))
    one, two = shard.lease(2)
    shard.store.trim(**KEEP, tenants=0)
    assert tenants(shard) == {}
    shard.store.fail([failed(one)])
    shard.store.complete([completed(two)])
    shard.store.trim(**KEEP, tenants=0)
    assert tenants(shard) == {"a": 0}
    shard.store.discard([one.id])
    shard.store.trim(**KEEP, tenants=0)
    assert tenants(shard) == {}


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_windows_of_the_trim_reach_every_idle_tenant(shard: Shard, limit: int) -> None:
    """Some keep dead letters and stand in the way; the window moves with the clock."""
    shard.add(*(shard.job(f"t{number:02}") for number in range(20)))
    jobs = shard.lease(20)
    shard.store.fail([failed(job) for job in jobs[:10]])
    shard.store.complete([completed(job) for job in jobs[10:]])
    for _ in range(60):
        shard.store.trim(**KEEP, tenants=0, limit=limit)
        shard.now_ms += 1
    assert len(tenants(shard)) == 10


@pytest.mark.dirty_store
@pytest.mark.parametrize(
    ("damage", "finding"), [({"acme": 7}, "tenants has acme at 7, counted 1"), ({"zeta": 1}, "tenants has zeta at 1")]
)
def test_verify_sees_a_wrong_count(shard: Shard, damage: dict[str, float], finding: str) -> None:
    shard.add(shard.job())
    shard.client.zadd(shard.keys["tenants"], damage)
    assert [text for text in shard.store.verify() if finding in text]
    shard.client.zrem(shard.keys["tenants"], "acme")
    assert [text for text in shard.store.verify() if "tenants lacks acme, counted 1" in text]
