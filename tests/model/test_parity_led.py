"""Scheduled dispatch gives the order of direct dispatch: `admit` and `dispatch` against the same pure reference."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueapp.policies.keyed import SWEEP_MS
from queueapp.store.keys import ShardKeys
from queueapp.store.store import Store
from tests.model.led import LedStore
from tests.model.pair import LONG_LEASE_MS, Clock, Pair, Wanted
from tests.model.test_parity import RULES, dense, play, rated, steps
from tests.model.traffic import Event

_shards = itertools.count(1)


@pytest.fixture
def led_pair(redis_client: redis.Redis, namespace: str) -> Callable[[str], Pair]:
    """Makes a pair on a shard that nobody has used, whose dispatch is scheduled."""

    def make(rule: str) -> Pair:
        clock = Clock()
        keys = ShardKeys(namespace, "ledled", next(_shards))
        return Pair(LedStore(redis_client, keys, clock_ms=clock), clock, rule, led=True)

    return make


@pytest.fixture
def fresh_pair(redis_client: redis.Redis, namespace: str) -> Callable[[str], Pair]:
    """Makes one whose dispatch is direct."""

    def make(rule: str) -> Pair:
        clock = Clock()
        keys = ShardKeys(namespace, "direct", next(_shards))
        return Pair(Store(redis_client, keys, clock_ms=clock), clock, rule)

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


@pytest.mark.parametrize("rule", RULES)
def test_dispatch_rates_keep_the_order_under_a_leader(led_pair: Callable[[str], Pair], rule: str) -> None:
    for seed in range(5, 9):
        pair, chance = led_pair(rule), random.Random(seed)
        play(pair, [rated(chance, event) for event in dense(chance, 50, keyed=seed % 2 == 0)])
        assert pair.store.verify() == [], f"seed {seed}"


@pytest.mark.parametrize(("led", "order"), [(True, ["bee", "cat", "ant"]), (False, ["bee", "ant", "cat"])])
def test_who_is_woken_when_a_job_is_promoted_goes_first_only_where_a_leader_admits_it(
    fresh_pair: Callable[[str], Pair], led_pair: Callable[[str], Pair], led: bool, order: list[str]
) -> None:
    """Under a leader `promote_due` brings a due job to ingress, and its sweep wakes who waits for a key that is free.

    So the waiter's turn comes before that of the job, which is admitted by the next call. Where dispatch is direct it
    is one call, in which jobs without keys find their places first.
    """
    pair = (led_pair if led else fresh_pair)("ring")
    play(
        pair,
        [
            ("enqueue", [_job("ant", keys=(("d", 1),))]),
            ("lease", 1, LONG_LEASE_MS),
            ("enqueue", [_job("bee", keys=(("d", 1),)), _job("cat", keys=(("d", 1),))]),  # both wait for the key
            ("complete", [0], 1, 0.0),  # its slot is offered to the bee, which does not take it yet
            ("enqueue", [_job("ant", delay_ms=SWEEP_MS)]),
            ("wait", SWEEP_MS),
            ("promote",),
        ],
    )
    assert [pair.jobs[one].tenant for one in pair.order[1:]] == order
    assert pair.store.verify() == []


def _job(tenant: str, *, delay_ms: int = 0, keys: tuple[tuple[str, int], ...] = ()) -> Wanted:
    return (tenant, "main", 1.0, 0, "start", "demo.short", delay_ms, 0, 0, keys)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", RULES)
def test_dense_traffic_keeps_the_order_under_a_leader_for_long(led_pair: Callable[[str], Pair], rule: str) -> None:
    for seed in range(5_000, 7_000):
        pair = led_pair(rule)
        play(pair, dense(random.Random(seed), 60, keyed=seed % 2 == 0))
        assert pair.store.verify() == [], f"seed {seed}"
