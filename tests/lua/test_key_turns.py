"""Who of several tenants that share a concurrency key is next: by turn where tenants take turns, else by rank."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.codec import digest
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import LeasedJob
from tests.lua.harness import Shard, completed
from tests.lua.keyed import keyed, left, use, waiters

rotating = pytest.mark.parametrize("policy", ["tiered", "ring"])
ordered = pytest.mark.parametrize("policy", ["fifo", "priority", "edf", "aging", "wfq"])


def begin(shard: Shard, policy: str, **weights: float) -> None:
    scopes = [ScopeLimits(tenant=tenant, weight=weight) for tenant, weight in weights.items()]
    shard.store.configure(1, pool=PoolConf(policy=policy, cost_unit="unit"), scopes=scopes)


def many(shard: Shard, tenant: str, count: int, **options: Any) -> list[str]:
    return shard.add(*(keyed(shard, "gateway", tenant=tenant, **{"cost": 1, **options}) for _ in range(count)))


def served(shard: Shard, count: int, want: int = 1, running: list[LeasedJob] | None = None) -> str:
    """First letters of the tenants of the next `count` jobs under the key; each ends before the next is leased."""
    order = ""
    running = list(running or ())
    while len(order) < count:
        shard.store.complete([completed(job) for job in running])
        running = shard.lease(want)
        assert running, "the key is free, and nobody gets it"
        order += "".join(job.tenant[0] for job in running if job.tenant != "zed")
    shard.store.complete([completed(job) for job in running])
    return order[:count]


@pytest.mark.parametrize("want", [1, 5])
@rotating
def test_tenants_with_a_backlog_take_turns(shard: Shard, policy: str, want: int) -> None:
    """The one that came while the key was full, behind 30 of the other."""
    begin(shard, policy)
    many(shard, "big", 31)
    first = shard.lease(1)
    many(shard, "small", 10)
    assert served(shard, 20, want, first) == "sb" * 10
    assert shard.store.verify() == []


@rotating
def test_they_take_turns_while_the_pool_serves_others(shard: Shard, policy: str) -> None:
    """Between two jobs under the key many of another tenant run: the walk has forgotten whose turn it was."""
    begin(shard, policy)
    shard.add(*(shard.job("zed", cost=1) for _ in range(600)))
    many(shard, "ant", 31)
    (first,) = [job for job in shard.lease(3) if job.tenant == "ant"]
    many(shard, "bee", 31)
    assert served(shard, 40, 12, [first]) == "ba" * 20


@rotating
def test_nobody_is_passed_over_however_many_share_a_key(shard: Shard, policy: str) -> None:
    """40 tenants, far more than one wake moves, each with two sub-lanes: one job of each, then the next of each."""
    begin(shard, policy)
    tenants = [chr(ord("A") + number) for number in range(40)]
    for _ in range(3):
        for tenant in tenants:
            shard.add(*(shard.job(tenant, cost=1, keys=(use("gateway"), use(own))) for own in ("x" + tenant, tenant)))
    order = served(shard, 120)
    for first in range(0, 120, 40):
        assert len(set(order[first : first + 40])) >= 39, "the first of all was in nobody's turn"


def test_turns_go_by_weight(shard: Shard) -> None:
    begin(shard, "tiered", heavy=3, light=1)
    many(shard, "heavy", 60)
    many(shard, "light", 60)
    order = served(shard, 40, 2)
    assert abs(order.count("h") - 30) <= 1
    assert max(len(run) for run in order.split("l")) <= 4


def test_turns_go_by_cost(shard: Shard) -> None:
    begin(shard, "tiered")
    many(shard, "long", 30, cost=4)
    many(shard, "short", 60, cost=1)
    order = served(shard, 50, 2)
    assert abs(order.count("s") - 40) <= 2


@rotating
def test_priority_does_not_cross_tenants(shard: Shard, policy: str) -> None:
    """Urgent jobs of one tenant that keep coming do not keep the other's from the key."""
    begin(shard, policy)
    many(shard, "big", 2, priority=5)
    running = shard.lease(1)
    many(shard, "small", 10)
    order = ""
    for _ in range(20):
        many(shard, "big", 1, priority=5)
        shard.store.complete([completed(job) for job in running])
        running = shard.lease(5)
        order += "".join(job.tenant[0] for job in running)
    assert order == "sb" * 10


def test_within_a_tenant_priority_decides(shard: Shard) -> None:
    begin(shard, "tiered")
    many(shard, "ant", 1)
    first = shard.lease(1)
    for number, priority in enumerate((0, 9, 5)):
        keys = (use("gateway"), use(f"customer {number}"))
        shard.add(shard.job("ant", cost=1, priority=priority, keys=keys))
    shard.store.complete([completed(job) for job in first])
    seen = []
    for _ in range(3):
        (job,) = shard.lease(3)
        seen.append(job.priority)
        shard.store.complete([completed(job)])
    assert seen == [9, 5, 0]


@rotating
def test_who_comes_late_has_saved_nothing_up(shard: Shard, policy: str) -> None:
    begin(shard, policy)
    many(shard, "ant", 41)
    first = shard.lease(1)
    order = served(shard, 19, 1, first)
    (running,) = shard.lease(1)
    many(shard, "bee", 20)
    assert order == "a" * 19
    assert served(shard, 20, 1, [running]) in ("ba" * 10, "ab" * 10)


@rotating
def test_who_joins_two_that_took_turns_for_long_is_not_served_before_both(shard: Shard, policy: str) -> None:
    begin(shard, policy)
    many(shard, "ant", 41)
    many(shard, "bee", 41)
    order = served(shard, 39, 2)
    (running,) = shard.lease(2)
    many(shard, "cat", 20)
    assert order.count("a") == 20
    after = served(shard, 30, 2, [running])
    assert [after.count(letter) for letter in "abc"] == [10, 10, 10]


@rotating
def test_a_turn_that_another_takes_is_not_lost(shard: Shard, policy: str) -> None:
    """The one that was woken finds the key taken by a job that came meanwhile: it keeps its turn."""
    begin(shard, policy)
    many(shard, "ant", 3)
    (one,) = shard.lease(1)
    many(shard, "bee", 3)
    many(shard, "cat", 3)
    shard.store.complete([completed(one)])
    assert waiters(shard, "gateway") == ["cat", "ant"], "bee was woken, in the order of names"
    shard.store.configure(2, scopes=[ScopeLimits(tenant="bee", paused=True)])
    many(shard, "aaa", 1)
    (two,) = shard.lease(1)
    assert two.tenant == "aaa"
    shard.store.configure(3, scopes=[ScopeLimits(tenant="bee")])
    assert shard.lease(1) == []
    assert waiters(shard, "gateway") == ["bee", "cat", "ant"]
    shard.store.complete([completed(two)])
    (three,) = shard.lease(1)
    assert three.tenant == "bee"


@ordered
def test_by_rank_the_first_submitted_is_next_whoever_it_is_of(shard: Shard, policy: str) -> None:
    begin(shard, policy)
    many(shard, "big", 11)
    first = shard.lease(1)
    many(shard, "small", 5)
    want = "bs" * 5 + "b" * 5 if policy == "wfq" else "b" * 10 + "s" * 5
    assert sorted(served(shard, 15, 1, first)) == sorted(want)
    assert policy == "wfq" or left(shard) == []


def test_what_is_kept_of_turns_is_bounded_and_goes_with_the_last_waiter(shard: Shard) -> None:
    """150 tenants come one after the other, each with one job: what the turns have passed is not remembered."""
    begin(shard, "tiered")
    many(shard, "ant", 152)
    many(shard, "bee", 151)
    key = shard.keys[f"turns:{digest('gateway')}"]
    for number in range(150):
        many(shard, f"t{number}", 1)
        served(shard, 3, 2)
        assert shard.client.zcard(key) <= 10
    assert shard.client.zcard(key) > 1
    served(shard, 3, 2)
    assert shard.store.verify() == []
    assert left(shard) == []
