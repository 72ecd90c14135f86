"""Looks at concurrency keys that somebody waits for: soon where a slot may be free, seldom where the key is full."""

from __future__ import annotations

from typing import Any

from queueapp.codec import digest
from queueapp.store.configuration import KeyLimits, ScopeLimits
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.lua.keyed import configure_key, keyed, use, waiters


def look_in_ms(shard: Shard, name: str = "a") -> float:
    """How long it is until the key is looked at again."""
    due = shard.client.zscore(shard.keys["waitkeys"], digest(name))
    assert due is not None
    return float(due) - shard.now_ms


def customers(shard: Shard, count: int) -> None:
    """Each with a job that waits for its own key, all of one pattern that is closed."""
    shard.store.configure(1, keys=[KeyLimits(pattern=digest("customer"), text="customer", max_in_flight=0)])
    for first in range(0, count, 200):
        numbers = range(first, min(first + 200, count))
        shard.add(*(shard.job(keys=(use(f"customer {number}", 1, "customer"),)) for number in numbers))


def calls(shard: Shard) -> dict[str, int]:
    stats: Any = shard.client.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(values["calls"]) for name, values in stats.items()}


def test_a_full_key_is_looked_at_ever_more_seldom(shard: Shard) -> None:
    """Nothing is expected of it: a slot that is given back is offered at once."""
    shard.add(keyed(shard, "a"))
    shard.lease(1)
    shard.add(keyed(shard, "a", tenant="ant"))
    waits = []
    for _ in range(8):
        waits.append(round(look_in_ms(shard) / 1000))
        shard.now_ms += int(look_in_ms(shard)) + 1
        shard.store.promote_due()
        assert waiters(shard, "a") == ["ant"]
    assert waits == [30, 60, 120, 240, 480, 960, 960, 960]


def test_many_closed_keys_cost_next_to_nothing(shard: Shard) -> None:
    """500 customers behind a closed pattern: in the first half minute no look at all, in ten minutes four at each."""
    customers(shard, 500)
    shard.client.config_resetstat()
    for _ in range(29):
        shard.now_ms += 1_000
        assert shard.store.promote_due().more is False
        shard.lease(5)
    assert calls(shard)["zrange"] < 29 * 20
    before = calls(shard).get("zcard", 0)
    for _ in range(600):
        shard.now_ms += 1_000
        while shard.store.promote_due().more:
            pass
    assert 500 * 3 <= calls(shard)["zcard"] - before <= 500 * 5


def test_a_key_whose_slot_may_be_lost_is_looked_at_a_second_later(shard: Shard) -> None:
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=tenant) for tenant in ("ant", "bee", "cat")))
    assert look_in_ms(shard) == 30_000
    shard.store.complete([completed(one)])
    assert look_in_ms(shard) == 1_000
    (two,) = shard.lease(9)
    shard.now_ms += 1_000
    shard.store.promote_due()
    assert int(look_in_ms(shard)) == 60_000, "the slot was taken"
    shard.store.complete([completed(two)])
    assert look_in_ms(shard) == 1_000


def test_a_worker_that_finds_nothing_comes_back_for_the_next_look(shard: Shard) -> None:
    """No scheduler runs: the offer is lost, and the workers alone repair it within a second."""
    shard.add(keyed(shard, "a"))
    (one,) = shard.lease(1)
    shard.add(*(keyed(shard, "a", tenant=tenant) for tenant in ("ant", "bee")))
    cycle = shard.store.cycle("w2", 1, want=9, begin=0, lease_ms=LEASE_MS)
    assert cycle.next_due_ms == 30_000
    shard.store.complete([completed(one)])
    shard.store.configure(1, scopes=[ScopeLimits(tenant="ant", paused=True)])
    cycle = shard.store.cycle("w2", 2, want=9, begin=0, lease_ms=LEASE_MS)
    assert (list(cycle.jobs), cycle.next_due_ms) == ([], 1_000)
    shard.now_ms += cycle.next_due_ms
    cycle = shard.store.cycle("w2", 3, want=9, begin=0, lease_ms=LEASE_MS)
    assert [job.tenant for job in cycle.jobs] == ["bee"]
    assert cycle.next_due_ms == -1


def test_a_change_of_limits_reaches_all_keys_of_its_pattern_in_bounded_calls(shard: Shard) -> None:
    """Pages of 200 keys, of which each call looks at 64; the others are due at once, in time that stands still."""
    customers(shard, 1_500)
    shard.add(keyed(shard, "a"))
    shard.lease(1)
    shard.add(keyed(shard, "a"))
    shard.client.config_resetstat()
    shard.store.configure(2, keys=[KeyLimits(pattern=digest("customer"), text="customer", clear=True)])
    pages = calls(shard)["fcall"]
    assert 1_500 / 400 < pages < 1_500 / 64
    standing = shard.client.zcard(shard.keys["q:acme|main"])
    assert standing == pages * 64
    assert look_in_ms(shard) == 30_000, "another pattern's"
    while shard.store.promote_due(100).more:
        pass
    assert shard.client.zcard(shard.keys["q:acme|main"]) == 1_500
    assert shard.store.verify() == []


def test_without_a_scheduler_the_workers_bring_all_keys_of_a_pattern_back(shard: Shard) -> None:
    customers(shard, 100)
    shard.store.configure(2, keys=[KeyLimits(pattern=digest("customer"), text="customer", clear=True)])
    for number in range(1, 7):
        cycle = shard.store.cycle("w1", number, want=0, begin=0, lease_ms=LEASE_MS)
        assert (cycle.next_due_ms == 0) == (number < 5)
    assert shard.client.zcard(shard.keys["q:acme|main"]) == 100


def test_a_limit_that_is_raised_in_vain_leaves_its_keys_alone(shard: Shard) -> None:
    shard.add(*(keyed(shard, "a", limit=2) for _ in range(5)))
    shard.lease(2)
    configure_key(shard, 1, "a", 1)
    assert waiters(shard, "a") == ["acme"]
    assert int(look_in_ms(shard)) == 60_000
