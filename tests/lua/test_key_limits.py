"""Limits of concurrency keys: the tasks' own, those that are configured for a pattern, and several for one key."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import PoolConf
from tests.lua.harness import Shard, completed
from tests.lua.keyed import configure_key, keyed, use, waiters


def test_c077_a_key_without_a_configured_limit_has_the_tasks_own(shard: Shard) -> None:
    shard.add(*(keyed(shard, "a", limit=2) for _ in range(5)))
    assert len(shard.lease(9)) == 2


@pytest.mark.parametrize(("limit", "more"), [(5, 3), (None, 8), (2, 0), (1, 0), (0, 0)])
def test_c077_a_limit_changes_while_jobs_run(shard: Shard, limit: int | None, more: int) -> None:
    """Lowering waits for those that run; raising, and taking the limit away, act at once."""
    shard.add(*(keyed(shard, "a", limit=2, tenant=f"t{number}") for number in range(10)))
    running = shard.lease(20)
    assert len(running) == 2
    configure_key(shard, 1, "a", limit)
    assert len(shard.lease(20)) == more
    if more == 0:
        shard.store.complete([completed(job) for job in running])
        assert len(shard.lease(20)) == limit


@pytest.mark.parametrize("limit", [0, 7, None])
def test_c077_a_limit_that_goes_away_leaves_the_tasks_own(shard: Shard, limit: int | None) -> None:
    configure_key(shard, 1, "a", limit)
    shard.add(*(keyed(shard, "a", limit=2) for _ in range(9)))
    running = shard.lease(1)
    configure_key(shard, 2, "a", None, clear=True)
    running += shard.lease(9)
    assert len(running) == 2
    assert not shard.client.exists(shard.keys["limits"])


def test_a_limit_acts_on_every_key_of_its_pattern(shard: Shard) -> None:
    for customer in ("1", "2"):
        keys = (use(f"customer {customer}", limit=1, pattern="customer"),)
        shard.add(*(shard.job(keys=keys) for _ in range(5)))
    assert len(shard.lease(9)) == 2
    configure_key(shard, 1, "customer", 3)
    assert len(shard.lease(9)) == 4


def test_two_tasks_may_give_one_key_two_limits(shard: Shard) -> None:
    wide, narrow = keyed(shard, "a", limit=2), keyed(shard, "a", limit=1, tenant="bee")
    shard.add(wide, keyed(shard, "a", limit=2))
    first, second = shard.lease(9)
    shard.add(narrow, keyed(shard, "a", limit=2, tenant="cat"))
    shard.store.complete([completed(first)])
    (third,) = shard.lease(9)
    assert third.tenant == "cat"
    shard.store.complete([completed(second), completed(third)])
    (fourth,) = shard.lease(9)
    assert fourth.tenant == "bee"


@pytest.mark.parametrize("policy", ["tiered", "ring", "fifo", "wfq"])
def test_a_waiter_with_a_larger_limit_is_found_behind_any_number_with_a_smaller_one(shard: Shard, policy: str) -> None:
    """70 customers' jobs compare with 1, five of bee with 10: while one job runs, bee's go on, and only bee's."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(*(keyed(shard, "gateway", limit=10, tenant="bee") for _ in range(10)))
    running = shard.lease(10)
    for number in range(70):
        gateway, own = use("gateway", 1, "narrow"), use(f"customer {number}", 1, "customer")
        shard.add(shard.job(f"ant{number % 7}", keys=(gateway, own)))
    shard.add(*(keyed(shard, "gateway", limit=10, tenant="bee") for _ in range(5)))
    assert shard.lease(9) == []
    shard.store.complete([completed(job) for job in running[:9]])
    assert [job.tenant for job in shard.lease(9)] == ["bee"] * 5
    assert shard.store.verify() == []


def test_of_many_limits_for_one_key_the_highest_are_looked_at_first(shard: Shard) -> None:
    shard.add(*(keyed(shard, "gateway", limit=100, tenant="bee") for _ in range(99)))
    running = shard.lease(99)
    shard.add(keyed(shard, "gateway", limit=99, tenant="cat"))
    for limit in range(1, 80):
        shard.add(keyed(shard, "gateway", limit=limit))
    shard.store.complete([completed(running[0])])
    assert [job.tenant for job in shard.lease(9)] == ["cat"]
    assert shard.lease(9) == []


def test_a_configured_limit_goes_before_all_limits_of_tasks(shard: Shard) -> None:
    """It is the pattern's: of two patterns that read the same each has its own."""
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(shard.job("ant", keys=(use("a", 1, "other"),)), shard.job("bee", keys=(use("a", 1, "a"),)))
    configure_key(shard, 1, "other", 0)
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert two.tenant == "bee"
    shard.store.complete([completed(two)])
    assert shard.lease(9) == []
    configure_key(shard, 2, "other", 0, clear=True)
    (three,) = shard.lease(9)
    assert three.tenant == "ant"


@pytest.mark.parametrize(("first", "left"), [(3, ["bee"]), (2, [])])
def test_of_two_limits_that_have_room_the_first_in_line_is_offered_a_slot(
    shard: Shard, first: int, left: list[str]
) -> None:
    """One runs still: behind one more there is room under 3, and none under 2."""
    shard.store.configure(1, pool=PoolConf(policy="fifo"))
    shard.add(*(keyed(shard, "a", limit=3) for _ in range(3)))
    running = shard.lease(3)
    shard.add(keyed(shard, "a", limit=first, tenant="cat"), keyed(shard, "a", limit=5 - first, tenant="bee"))
    shard.store.complete([completed(job) for job in running[:2]])
    assert waiters(shard, "a") == left
