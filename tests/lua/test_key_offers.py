"""A slot of a concurrency key that is given back: to whom it is offered, and that no offer is lost."""

from __future__ import annotations

import pytest

from queueapp.codec import digest
from queueapp.store.configuration import PoolConf, ScopeLimits
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed
from tests.lua.keyed import configure_key, keyed, waiters


@pytest.mark.parametrize("policy", ["fifo", "priority", "edf", "aging", "wfq"])
def test_by_rank_a_slot_goes_to_the_first_that_waits_wherever_it_is(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    for tenant in ("cat", "ant", "bee"):
        shard.add(keyed(shard, "a", tenant=tenant))
    assert waiters(shard, "a") == ["cat", "ant", "bee"]
    shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["ant", "bee"]
    (two,) = shard.lease(9)
    assert two.tenant == "cat"
    assert waiters(shard, "a") == ["ant", "bee"]


@pytest.mark.parametrize("policy", ["edf", "aging", "wfq"])
def test_where_ranks_tie_a_new_head_takes_its_sub_lane_along(shard: Shard, policy: str) -> None:
    """Its place is by rank, then by submission; it stands there once."""
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(keyed(shard, "a", cost=1))
    (one,) = shard.lease(1)
    (later,) = shard.add(keyed(shard, "a", tenant="cat", cost=1, deadline_ms=START_MS + 5_000, expires_after_ms=9_000))
    shard.add(keyed(shard, "a", tenant="ant", cost=1, deadline_ms=START_MS + 5_000))
    shard.add(keyed(shard, "a", tenant="cat", cost=1, deadline_ms=START_MS + 5_000))
    assert waiters(shard, "a") == ["cat", "ant"]
    shard.store.cancel([later])
    assert waiters(shard, "a") == ["ant", "cat"]
    assert shard.store.verify() == []
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert two.tenant == "ant"


@pytest.mark.parametrize("how", ["cancel", "expire", "move_to_dlq", "met"])
def test_an_offer_that_nobody_takes_goes_to_the_next(shard: Shard, how: str) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    first, second = shard.add(
        keyed(shard, "a", tenant="ant", expires_after_ms=500), keyed(shard, "a", tenant="bee", max_attempts=1)
    )
    shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["bee"]
    shard.now_ms += 500
    if how == "cancel":
        shard.store.cancel([first])
    elif how == "move_to_dlq":
        shard.store.move_to_dlq([first], "why")
    elif how == "expire":
        shard.store.promote_due()
    elif how == "met":
        assert shard.lease(9) == []  # the walk drops it
    (two,) = shard.lease(9)
    assert two.id == second


def test_a_waiter_whose_other_key_is_full_waits_for_that_one(shard: Shard) -> None:
    shard.add(keyed(shard, "a"), keyed(shard, "b"))
    of_a, of_b = shard.lease(2)
    shard.add(keyed(shard, "a", "b", tenant="ant"), keyed(shard, "a", tenant="bee"), keyed(shard, "b", tenant="cat"))
    order = sorted("ab", key=digest)
    assert waiters(shard, order[0])[0] == "ant"
    first = of_a if order[0] == "a" else of_b
    shard.store.complete([completed(first)])
    assert waiters(shard, order[1])[0] == "ant"
    (next_one,) = shard.lease(9)
    assert next_one.tenant == ("bee" if order[0] == "a" else "cat"), "the one behind it is not held up"


def test_a_waiter_that_may_not_run_lets_the_next_one_pass(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=tenant) for tenant in ("ant", "bee", "cat")))
    shard.store.configure(
        1, scopes=[ScopeLimits(tenant="ant", paused=True), ScopeLimits(tenant="bee", max_in_flight=0)]
    )
    shard.store.complete([completed(one)])
    (two,) = shard.lease(9)
    assert two.tenant == "cat"
    shard.store.configure(2, scopes=[ScopeLimits(tenant="ant"), ScopeLimits(tenant="bee")])
    assert shard.lease(9) == []
    shard.store.complete([completed(two)])
    (three,) = shard.lease(9)
    assert three.tenant == "ant"


def test_a_wake_that_was_lost_is_repaired_by_the_sweep(shard: Shard) -> None:
    """The one that was woken is paused before it runs; a second later the next is woken, by worker or scheduler."""
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=tenant) for tenant in ("ant", "bee", "cat")))
    shard.store.complete([completed(one)])
    shard.store.configure(1, scopes=[ScopeLimits(tenant="ant", paused=True)])
    assert shard.lease(9) == []
    shard.now_ms += 999
    shard.store.promote_due()
    assert shard.lease(9) == []
    shard.now_ms += 1
    cycle = shard.store.cycle("w2", 1, want=9, begin=0, lease_ms=LEASE_MS)
    assert [job.tenant for job in cycle.jobs] == ["bee"]
    shard.store.configure(2, scopes=[ScopeLimits(tenant="bee", paused=True)])
    shard.store.complete([completed(cycle.jobs[0])])
    assert shard.client.zrange(shard.keys["walk"], 0, -1) == [b"cat"]


def test_a_slot_that_is_given_back_is_offered_once(shard: Shard) -> None:
    """Who was woken before counts although it has not run yet, and a call wakes no more than there is room for."""
    shard.add(*(keyed(shard, "a", limit=2) for _ in range(2)))
    one, two = shard.lease(9)
    shard.add(*(keyed(shard, "a", limit=2, tenant=tenant) for tenant in ("ant", "bee", "cat")))
    shard.store.complete([completed(one)])
    assert waiters(shard, "a") == ["bee", "cat"]
    shard.store.complete([completed(two)])
    assert waiters(shard, "a") == ["cat"]


def test_a_call_wakes_no_more_than_there_is_room_for(shard: Shard) -> None:
    """Two slots are given back where a lower limit leaves room for one."""
    shard.add(*(keyed(shard, "a", limit=3) for _ in range(3)))
    running = shard.lease(9)
    shard.add(*(keyed(shard, "a", limit=3, tenant=tenant) for tenant in ("ant", "bee", "cat")))
    configure_key(shard, 1, "a", 2)
    shard.store.complete([completed(job) for job in running[:2]])
    assert waiters(shard, "a") == ["bee", "cat"]


def test_a_wake_moves_eight_and_leaves_the_others_to_the_sweep_at_once(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=f"t{number:02d}") for number in range(12)))
    configure_key(shard, 1, "a", None)
    assert len(shard.lease(20)) == 8
    shard.store.promote_due()
    assert len(shard.lease(20)) == 4
