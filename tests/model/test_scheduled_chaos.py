"""Scheduled dispatch under a policy of Python, with everything that may come between two calls of the leader: ceilings,
pauses, cancels, concurrency keys, lost workers, other leaders, a window that changes. The order is not promised then;
that every job comes to its end, runs under one lease at a time and no limit is overstepped, is.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import redis

from queueapp.scheduler.dispatching import READ_AGAIN_S, Dispatcher
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, Failed, LeasedJob, NewJob, Returned
from queueapp.store.store import Store
from tests.clock import Clock as Monotonic
from tests.model.keysets import key_use
from tests.model.own_policies import OWN
from tests.model.pair import Clock

TENANTS = ("ant", "bee", "cat")
LANES = ("main", "other")
_shards, _ids = itertools.count(1), itertools.count(1)


@dataclass
class Chaos:
    """One shard, its leader, and workers whose leases end by the clock."""

    store: Store
    reads: Reads
    clock: Clock
    rule: str
    chance: random.Random
    monotonic: Monotonic = field(default_factory=Monotonic)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    window: int = 4
    ceilings: dict[tuple[str, str], int | None] = field(default_factory=dict)
    flying: dict[str, LeasedJob] = field(default_factory=dict)
    added: int = 0

    def __post_init__(self) -> None:
        self.store.configure(next(self.numbers), pool=self.configured())
        self.lead()

    def configured(self) -> PoolConf:
        return PoolConf(policy=self.rule, dispatch="scheduled", window=self.window, cost_unit="units")

    def in_force(self) -> tuple[PoolConf, int]:
        return self.configured(), self.reads.in_force()[1]

    def live_slots(self, live_ms: int) -> int:
        return 0

    def weights(self, tenants: Sequence[str]) -> dict[str, float]:
        return self.reads.weights(tenants)

    def lead(self) -> None:
        self.clock.now_ms += 20_000
        number = next(self.numbers)
        self.term = self.store.lead_acquire(f"leader{number}", f"{number:032x}", 10_000)
        self.leader = Dispatcher("pool", self.store, lambda: self, own=lambda: OWN, clock=self.monotonic)

    def turn(self) -> None:
        self.monotonic.now += READ_AGAIN_S
        for _ in range(50):
            if not self.leader.round(self.term, told=True):
                return
        raise AssertionError("a hot loop")

    def add(self) -> None:
        for _ in range(self.chance.randint(1, 6)):
            names = self.chance.choice(["", "", "", "a", "ab"])
            job = NewJob(
                id=f"{next(_ids):022d}",
                task="demo.short",
                tenant=self.chance.choice(TENANTS),
                lane=self.chance.choice(LANES),
                payload=b"{}",
                fingerprint="f",
                cost=self.chance.choice([1.0, 7.0, 60.0]),
                delay_ms=self.chance.choice([0, 0, 0, 500]),
                keys=tuple(key_use(name, 1) for name in names),
            )
            self.store.enqueue([job])
            self.added += 1

    def lease(self) -> None:
        number = next(self.numbers)
        lease_ms = self.chance.choice([10**9, 10**9, 50])
        for job in self.store.check_and_lease(f"w{number}", 1, want=3, begin=3, lease_ms=lease_ms).jobs:
            if lease_ms > 50:
                assert job.id not in self.flying
                self.flying[job.id] = job

    def end(self) -> None:
        for job_id in self.chance.sample([*self.flying], min(len(self.flying), self.chance.randint(1, 4))):
            job = self.flying.pop(job_id)
            match self.chance.randrange(4):
                case 0:
                    self.store.partition_requeue([Returned(id=job.id, attempts=job.attempts)])
                case 1:
                    self.store.fail([Failed(id=job.id, attempts=job.attempts, run_ms=1, error=b"{}")])
                case _:
                    self.store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1, cost=9.0)])

    def limit(self, tenant: str, lane: str, ceiling: int | None, *, paused: bool) -> None:
        scope = ScopeLimits(tenant=tenant, lane=lane, max_in_flight=ceiling, paused=paused)
        self.store.configure(next(self.numbers), scopes=[scope])

    def step(self) -> None:
        match self.chance.randrange(12):
            case 0 | 1 | 2:
                self.add()
            case 3 | 4 | 5:
                self.turn()
            case 6 | 7:
                self.lease()
            case 8:
                self.end()
            case 9:
                tenant, lane = self.chance.choice(TENANTS), self.chance.choice(["", *LANES])
                self.limit(tenant, lane, self.chance.choice([None, 0, 1, 2]), paused=self.chance.random() < 0.2)
            case 10:
                self.clock.now_ms += self.chance.choice([60, 600, 40_000])
                self.store.partition_recover()
                self.store.promote_due()
            case 11:
                self.window = self.chance.randint(0, 8)
                if self.chance.random() < 0.4:
                    self.lead()  # the one before keeps nothing more: it was killed

    def drain(self) -> None:
        for tenant, lane in itertools.product(TENANTS, ["", *LANES]):
            self.limit(tenant, lane, None, paused=False)
        self.window = 8
        for _ in range(60):
            self.clock.now_ms += 1_100
            self.store.partition_recover()
            self.store.promote_due()
            self.turn()
            for _ in range(4):
                self.lease()
            self.end()
            self.end()
            seen = self.reads.overview()
            if not seen.waiting and not seen.active:
                return
        raise AssertionError(f"jobs are stuck: {self.reads.overview()} {self.store.peek(9)}")


@pytest.fixture
def chaos(redis_client: redis.Redis, namespace: str) -> Callable[[str, int], Chaos]:
    def make(rule: str, seed: int) -> Chaos:
        clock, keys = Clock(), ShardKeys(namespace, "chaos", next(_shards))
        return Chaos(
            Store(redis_client, keys, clock_ms=clock), Reads(redis_client, keys), clock, rule, random.Random(seed)
        )

    return make


@pytest.mark.parametrize("rule", ["drr", "lottery", "nearest"])
def test_every_job_comes_to_its_end_whatever_happens_between_the_calls(
    chaos: Callable[[str, int], Chaos], rule: str
) -> None:
    for seed in range(3):
        made = chaos(rule, seed)
        for _ in range(60):
            made.step()
        made.drain()
        seen = made.reads.overview()
        assert (seen.ended + seen.dead, seen.ingress, seen.ready) == (made.added, 0, 0), f"seed {seed}"
        assert made.store.verify() == [], f"seed {seed}"
