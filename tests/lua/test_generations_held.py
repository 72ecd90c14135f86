"""A change of policy moves what did not stand in the walk: what is paused, at its ceiling, or waits for a key."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import ScopeLimits
from queueapp.store.records import Completed
from tests.lua.generations import POLICIES, change, drained, moved_over, state
from tests.lua.harness import Shard, completed
from tests.lua.keyed import keyed, waiters


def paused_things(shard: Shard) -> list[str]:
    """A paused tenant, a paused lane, a tenant and a lane at their ceilings, a job that waits for a key."""
    shard.store.configure(
        5,
        scopes=[
            ScopeLimits(tenant="paused", paused=True),
            ScopeLimits(tenant="half", lane="off", paused=True),
            ScopeLimits(tenant="full", max_in_flight=1),
            ScopeLimits(tenant="half", lane="full", max_in_flight=1),
        ],
    )
    shard.add(shard.job("full"), shard.job("half", lane="full"), keyed(shard, "k", tenant="half"))
    assert len(shard.lease(3)) == 3
    ids = shard.add(
        *(shard.job("paused", lane=lane) for lane in ("main", "x")),
        *(shard.job("half", lane=lane) for lane in ("off", "full", "main")),
        shard.job("full"),
        keyed(shard, "k", tenant="half"),
        keyed(shard, "k", tenant="key"),
    )
    assert shard.lease(1, "w2")
    assert shard.lease(1, "w2") == []
    assert waiters(shard, "k") != []
    return [job_id for job_id in ids if state(shard, job_id) == "pending"]


def lift(shard: Shard, version: int) -> None:
    scopes = [("paused", ""), ("half", "off"), ("full", ""), ("half", "full")]
    shard.store.configure(version, scopes=[ScopeLimits(tenant=t, lane=lane, clear=True) for t, lane in scopes])


@pytest.mark.parametrize("before", POLICIES)
@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_what_is_paused_full_or_parked_moves_too(shard: Shard, before: str, when: str) -> None:
    """Whenever its limits go: before the first share, between two, or when all is done."""
    change(shard, before, 1)
    ids = paused_things(shard)
    after = "fifo" if before != "fifo" else "tiered"
    change(shard, after, 6)
    assert shard.store.verify() == []
    if when == "before":
        lift(shard, 7)
    shard.store.rerank(1)
    assert shard.store.verify() == []
    if when == "between":
        lift(shard, 7)
    while shard.store.rerank(1).more:
        assert shard.store.verify() == []
    if when == "after":
        lift(shard, 7)
    for worker in ("w1", "w2"):
        held = shard.snapshot().get(f"held:{worker}", ())
        shard.store.complete([Completed(id=job_id.decode(), attempts=1, run_ms=1) for job_id in held])
    order = []
    while found := shard.lease(3):
        order += [job.id for job in found]
        shard.store.complete([completed(job) for job in found])
    assert sorted(order) == sorted(ids)


def test_limits_that_go_after_the_scan_has_begun_expose_what_they_held(shard: Shard) -> None:
    """The page of `limits` that had them may be over, or yet to come without them."""
    shard.store.configure(
        1, scopes=[ScopeLimits(tenant="a", lane="x", paused=True), ScopeLimits(tenant="b", paused=True)]
    )
    ids = shard.add(shard.job("a", lane="x"), shard.job("b"))
    change(shard, "fifo")
    shard.store.configure(
        3, scopes=[ScopeLimits(tenant="a", lane="x", clear=True), ScopeLimits(tenant="b", clear=True)]
    )
    shard.client.hset(shard.keys["conf"], "old", b"tiered|deadline|60000|2|s|0")
    moved_over(shard)
    assert sorted(drained(shard)) == sorted(ids)


def test_what_tenants_without_work_left_behind_goes_too(shard: Shard) -> None:
    """Tags of a tenant that is not even known any more, and of one that is forgotten while jobs move."""
    keep = {"result_ttl_ms": 0, "result_max": 0, "dead_ttl_ms": 0, "dead_max": 0, "tenants": 0}
    x, y = ([shard.job(tenant, lane=lane, cost=90) for tenant in ("gone", "going")] for lane in "xy")
    shard.add(*x, *(shard.job("stays", cost=1) for _ in range(20)))
    left, last = shard.add(*y)
    shard.store.complete([completed(job) for job in shard.lease(6)])
    shard.store.cancel([left])
    shard.store.trim(**keep)
    assert {"tags", "ltags:gone", "ltags:going"} <= shard.snapshot().keys()
    assert b"gone" not in dict(shard.snapshot()["tenants"])
    change(shard, "fifo")
    shard.store.rerank(1)
    shard.store.cancel([last])
    shard.store.trim(**keep)
    moved_over(shard)
