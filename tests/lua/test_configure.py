"""configure: versions, weights and pauses that act at once, ceilings that are back-filled before they apply."""

from __future__ import annotations

import pytest

from queueapp.errors import OldVersion
from queueapp.store.configuration import PoolConf, ScopeLimits
from tests.lua.harness import Shard, completed


def test_an_older_version_is_refused_without_a_trace(shard: Shard) -> None:
    shard.store.configure(5, scopes=[ScopeLimits(tenant="a", weight=2)])
    before = shard.snapshot()
    with pytest.raises(OldVersion):
        shard.store.configure(4, scopes=[ScopeLimits(tenant="a", weight=9)])
    assert shard.snapshot() == before
    shard.store.configure(5, scopes=[ScopeLimits(tenant="a", weight=2)])
    assert shard.snapshot() == before


def test_what_is_configured_can_be_read_back(shard: Shard) -> None:
    pool = PoolConf(policy="fifo", paused=True, max_in_flight=7, cost_unit="pages", default_cost=2.5, default_weight=3)
    scopes = [
        ScopeLimits(tenant="a", weight=0.1, max_in_flight=0, paused=True),
        ScopeLimits(tenant="a", lane="slow", weight=1000, max_in_flight=3),
    ]
    shard.store.configure(7, pool=pool, scopes=scopes)
    assert shard.reads.configured() == pool
    assert shard.reads.scope_limits() == {("a", ""): scopes[0], ("a", "slow"): scopes[1]}
    assert shard.reads.version() == 7
    shard.store.configure(8, scopes=[ScopeLimits(tenant="a", clear=True)])
    assert shard.reads.scope_limits().keys() == {("a", "slow")}


def test_a_weight_acts_at_once_on_what_is_queued(shard: Shard) -> None:
    shard.add(*(shard.job(tenant, cost=1) for tenant in "ab" for _ in range(60)))
    shard.store.configure(1, scopes=[ScopeLimits(tenant="a", weight=9)])
    served = [job.tenant for job in shard.lease(50)]
    assert 44 <= served.count("a") <= 46


@pytest.mark.parametrize("scope", ["pool", "tenant", "lane"])
def test_a_pause_stops_and_resumes_at_once_and_keeps_the_order(shard: Shard, scope: str) -> None:
    """C125: pause and resume lose waiting jobs or their order."""
    ids = shard.add(*(shard.job() for _ in range(10)))

    def pause(version: int, paused: bool) -> None:
        if scope == "pool":
            shard.store.configure(version, pool=PoolConf(paused=paused))
        else:
            lane = "main" if scope == "lane" else ""
            shard.store.configure(version, scopes=[ScopeLimits(tenant="acme", lane=lane, paused=paused)])

    for version in range(1, 21, 2):
        pause(version, True)
        assert shard.lease(3) == []
        assert shard.store.verify() == []
        pause(version + 1, False)
    assert [job.id for job in shard.lease(10)] == ids


def test_a_paused_tenant_comes_back_at_its_turn_not_with_credit(shard: Shard) -> None:
    shard.add(*(shard.job(tenant, cost=1) for tenant in "ab" for _ in range(200)))
    shard.store.configure(1, scopes=[ScopeLimits(tenant="a", paused=True)])
    shard.lease(100)
    shard.store.configure(2, scopes=[ScopeLimits(tenant="a", paused=False)])
    served = [job.tenant for job in shard.lease(40)]
    assert abs(served.count("a") - served.count("b")) <= 1


def test_a_pause_does_not_wash_off_what_a_tenant_was_served(shard: Shard) -> None:
    """Its finish tag waits in `tags`: a tenant that is ahead comes back at its own turn, not at V."""
    shard.add(shard.job("a", cost=100), shard.job("a", cost=1), *(shard.job("b", cost=1) for _ in range(120)))
    assert [job.tenant for job in shard.lease(2)] == ["a", "b"]
    shard.store.configure(1, scopes=[ScopeLimits(tenant="a", paused=True)])
    assert shard.snapshot()["tags"] == [(b"a", 100.0)]
    shard.lease(9)
    shard.store.configure(2, scopes=[ScopeLimits(tenant="a", paused=False)])
    assert "tags" not in shard.snapshot()
    assert {job.tenant for job in shard.lease(89)} == {"b"}
    assert "a" in {job.tenant for job in shard.lease(3)}


@pytest.mark.parametrize("scope", ["pool", "tenant", "lane"])
def test_a_ceiling_set_later_counts_what_already_runs(shard: Shard, scope: str) -> None:
    shard.add(*(shard.job() for _ in range(1_000)))
    running = [job for _ in range(6) for job in shard.lease(100)]
    if scope == "pool":
        shard.store.configure(1, pool=PoolConf(max_in_flight=599))
    else:
        lane = "main" if scope == "lane" else ""
        shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", lane=lane, max_in_flight=599)])
    assert shard.store.verify() == []
    assert shard.lease(10) == []
    shard.store.complete([completed(job) for job in running[:3]])
    assert len(shard.lease(10)) == 2


def test_c077_a_ceiling_changes_while_work_runs(shard: Shard) -> None:
    """C077: 5 to 2, 2 to 0, to none, while 5 run: no crash, lowering waits, raising acts at once."""
    shard.add(*(shard.job() for _ in range(30)))

    def ceiling(version: int, value: int | None) -> None:
        shard.store.configure(version, scopes=[ScopeLimits(tenant="acme", max_in_flight=value)])

    ceiling(1, 5)
    running = shard.lease(9)
    assert len(running) == 5
    ceiling(2, 2)
    shard.store.complete([completed(job) for job in running[:3]])
    assert shard.lease(9) == []
    ceiling(3, 0)
    shard.store.complete([completed(running[3])])
    assert shard.lease(9) == []
    ceiling(4, None)
    assert len(shard.lease(9)) == 9
    assert "slots:t:acme" not in shard.snapshot()


def test_a_policy_changes_in_place_under_an_empty_pool(shard: Shard) -> None:
    shard.add(shard.job())
    shard.store.complete([completed(job) for job in shard.lease(1)])
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    assert b"gen" not in shard.snapshot()["conf"]
    ids = shard.add(shard.job("b"), shard.job("a"))
    assert [job.id for job in shard.lease(2)] == ids
