"""Fairness as the real store deals it out: exact shares with declared costs, the bound with settled estimates."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import redis

from queueapp.policies.room import Limits
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.records import Completed, NewJob
from queueapp.store.store import Store
from tests.model.pair import Clock, Pair
from tests.model.witness import lag_bound

WEIGHTS = {"ant": 1.0, "bee": 2.0, "cat": 4.0}


def test_weights_1_2_4_give_exactly_1000_2000_4000(store: Store) -> None:
    """7,000 leases of declared cost 1 by three workers that take turns, with batches of all sizes."""
    store.configure(1, pool=PoolConf(), scopes=[ScopeLimits(tenant=t, weight=w) for t, w in WEIGHTS.items()])
    numbers = itertools.count()
    for tenant, weight in WEIGHTS.items():
        store.enqueue(
            [
                NewJob(id=f"{next(numbers):022d}", task="demo.t", tenant=tenant, payload=b"{}", fingerprint="f", cost=1)
                for _ in range(int(weight * 1000) + 50)
            ]
        )
    served: Counter[str] = Counter()
    turns, left = itertools.count(1), 7000
    for turn in turns:
        want = min(left, 1 + (turn * 37) % 100)
        jobs = store.check_and_lease(f"w{turn % 3}", turn, want=want, begin=want, lease_ms=60_000).jobs
        served.update(job.tenant for job in jobs)
        left -= len(jobs)
        done = [Completed(id=job.id, attempts=job.attempts, run_ms=turn % 50) for job in jobs]
        assert set(store.complete(done)) == {"done"}
        for one, two in itertools.combinations(WEIGHTS, 2):
            lag = abs(served[one] / WEIGHTS[one] - served[two] / WEIGHTS[two])
            assert lag <= lag_bound((1, 1), (WEIGHTS[one], WEIGHTS[two]))
        if not left:
            break
    assert served == {"ant": 1000, "bee": 2000, "cat": 4000}


@pytest.mark.parametrize("seed", range(3))
def test_settled_estimates_stay_within_the_bound(redis_client: redis.Redis, namespace: str, seed: int) -> None:
    """Nobody declares a cost; run times differ by tenant up to a hundredfold; eight slots, some work given back."""
    chance, clock = random.Random(seed), Clock()
    pair = Pair(Store(redis_client, ShardKeys(namespace, "shares", seed), clock_ms=clock), clock, "tiered")
    run_times = {"ant": (1, 20), "bee": (100, 900), "cat": (5, 2000)}
    for tenant, weight in WEIGHTS.items():
        pair.configure(tenant, "", Limits(weight=weight))
        for _ in range(6):
            pair.enqueue([(tenant, "main", 0.0, 0, "start", f"demo.{tenant}", 0, 0, 0, ())] * 100)
    service = dict.fromkeys(WEIGHTS, 0.0)
    largest = dict.fromkeys(WEIGHTS, 0.0)
    most: Counter[str] = Counter()
    lows: dict[tuple[str, str], float] = {}
    highs: dict[tuple[str, str], float] = {}
    for _ in range(500):
        before = {flight.leased.id for flight in pair.flying}
        pair.lease(8 - len(pair.flying))
        for flight in pair.flying:
            if flight.leased.id not in before:
                service[flight.leased.tenant] += flight.charge.charged
                largest[flight.leased.tenant] = max(largest[flight.leased.tenant], flight.charge.charged)
        flying = Counter(flight.leased.tenant for flight in pair.flying)
        most |= flying
        index = chance.randrange(len(pair.flying))
        ended = pair.flying[index]
        tenant, charged = ended.leased.tenant, ended.charge.charged
        run_ms = chance.randint(*run_times[tenant])
        clock.now_ms += run_ms
        if chance.random() < 0.1:
            pair.requeue([index])
            service[tenant] -= charged
        else:
            pair.finish([index], run_ms, 0.0, None, fails=False)
            service[tenant] += run_ms - charged
            largest[tenant] = max(largest[tenant], run_ms)
        assert all(pair.tree.tenant_runnable(one) for one in WEIGHTS)
        for pair_of in itertools.combinations(WEIGHTS, 2):
            one, two = pair_of
            difference = service[one] / WEIGHTS[one] - service[two] / WEIGHTS[two]
            lows[pair_of] = min(lows.get(pair_of, 0.0), difference)
            highs[pair_of] = max(highs.get(pair_of, 0.0), difference)
            bound = lag_bound((largest[one], largest[two]), (WEIGHTS[one], WEIGHTS[two]), (most[one], most[two]))
            assert highs[pair_of] - lows[pair_of] <= bound * (1 + 1e-9)
    assert pair.store.verify() == []
