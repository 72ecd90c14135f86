"""Scheduled dispatch gives the order of direct dispatch: `admit` and `dispatch` against the same pure reference."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueapp.store.keys import ShardKeys
from tests.model.led import LedStore
from tests.model.pair import Clock, Pair
from tests.model.test_parity import RULES, dense, play, steps
from tests.model.traffic import Event

_shards = itertools.count(1)


@pytest.fixture
def led_pair(redis_client: redis.Redis, namespace: str) -> Callable[[str], Pair]:
    """Makes a pair on a shard that nobody has used, whose dispatch is scheduled."""

    def make(rule: str) -> Pair:
        clock = Clock()
        keys = ShardKeys(namespace, "ledled", next(_shards))
        return Pair(LedStore(redis_client, keys, clock_ms=clock), clock, rule)

    return make


@pytest.mark.parametrize("rule", RULES)
@given(events=st.lists(steps, min_size=5, max_size=40))
@settings(deadline=None, max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_admit_and_dispatch_give_the_order_of_the_reference(
    led_pair: Callable[[str], Pair], rule: str, events: list[Event]
) -> None:
    pair = led_pair(rule)
    play(pair, events)
    assert pair.store.verify() == []


@pytest.mark.parametrize("rule", RULES)
def test_dense_traffic_keeps_the_order_under_a_leader(led_pair: Callable[[str], Pair], rule: str) -> None:
    for seed in range(12):
        pair = led_pair(rule)
        play(pair, dense(random.Random(seed), 60, keyed=seed % 2 == 0))
        assert pair.store.verify() == [], f"seed {seed}"


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", RULES)
def test_dense_traffic_keeps_the_order_under_a_leader_for_long(led_pair: Callable[[str], Pair], rule: str) -> None:
    for seed in range(5_000, 7_000):
        pair = led_pair(rule)
        play(pair, dense(random.Random(seed), 60, keyed=seed % 2 == 0))
        assert pair.store.verify() == [], f"seed {seed}"
