"""The store's Lua and the pure reference lease the same jobs in the same order, under any traffic.

An example is one traffic of its own: random calls on an empty shard until it is drained, every lease compared, the
shard recounted. Each policy has more than 200 in the usual run (hypothesis looks for small ones, seeds make busy ones)
and more than 2,000 in the thorough one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueapp.policies.registry import DIRECT
from queueapp.policies.room import Limits
from queueapp.policies.tokens import DispatchRate
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Tier
from queueapp.store.store import Store
from tests.model.keysets import KEYS
from tests.model.pair import LONG_LEASE_MS, Clock, Pair, Wanted
from tests.model.traffic import Event

TENANTS = ("ant", "bee", "cat")
LANES = ("main", "other")
RULES = [*sorted(DIRECT - {"edf", "aging"}), "edf:deadline", "edf:latest_start", "aging:300"]
_shards = itertools.count(1)

tenants, lanes = st.sampled_from(TENANTS), st.sampled_from(LANES)
weights = st.sampled_from([0.001, 0.3, 1.0, 1.0, 2.0, 4.0, 7.7, 1000.0])
costs = st.sampled_from([0.0, 0.0, 1.0, 2.5, 50.0, 333.3])
indices = st.lists(st.integers(0, 10**6), min_size=1, max_size=4)
new_job = st.tuples(
    tenants,
    lanes,
    costs,
    st.sampled_from([0, 0, 0, 7, -3, 100, -100]),
    st.sampled_from(["start", "start", "continue"]),
    st.sampled_from(["demo.short", "demo.long"]),
    st.sampled_from([0, 0, 0, 0, 30, 500]),
    st.sampled_from([0, 0, 1, 70, 5000, 5000, 900_000]),
    st.sampled_from([0, 0, 0, 0, 0, 50, 9000]),
    st.sampled_from([(), (), (), (("a", 1),), (("a", 2),), (("b", 1),), (("a", 1), ("b", 2)), (("b", 1), ("c", 1))]),
)
run_ms = st.sampled_from([0, 1, 7, 40, 333, 5000])
set_cost = st.sampled_from([0.0, 0.0, 0.0, 1.0, 99.5])
limits = st.builds(
    Limits,
    weight=weights,
    ceiling=st.sampled_from([None, None, 0, 1, 3]),
    paused=st.sampled_from([False, False, False, True]),
    min_share=st.sampled_from([0, 0, 1, 2, 5]),
)
steps = st.one_of(
    st.tuples(st.just("enqueue"), st.lists(new_job, min_size=1, max_size=8)),
    st.tuples(st.just("enqueue"), st.lists(new_job, min_size=1, max_size=8)),
    st.tuples(st.just("lease"), st.integers(1, 6), st.sampled_from([LONG_LEASE_MS, LONG_LEASE_MS, 100])),
    st.tuples(st.just("lease"), st.integers(1, 6), st.just(LONG_LEASE_MS)),
    st.tuples(st.just("complete"), indices, run_ms, set_cost),
    st.tuples(st.just("complete"), indices, run_ms, set_cost),
    st.tuples(st.just("fail"), indices, run_ms, set_cost, st.sampled_from([None, 1, 400])),
    st.tuples(st.just("requeue"), indices),
    st.tuples(st.just("extend"), indices),
    st.tuples(st.just("cancel"), indices),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 60, 400, 9000])),
    st.just(("recover",)),
    st.just(("promote",)),
    st.just(("redrive",)),
    st.tuples(st.just("key"), st.sampled_from(KEYS), st.sampled_from([None, 0, 1, 3]), st.booleans()),
    st.tuples(st.just("configure"), tenants, st.one_of(st.just(""), lanes), limits),
    st.tuples(st.just("pool"), st.sampled_from([None, None, 1, 4]), st.sampled_from([False, False, False, True])),
)


def dense(
    chance: random.Random,
    length: int,
    tenants: Sequence[str] = TENANTS,
    lanes: Sequence[str] = LANES,
    *,
    keyed: bool = True,
) -> list[Event]:
    """Traffic that keeps the shard busy: more is enqueued than leased, limits come and go, finishes come in batches."""
    return [_dense_event(chance, tenants, lanes, keyed=keyed) for _ in range(length)]


def _dense_event(chance: random.Random, tenants: Sequence[str], lanes: Sequence[str], *, keyed: bool) -> Event:
    chosen = [chance.randrange(10**6) for _ in range(chance.randint(1, 5))]
    ran, cost = chance.choice([0, 1, 7, 40, 333, 5000]), chance.choice([0.0, 0.0, 0.0, 1.0, 99.5])
    roll = chance.random()
    if roll < 0.22:
        return ("enqueue", [_dense_job(chance, tenants, lanes, keyed=keyed) for _ in range(chance.randint(1, 6))])
    if roll < 0.47:
        return ("lease", chance.randint(1, 5), chance.choice([LONG_LEASE_MS, LONG_LEASE_MS, LONG_LEASE_MS, 100]))
    if roll < 0.67:
        return ("complete", chosen, ran, cost)
    if roll < 0.77:
        tenant, lane = chance.choice(tenants), chance.choice(["", "", *lanes])
        ceiling, paused = chance.choice([None, None, 1, 2, 3, 0]), chance.random() < 0.15
        return (
            "configure",
            tenant,
            lane,
            Limits(
                weight=chance.choice([0.3, 1.0, 2.0, 7.7]),
                ceiling=ceiling,
                paused=paused,
                min_share=chance.choice([0, 0, 1, 3]),
            ),
        )
    if roll < 0.87:
        return ("wait", chance.choice([1, 20, 60, 400, 9000]))
    if roll < 0.90:
        return ("fail", chosen, ran, cost, chance.choice([None, 1, 400]))
    return chance.choice(
        [
            ("requeue", chosen),
            ("extend", chosen),
            ("cancel", chosen),
            ("recover",),
            ("promote",),
            ("redrive",),
            ("key", chance.choice(KEYS), chance.choice([None, 0, 1, 2, 3]), chance.random() < 0.5),
            ("pool", chance.choice([None, None, 4]), chance.random() < 0.1),
        ]
    )


def _dense_job(chance: random.Random, tenants: Sequence[str], lanes: Sequence[str], *, keyed: bool) -> Event:
    return (
        chance.choice(tenants),
        chance.choice(lanes),
        chance.choice([0.0, 0.0, 1.0, 2.5, 333.3]),
        chance.choice([0, 0, 0, 7, -100]),
        chance.choice(["start", "start", "continue"]),
        chance.choice(["demo.short", "demo.long"]),
        chance.choice([0, 0, 0, 0, 500]),
        chance.choice([0, 0, 1, 70, 5000, 5000, 900_000]),
        chance.choice([0, 0, 0, 0, 0, 0, 50, 9000]),
        _dense_keys(chance) if keyed else (),
    )


def _dense_keys(chance: random.Random) -> tuple[tuple[str, int], ...]:
    """None for half of the jobs; else one to three keys in sets that repeat."""
    if chance.random() < 0.5:
        return ()
    names = chance.choice(["a", "b", "ab", "abd", "cd"])
    own = chance.choice([1, 1, 2, 3]) if names in ("a", "ab") else 1  # several limits for the key a
    return tuple((name, own if name == "a" else 2 if name == "b" else 1) for name in names)


def play(pair: Pair, events: list[Event]) -> None:
    """One call per event, on both sides."""
    for event in events:
        match event:
            case ("enqueue", list(jobs)):
                pair.enqueue(jobs)
            case ("lease", int(want), int(lease_ms)):
                pair.lease(want, lease_ms)
            case ("complete", list(chosen), int(ran), float(cost)):
                pair.finish(chosen, ran, cost, None, fails=False)
            case ("fail", list(chosen), int(ran), float(cost), retry_ms):
                pair.finish(chosen, ran, cost, retry_ms, fails=True)
            case ("requeue", list(chosen)):
                pair.requeue(chosen)
            case ("extend", list(chosen)):
                pair.extend(chosen)
            case ("cancel", list(chosen)):
                pair.cancel(chosen)
            case ("wait", int(ms)):
                pair.clock.now_ms += ms
            case ("recover",):
                pair.recover()
            case ("promote",):
                pair.promote()
            case ("redrive",):
                pair.redrive()
            case ("key", str(name), limit, bool(clear)):
                pair.configure_key(name, limit, clear=clear)
            case ("key", str(name), limit, bool(clear), rate):
                pair.configure_key(name, limit, clear=clear, dispatch=rate)
            case ("configure", str(tenant), str(lane), Limits() as changed):
                pair.configure(tenant, lane, replace(changed, min_share=0) if lane else changed)
            case ("pool", ceiling, bool(paused)):
                pair.configure_pool(ceiling, paused=paused)
    pair.drain()


@pytest.fixture
def fresh_pair(redis_client: redis.Redis, namespace: str) -> Callable[[str], Pair]:
    """Makes a pair on a shard that nobody has used."""

    def make(rule: str) -> Pair:
        clock = Clock()
        keys = ShardKeys(namespace, "parity", next(_shards))
        return Pair(Store(redis_client, keys, clock_ms=clock), clock, rule)

    return make


@pytest.mark.parametrize("rule", RULES)
@given(events=st.lists(steps, min_size=5, max_size=40))
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_store_leases_in_the_order_of_the_reference(
    fresh_pair: Callable[[str], Pair], rule: str, events: list[Event]
) -> None:
    pair = fresh_pair(rule)
    play(pair, events)
    assert pair.store.verify() == []


def compare(fresh_pair: Callable[[str], Pair], rule: str, seeds: Iterable[int], length: int) -> None:
    """One example for each seed; of every other one no job has keys."""
    for seed in seeds:
        pair = fresh_pair(rule)
        play(pair, dense(random.Random(seed), length, keyed=seed % 2 == 0))
        assert pair.store.verify() == [], f"seed {seed}"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", range(0, 180, 60))
def test_dense_traffic_keeps_the_order(fresh_pair: Callable[[str], Pair], rule: str, first: int) -> None:
    compare(fresh_pair, rule, range(first, first + 60), 40)


@pytest.mark.parametrize("rule", RULES)
def test_dense_traffic_keeps_the_order_when_it_goes_on(fresh_pair: Callable[[str], Pair], rule: str) -> None:
    compare(fresh_pair, rule, range(6), 250)


@pytest.mark.parametrize("rule", RULES)
def test_many_tenants_and_lanes_keep_the_order(fresh_pair: Callable[[str], Pair], rule: str) -> None:
    """More than one call reads ahead at either level, and more tags than one call drops.

    No job has keys: more sub-lanes would step aside than in one call.
    """
    pair = fresh_pair(rule)
    tenants, lanes = [f"t{number}" for number in range(180)], [f"lane{number}" for number in range(30)]
    chance = random.Random(1)
    pair.enqueue([_dense_job(chance, tenants, ["main"], keyed=False) for _ in range(240)])
    pair.enqueue([_dense_job(chance, tenants[:2], lanes, keyed=False) for _ in range(200)])
    play(pair, dense(chance, 250, tenants, lanes[:2], keyed=False))
    assert pair.store.verify() == []


@pytest.mark.parametrize("rule", RULES)
def test_a_ceiling_that_nobody_reaches_changes_no_order(fresh_pair: Callable[[str], Pair], rule: str) -> None:
    """Three jobs of a tenant go back to their lanes in one call; a job with keys of one lane is the first of them.

    Where lanes take turns, the first to enter is the one to which the first job without keys came, whether or not
    slots are counted for the other, which got one back before.
    """
    orders = []
    for ceiling in (None, 9):
        pair = fresh_pair(rule)
        pair.configure("ant", "other", Limits(ceiling=ceiling))
        for lane, keys in (("other", ()), ("main", ()), ("other", (("a", 1),))):
            pair.enqueue([_job("ant", lane, keys)])
            pair.lease(1)
        pair.requeue(range(3))
        pair.drain()
        assert pair.store.verify() == []
        orders.append(pair.order)
    assert orders[0] == orders[1]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", range(0, 24, 12))
def test_dispatch_rates_keep_the_order(fresh_pair: Callable[[str], Pair], rule: str, first: int) -> None:
    """Rates of tenants, lanes and keys come, go and change; who has no token leaves the walk and comes back in time."""
    for seed in range(first, first + 12):
        pair, chance = fresh_pair(rule), random.Random(seed)
        play(pair, [rated(chance, event) for event in dense(chance, 50, keyed=seed % 2 == 0)])
        assert pair.store.verify() == [], f"seed {seed}"


def rated(chance: random.Random, event: Event) -> Event:
    rate = DispatchRate(
        rate=chance.choice([1, 3, 7, 50]), period_ms=chance.choice([20, 400, 1_000]), burst=chance.choice([1, 1, 2, 5])
    )
    match event:
        case ("configure", tenant, lane, Limits() as changed) if chance.random() < 0.7:
            return ("configure", tenant, lane, replace(changed, dispatch=rate))
        case ("key", name, limit, bool(clear)):
            return ("key", name, limit, clear, rate if chance.random() < 0.7 else None)
        case ("complete", *_) if chance.random() < 0.2:
            return ("configure", chance.choice(TENANTS), chance.choice(["", *LANES]), Limits(dispatch=rate))
        case ("complete", *_) if chance.random() < 0.1:
            return ("key", chance.choice(KEYS), None, False, rate)
    return event


def _job(tenant: str, lane: str, keys: tuple[tuple[str, int], ...]) -> Wanted:
    return (tenant, lane, 1.0, 0, "start", "demo.short", 0, 0, 0, keys)


@pytest.mark.parametrize("rule", RULES)
def test_more_sub_lanes_than_step_aside_in_one_call(fresh_pair: Callable[[str], Pair], rule: str) -> None:
    """They came while the key was free. Their lane is passed over in that call, and under an order their tenant."""
    crowded = 0
    for seed in range(5):
        chance, pair = random.Random(seed), fresh_pair(rule)
        for tenant in TENANTS:
            ceiling, min_share = chance.choice([None, None, 2, 5]), chance.choice([0, 0, 1, 3])
            pair.configure(tenant, "", Limits(weight=chance.choice([0.3, 1.0]), ceiling=ceiling, min_share=min_share))
        pair.enqueue([_crowding_job(chance) for _ in range(80)])
        for _ in range(8):
            pair.lease(chance.randint(1, 5))
        play(pair, dense(chance, 20))
        assert pair.store.verify() == [], f"seed {seed}"
        crowded += pair.crowded
    assert crowded > 0


def _crowding_job(chance: random.Random) -> Wanted:
    """Four of five have a key that two may hold, and another that hardly anybody shares."""
    keys: tuple[tuple[str, int], ...] = ()
    if chance.random() < 0.8:
        keys = (("a", 2), (f"own{chance.randrange(30)}", 1))
    tier: Tier = "start" if chance.random() < 0.5 else "continue"
    cost, priority = chance.choice([0.0, 1.0, 333.3]), chance.choice([0, 0, 7, -100])
    return (chance.choice(TENANTS), chance.choice(LANES), cost, priority, tier, "demo.short", 0, 5000, 0, keys)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rule", RULES)
def test_a_share_of_long_dense_traffic_keeps_the_order(fresh_pair: Callable[[str], Pair], rule: str) -> None:
    compare(fresh_pair, rule, range(3_000, 3_040), 60)
    compare(fresh_pair, rule, range(160, 164), 400)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", RULES)
def test_dense_traffic_keeps_the_order_for_long(fresh_pair: Callable[[str], Pair], rule: str) -> None:
    compare(fresh_pair, rule, range(1_000, 3_000), 60)
    compare(fresh_pair, rule, range(100, 160), 400)
