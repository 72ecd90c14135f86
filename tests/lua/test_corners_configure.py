"""configure: what a change of ceilings, pauses or policy must put right, page by page and at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queueapp.store import calls
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import LeasedJob
from tests.lua.harness import LEASE_MS, Shard, completed

SCOPES = ["pool", "tenant", "lane"]


def ceiling(scope: str, value: int | None) -> tuple[PoolConf | None, list[ScopeLimits]]:
    """The configuration that gives the pool, the tenant acme or its lane main a ceiling."""
    if scope == "pool":
        return PoolConf(max_in_flight=value), []
    return None, [ScopeLimits(tenant="acme", lane="main" if scope == "lane" else "", max_in_flight=value)]


def slots_of(scope: str) -> str:
    return {"pool": "slots:p", "tenant": "slots:t:acme", "lane": "slots:l:acme|main"}[scope]


def first_page(shard: Shard, version: int, pool: PoolConf | None, scopes: Sequence[ScopeLimits] = ()) -> str:
    """Sends the first page only, as a caller that dies after it; the cursor of the next page."""
    return shard.store._run(calls.configure(version, pool, scopes, "0", shard.now_ms))


def many_leases(shard: Shard, count: int = 600, waiting: int = 400) -> list[LeasedJob]:
    """More leases than one page of the back-fill reads."""
    shard.add(*(shard.job() for _ in range(count + waiting)))
    leased = [job for _ in range(count // 100) for job in shard.lease(100)]
    assert len(leased) == count
    return leased


@pytest.mark.parametrize("scope", SCOPES)
def test_a_ceiling_that_goes_takes_its_slots_along(shard: Shard, scope: str) -> None:
    shard.store.configure(1, pool=ceiling(scope, 5)[0], scopes=ceiling(scope, 5)[1])
    shard.add(shard.job(), shard.job())
    shard.lease(2)
    assert len(shard.snapshot()[slots_of(scope)]) == 2
    pool, scopes = ceiling(scope, None)
    shard.store.configure(2, pool=pool, scopes=scopes)
    assert slots_of(scope) not in shard.snapshot()


@pytest.mark.parametrize("scope", SCOPES)
def test_a_ceiling_that_changes_needs_no_second_back_fill(shard: Shard, scope: str) -> None:
    """Its slots are complete: the new value is in force after one page, with nothing suspended in between."""
    many_leases(shard)
    pool, scopes = ceiling(scope, 700)
    shard.store.configure(1, pool=pool, scopes=scopes)
    assert first_page(shard, 2, *ceiling(scope, 600)) == "0"
    assert shard.lease(10) == []


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("version", [1, 2], ids=["repeat", "newer"])
def test_a_back_fill_that_is_begun_anew_still_counts_everything(shard: Shard, scope: str, version: int) -> None:
    many_leases(shard)
    pool, scopes = ceiling(scope, 599)
    assert first_page(shard, 1, pool, scopes) != "0"
    shard.store.configure(version, pool=pool, scopes=scopes)
    assert shard.lease(10) == []


@pytest.mark.parametrize("scope", SCOPES)
def test_a_ceiling_applies_when_its_back_fill_is_done_and_not_before(shard: Shard, scope: str) -> None:
    """Half the slots say nothing about how much runs."""
    running = many_leases(shard)
    pool, scopes = ceiling(scope, 3)
    assert first_page(shard, 1, pool, scopes) != "0"
    assert "wake" in shard.snapshot(), "what is runnable stays so"
    assert len(shard.lease(10)) == 10
    shard.store.configure(1, pool=pool, scopes=scopes)
    assert shard.lease(10) == []
    assert len(shard.snapshot()[slots_of(scope)]) == len(running) + 10


@pytest.mark.parametrize("scope", SCOPES)
def test_what_ends_during_a_back_fill_leaves_no_slot(shard: Shard, scope: str) -> None:
    """A slot of the first page, whose job ends before the last one, would block the scope for good."""
    running = many_leases(shard, waiting=0)
    pool, scopes = ceiling(scope, 3)
    assert first_page(shard, 1, pool, scopes) != "0"
    shard.store.complete([completed(job) for job in running])
    shard.store.configure(1, pool=pool, scopes=scopes)
    assert slots_of(scope) not in shard.snapshot()
    shard.add(*(shard.job() for _ in range(5)))
    assert len(shard.lease(5)) == 3


def test_pauses_act_with_the_first_page(shard: Shard) -> None:
    """The caller dies after the first page of a long back-fill: what it unpaused runs, what it paused does not."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant="back", paused=True)])
    many_leases(shard, waiting=0)
    shard.add(shard.job("back"), *(shard.job("gone", lane=f"lane{number}") for number in range(5)))
    scopes = [
        ScopeLimits(tenant="back"),
        ScopeLimits(tenant="gone", paused=True),
        ScopeLimits(tenant="acme", max_in_flight=3),
    ]
    assert first_page(shard, 2, None, scopes) != "0"
    assert [job.tenant for job in shard.lease(5)] == ["back"]
    shard.store.configure(2, scopes=scopes)


def test_a_raised_ceiling_of_the_pool_wakes_a_worker(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(max_in_flight=1))
    shard.add(shard.job(), shard.job())
    shard.lease()
    assert "wake" not in shard.snapshot()
    shard.store.configure(2, pool=PoolConf(max_in_flight=2))
    assert shard.snapshot()["wake"] == [(b"w", 0.0)]


def test_a_pause_of_the_pool_disarms_and_its_end_wakes_a_worker(shard: Shard) -> None:
    shard.add(shard.job())
    shard.store.configure(1, pool=PoolConf(paused=True))
    assert "wake" not in shard.snapshot()
    shard.add(shard.job())
    assert "wake" not in shard.snapshot(), "nor does new work wake anybody"
    shard.store.configure(2, pool=PoolConf())
    assert shard.snapshot()["wake"] == [(b"w", 0.0)]


def test_a_slot_that_is_freed_under_a_paused_pool_wakes_nobody(shard: Shard) -> None:
    shard.store.configure(1, pool=PoolConf(max_in_flight=1))
    shard.add(shard.job(), shard.job())
    (job,) = shard.lease()
    shard.store.configure(2, pool=PoolConf(max_in_flight=1, paused=True))
    shard.store.complete([completed(job)])
    assert "wake" not in shard.snapshot()
    shard.store.configure(3, pool=PoolConf(max_in_flight=1))
    assert "wake" in shard.snapshot()


def test_a_new_policy_drops_the_tags_of_the_old_one_at_once(shard: Shard) -> None:
    shard.add(shard.job("a", cost=100), *(shard.job("b", cost=1) for _ in range(3)))
    shard.store.complete([completed(job) for job in shard.lease(4)])
    assert dict(shard.snapshot()["tags"]) == {b"a": 100.0}
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    assert "tags" not in shard.snapshot()
    assert b"V:a" not in shard.snapshot()["policy"]


@pytest.mark.parametrize(("before", "after"), [("tiered", "fifo"), ("fifo", "tiered")])
def test_a_lost_job_is_ranked_by_the_policy_of_the_day(shard: Shard, before: str, after: str) -> None:
    """It was leased under another policy: it keeps its place in line, not its old rank."""
    shard.store.configure(1, pool=PoolConf(policy=before))
    (lost,) = shard.add(shard.job(priority=50))
    shard.lease()
    shard.store.configure(2, pool=PoolConf(policy=after))
    (later,) = shard.add(shard.job(priority=50 if after == "tiered" else 0))
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    assert [job.id for job in shard.lease(2, "w2")] == [lost, later]
