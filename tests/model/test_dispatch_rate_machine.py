"""Dispatch rates under anything that may happen between two calls: each lease has a token of every scope of its own,
and whoever has all of them, and may run otherwise, is leased by the next call that has room.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import redis

from queueapp.codec import digest
from queueapp.policies.keyed import SWEEP_MS
from queueapp.policies.registry import DIRECT, PYTHON
from queueapp.policies.tokens import DispatchRate, Tokens
from queueapp.store.configuration import KeyLimits, PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import Reads
from queueapp.store.records import KeyUse, LeasedJob, NewJob, Returned
from queueapp.store.store import Store
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.model.pair import Clock, told
from tests.model.test_scheduled_parity import Ground, new_jobs

STEPS, CHECKED_EVERY = 90, 6
OFFERED_WITHIN_MS = 2 * SWEEP_MS
Scope = tuple[str, str]
"""(tenant, ""), (tenant, lane), or ("", key)."""
RATES = [
    DispatchRate(rate=rate, period_ms=period_ms, burst=burst)
    for rate, period_ms, burst in ((1, 400, 1), (3, 1_000, 2), (7, 100, 1), (2, 3_000, 4), (50, 1_000, 5))
]


@dataclass
class Site:
    """One random run. Rates of keys stand, those of tenants and lanes come, change and go."""

    shard: Shard
    random: random.Random
    scheduled: bool
    policy: str
    rates: dict[Scope, DispatchRate] = field(default_factory=dict)
    limits: dict[Scope, ScopeLimits] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    jobs: dict[str, NewJob] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    running: dict[str, LeasedJob] = field(default_factory=dict)
    leased: dict[Scope, list[int]] = field(default_factory=lambda: defaultdict(list))
    idle: dict[str, int] = field(default_factory=dict)
    held_back: int = 0
    seq: int = 0

    def __post_init__(self) -> None:
        self.configure_pool()
        for name in "xy":
            rate = self.rates["", name] = self.random.choice(RATES)
            self.shard.versions += 1
            change = KeyLimits(pattern=digest(name), text=name, dispatch_rate=told(rate))
            self.shard.store.configure(self.shard.versions, keys=[change])
        self.configure("ant", "", rate=RATES[1])

    def configure_pool(self) -> None:
        self.shard.versions += 1
        dispatch: Any = "scheduled" if self.scheduled else "direct"
        self.shard.store.configure(self.shard.versions, pool=PoolConf(policy=self.policy, dispatch=dispatch))
        if self.scheduled:
            self.term = self.shard.term()

    def configure(self, tenant: str, lane: str, *, rate: DispatchRate | None, **options: Any) -> None:
        self.shard.versions += 1
        limits = ScopeLimits(tenant=tenant, lane=lane, dispatch_rate=told(rate), **options)
        self.shard.store.configure(self.shard.versions, scopes=[limits])
        self.limits[tenant, lane] = limits
        self.rates.pop((tenant, lane), None)
        if rate is not None:
            self.rates[tenant, lane] = rate
            self.tokens.free((tenant, lane), rate, self.shard.now_ms)
        self.leased.pop((tenant, lane), None)  # another rate, another count

    def scopes(self, job_id: str) -> list[Scope]:
        job = self.jobs[job_id]
        found = [(job.tenant, ""), (job.tenant, job.lane), *(("", key.text) for key in job.keys)]
        return [scope for scope in found if scope in self.rates]

    def may_start(self, job_id: str) -> bool:
        job = self.jobs[job_id]
        named = [self.limits.get((job.tenant, lane)) for lane in ("", job.lane)]
        if any(limits is not None and limits.paused for limits in named):
            return False
        return all(self.tokens.free(scope, self.rates[scope], self.shard.now_ms) for scope in self.scopes(job_id))

    # -- steps --------------------------------------------------------------------------------------------------

    def enqueue(self) -> None:
        jobs = []
        for _ in range(self.random.randrange(1, 6)):
            names = self.random.choice(["", "", "x", "y", "xy"])
            keys = tuple(KeyUse(digest=digest(name), text=name, limit=99, pattern=digest(name)) for name in names)
            jobs.append(
                self.shard.job(
                    self.random.choice(["ant", "bee", "cat"]),
                    lane=self.random.choice(["main", "slow"]),
                    keys=tuple(sorted(keys, key=lambda key: key.digest)),
                    tier=self.random.choice(["start", "continue"]),
                    priority=self.random.choice([0, 0, 5]),
                    max_crashes=99,
                )
            )
        self.jobs |= {job.id: job for job in jobs}
        self.pending |= set(self.shard.add(*jobs))

    def work(self) -> None:
        want, store = self.random.choice([1, 3, 60]), self.shard.store
        if self.scheduled:
            self.shard.admit(self.term)
            self.call(0)
            left = want
            while left > 0 and (answer := store.dispatch(self.term, left, 1_000)).more:
                left -= answer.jobs
            taken = self.call(100)
        else:
            taken = self.call(want)
        for job in taken:
            for scope in self.scopes(job.id):
                rate = self.rates[scope]
                assert self.tokens.free(scope, rate, self.shard.now_ms) >= 1, f"{scope} had no token"
                self.tokens.take(scope, rate, self.shard.now_ms)
                self.leased[scope].append(self.shard.now_ms)
            self.pending.remove(job.id)
            self.running[job.id] = job
        if len(taken) < want:
            self.nobody_waits_for_nothing({key.text for job in taken for key in self.jobs[job.id].keys})
            self.held_back += len(self.pending) > 0

    def nobody_waits_for_nothing(self, used: set[str]) -> None:
        """Whoever may start was leased. A token of a key is offered to one sub-lane after the other, a second later at
        most, where the tenant or lane of the first cannot use it; `used` are the keys that somebody was leased with.
        """
        idle = {job_id for job_id in self.pending if self.may_start(job_id)}
        assert [job_id for job_id in sorted(idle) if not self.jobs[job_id].keys] == [], "it may start"
        idle = {job_id for job_id in idle if not used & {key.text for key in self.jobs[job_id].keys}}
        self.idle = {job_id: self.idle.get(job_id, self.shard.now_ms) for job_id in idle}
        assert [job_id for job_id, since in self.idle.items() if self.shard.now_ms - since > OFFERED_WITHIN_MS] == []

    def call(self, want: int) -> list[LeasedJob]:
        """A worker's call, which may be repeated. Nothing is begun, so that nobody becomes a suspect."""
        found: list[LeasedJob] = []
        while True:
            self.seq += 1
            call = partial(self.shard.store.cycle, "w", self.seq, want=want, begin=0, lease_ms=LEASE_MS)
            answer = call()
            if self.random.random() < 0.2:
                assert {job.id for job in call().jobs} == {job.id for job in answer.jobs}
            found += answer.jobs
            want -= len(answer.jobs)
            if not answer.more or want <= 0:
                return found

    def some(self) -> list[LeasedJob]:
        ids = self.random.sample(sorted(self.running), min(len(self.running), 3))
        return [self.running.pop(job_id) for job_id in ids]

    def step(self) -> None:
        store = self.shard.store
        roll = self.random.randrange(20)
        if roll < 5:
            self.enqueue()
        elif roll < 11:
            self.shard.now_ms += self.random.choice([0, 1, 7, 50, 333, 400, 1_000])
            self.work()
        elif roll < 13:
            store.complete([completed(job) for job in self.some()])
        elif roll == 13:
            back = self.some()
            store.partition_requeue([Returned(id=job.id, attempts=job.attempts) for job in back])
            self.pending |= {job.id for job in back}
        elif roll == 14:
            back = self.some()
            store.fail([failed(job, retry_ms=0) for job in back])
            self.shard.now_ms += 1
            store.promote_due()
            self.pending |= {job.id for job in back if job.errors + 1 < job.max_attempts}
        elif roll == 15:
            chosen = self.random.sample(sorted(self.pending), min(len(self.pending), 2))
            store.cancel(chosen)
            self.pending -= set(chosen)
        elif roll < 18:
            rate = self.random.choice([*RATES, None])
            options = {"paused": self.random.random() < 0.2, "weight": self.random.choice([0.5, 1.0, 4.0])}
            self.configure(self.random.choice(["ant", "bee"]), self.random.choice(["", "main"]), rate=rate, **options)
        elif roll == 18:
            self.shard.now_ms += LEASE_MS
            self.pending |= set(self.running)
            self.running.clear()
            while store.partition_recover().more:
                pass
        elif not self.scheduled:
            self.policy = self.random.choice(sorted(DIRECT))
            self.configure_pool()
            while store.rerank().more:
                pass

    def check(self) -> None:
        assert self.shard.store.verify() == []
        for scope, moments in self.leased.items():
            rate = self.rates[scope]
            for first, begin in enumerate(moments):
                for last in range(first, len(moments)):
                    count, time_ms = last - first + 1, moments[last] - begin
                    # Over any time: the burst, and what the rate gives.
                    assert (count - rate.burst) * rate.period_ms <= (time_ms + 1) * rate.rate


@pytest.mark.parametrize("scheduled", [False, True], ids=["direct", "scheduled"])
@pytest.mark.parametrize(("policy", "seed"), [(policy, seed) for seed, policy in enumerate(sorted(DIRECT))])
def test_whatever_happens_no_lease_is_above_a_rate_and_none_is_held_back_without_one(
    redis_client: redis.Redis, shard_keys: ShardKeys, policy: str, seed: int, scheduled: bool
) -> None:
    site = Site(Shard(redis_client, shard_keys), random.Random(seed), scheduled, policy)
    for number in range(STEPS):
        site.step()
        if number % CHECKED_EVERY == 0:
            site.check()
    site.check()
    assert site.held_back > 3


@pytest.mark.parametrize("rule", sorted(PYTHON))
def test_a_leader_that_chooses_itself_goes_on_beside_who_is_throttled(
    ground: Callable[[str], Ground], rule: str
) -> None:
    """It hears that a lane is blocked and when it may run again; nobody else loses a job by it."""
    led = ground(rule)
    rate = DispatchRate(rate=2, period_ms=1_000, burst=3)
    scopes = [
        ScopeLimits(tenant="ant", dispatch_rate=told(rate)),
        ScopeLimits(tenant="bee", lane="other", dispatch_rate=told(rate)),
    ]
    led.version += 1
    led.store.configure(led.version, scopes=scopes)
    tenants = ["ant", "bee", "cat"] * 20
    jobs = [replace(job, tenant=who) for job, who in zip(new_jobs(random.Random(3), 60), tenants, strict=True)]
    led.store.enqueue(jobs)
    free = [job for job in jobs if (job.tenant, job.lane) == ("bee", "main")]
    led.window = 100
    led.turn()
    seen: Counter[str] = Counter()
    for number in range(6):
        led.number += 1
        leases = led.store.cycle("w", led.number, want=100, begin=0, lease_ms=10**9)
        seen.update(job.tenant for job in leases.jobs)
        if number == 0:
            assert seen == {"ant": 3, "bee": len(free) + 3, "cat": 20}
        assert led.store.verify() == []
        led.clock.now_ms += 500
        led.store.promote_due()
        led.turn()
    assert seen == {"ant": 3 + 5, "bee": 20, "cat": 20}


@pytest.fixture
def ground(redis_client: redis.Redis, shard_keys: ShardKeys) -> Callable[[str], Ground]:
    clock = Clock()
    store, reads = Store(redis_client, shard_keys, clock_ms=clock), Reads(redis_client, shard_keys)
    return lambda rule: Ground(store, reads, clock, rule)
