"""Whom the scheduler's loop asks, and how often, when it is told that something of a leadership has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from queueapp.scheduler.loop import Scheduler
from queueapp.store import shards
from queueapp.store.keys import ShardKeys
from tests.unit.scheduler.test_loop import Duties


class FakePresence:
    """Every channel is confirmed when the test says so."""

    def __init__(self) -> None:
        self.confirmed: set[str] = set()
        self.tell: Callable[[str], None] = lambda prefix: None

    def on_change(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def add(self, keys: ShardKeys) -> None:
        self.confirmed.add(keys.prefix)
        self.tell(keys.prefix)

    def channel(self, keys: ShardKeys) -> str:
        return keys.prefix if keys.prefix in self.confirmed else ""

    def steady(self, keys: ShardKeys) -> str:
        return ""

    def doubt(self) -> None:
        """Nothing can be done about it here."""


def test_a_burst_of_confirmations_asks_the_store_once_for_each_pool_that_waits_for_it() -> None:
    pools = [f"p{number}" for number in range(40)]
    stores = {pool: Duties() for pool in pools}
    for pool in pools[20:]:  # led by others
        stores[pool].nonce, stores[pool].until = "another", stores[pool].clock() + 100
    presence = FakePresence()
    scheduler = Scheduler(
        "me",
        lambda: pools,
        lambda pool: cast(Any, stores[pool]),
        presence=cast(Any, presence),
        clock=stores["p0"].clock,
    )
    scheduler._find_pools()
    for _ in range(3):
        for pool in pools:
            presence.tell(shards.keys(pool).prefix)
    scheduler._lead_hurried(0.0)
    assert [len(stores[pool].asked) for pool in pools] == [1] * 40
    assert sum(scheduler.leading().values()) == 20
    for pool in pools:
        presence.tell(shards.keys(pool).prefix)
    scheduler._lead_hurried(0.0)
    assert [len(stores[pool].asked) for pool in pools] == [1] * 40, "leaders renew, standbys have nothing to say"


def test_a_shard_of_the_worker_beside_it_is_told_before_the_loop_has_found_its_pool() -> None:
    store, presence = Duties(), FakePresence()
    scheduler = Scheduler(
        "me", lambda: ["a"], lambda _: cast(Any, store), presence=cast(Any, presence), clock=store.clock
    )
    presence.add(shards.keys("a"))  # raises nothing: the thread that tells it keeps the worker's sign of life, too
    scheduler._lead_hurried(0.0)
    assert scheduler.leading() == {}
    scheduler._find_pools()
    scheduler._lead_hurried(0.0)
    assert scheduler.leading() == {"a": True}


def test_a_pool_that_is_named_often_is_looked_at_once() -> None:
    store = Duties()
    scheduler = Scheduler("me", lambda: ["a"], lambda pool: cast(Any, store), clock=store.clock)
    store.nonce, store.until = "another", store.clock() + 100
    scheduler._find_pools()
    for _ in range(50):
        scheduler.hurry("a")
    scheduler._lead_hurried(0.0)
    assert len(store.asked) == 1
