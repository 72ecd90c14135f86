"""A leader with a store dispatches in the order of the reference tree, job by job, under every policy of Python.

What the leader is told by the store moves its mirror; the tree is driven directly. Nothing changes while the leader
makes a call: then, and only then, the order is exact to the job. A leader may be replaced at any moment.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis

from queueapp.policies.charge import Charge
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES, PYTHON, find
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from queueapp.scheduler.dispatching import Dispatcher
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.leader_records import Term
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, NewJob
from queueapp.store.store import Store
from tests.model.own_policies import OWN
from tests.model.pair import LONG_LEASE_MS, Clock

RULES = [*sorted(PYTHON), *sorted(OWN)]
TENANTS = ("ant", "bee", "cat", "dog")
LANES = ("main", "other")
_shards = itertools.count(1)


@dataclass
class Ground:
    """One shard with a leader, and the tree that says what is right."""

    store: Store
    reads: Reads
    clock: Clock
    rule: str
    tree: Tree = field(init=False)
    window: int = 0
    version: int = 0
    number: int = 0
    order: list[tuple[str, str]] = field(default_factory=list)
    flying: dict[str, Charge] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tree = Tree(find(self.rule, OWN))
        self.configure_pool()
        self.lead()

    def configure_pool(self) -> None:
        self.version += 1
        pool = PoolConf(policy=self.rule, dispatch="scheduled", window=max(1, self.window), cost_unit="units")
        self.store.configure(self.version, pool=pool)

    def in_force(self) -> tuple[PoolConf, int]:
        """What the leader reads: the window of this step, which needs no call of `configure`."""
        pool = PoolConf(policy=self.rule, dispatch="scheduled", window=self.window, cost_unit="units")
        return pool, self.reads.in_force()[1]

    def live_slots(self, live_ms: int) -> int:
        return 0

    def weights(self, tenants: Sequence[str]) -> dict[str, float]:
        return self.reads.weights(tenants)

    def lead(self) -> None:
        """A new leader; whoever led before is fenced and keeps nothing more."""
        self.clock.now_ms += 20_000
        self.number += 1
        self.term: Term = self.store.lead_acquire(f"leader{self.number}", f"{self.number:032x}", 10_000)
        self.leader = Dispatcher("pool", self.store, lambda: self, own=lambda: OWN)

    def hand_over(self) -> None:
        """The leader keeps what its policy holds and gives up."""
        self.leader.let_go()
        self.lead()

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        """New jobs, which the leader admits in one batch."""
        self.store.enqueue(jobs)
        last: Any = self.store.client.hget(self.store.keys["marks"], "seq")
        base = int(last) - len(jobs)
        with self.tree.together():
            for place, job in enumerate(jobs):
                self.tree.push(
                    Candidate(
                        id=job.id,
                        tenant=job.tenant,
                        lane=job.lane,
                        seq=base + place + 1,
                        priority=job.priority,
                        cost=max(1.0, job.cost),
                        ready_ms=self.clock.now_ms,
                    )
                )
        self.turn()

    def turn(self) -> None:
        while self.leader.round(self.term, told=True):
            pass

    def run(self, count: int) -> None:
        """`count` more may be dispatched; a worker takes all of them."""
        self.window = len(self.flying) + count
        self.turn()
        self.number += 1
        leased = self.store.check_and_lease("worker", self.number, want=100, begin=0, lease_ms=LONG_LEASE_MS).jobs
        wanted = [charge for charge in (self.tree.pick() for _ in range(count)) if charge is not None]
        self.order += [(job.tenant, job.id) for job in leased]
        assert [(job.tenant, job.lane, job.id) for job in leased] == [(c.tenant, c.lane, c.id) for c in wanted]
        self.flying |= {charge.id: charge for charge in wanted}
        self.attempts |= {job.id: job.attempts for job in leased}
        self.window = len(self.flying)

    def finish(self, chosen: Sequence[str]) -> None:
        self.store.complete([Completed(id=one, attempts=self.attempts[one], run_ms=1) for one in chosen])
        for one in chosen:
            self.tree.release(self.flying.pop(one).id)
        self.window = len(self.flying)

    def limit(self, tenant: str, lane: str, limits: Limits) -> None:
        self.version += 1
        scope = ScopeLimits(
            tenant=tenant, lane=lane, weight=limits.weight, max_in_flight=limits.ceiling, paused=limits.paused
        )
        self.store.configure(self.version, scopes=[scope])
        self.tree.configure(tenant, lane, limits)
        self.turn()

    def forget(self) -> None:
        """The shard's keys go, so that a thousand examples do not fill the server."""
        for page in self.store.client.scan_iter(f"{self.store.keys.prefix.replace('{', '[{]')}*", 1000):
            self.store.client.unlink(page)

    def drain(self) -> None:
        while len(self.tree) and self.tree.root.walk:
            self.run(7)
            self.finish([*self.flying])


@pytest.fixture
def ground(redis_client: redis.Redis, namespace: str) -> Callable[[str], Ground]:
    def make(rule: str) -> Ground:
        clock, keys = Clock(), ShardKeys(namespace, "leader", next(_shards))
        return Ground(Store(redis_client, keys, clock_ms=clock), Reads(redis_client, keys), clock, rule)

    return make


_ids = itertools.count(1)


def new_jobs(chance: random.Random, count: int) -> list[NewJob]:
    return [
        NewJob(
            id=f"{next(_ids):022d}",
            task="demo.short",
            tenant=chance.choice(TENANTS),
            lane=chance.choice(LANES),
            payload=b"{}",
            fingerprint="f",
            priority=chance.choice([0, 0, 0, 5, -3]),
            cost=chance.choice([1.0, 1.0, 3.0, 20.0, 77.5, 120.0]),
        )
        for _ in range(count)
    ]


def traffic(ground: Ground, chance: random.Random, steps: int, *, limits: bool, leaders: bool) -> None:
    for _ in range(steps):
        roll = chance.random()
        if roll < 0.35:
            ground.enqueue(new_jobs(chance, chance.randint(1, 12)))
        elif roll < 0.65:
            ground.run(chance.randint(1, 9))
        elif roll < 0.85 and ground.flying:
            ground.finish(chance.sample([*ground.flying], chance.randint(1, len(ground.flying))))
        elif roll < 0.93 and limits:
            lane = chance.choice(["", "", *LANES])
            asked = Limits(weight=chance.choice([0.5, 1.0, 3.0]), ceiling=None, paused=False)
            ground.limit(chance.choice(TENANTS), lane, asked)
        elif leaders:
            ground.hand_over()
    ground.drain()


def compare(ground: Callable[[str], Ground], rule: str, seeds: Iterable[int], steps: int, *, leaders: bool) -> None:
    """One example for each seed; every other one has weights that change."""
    for seed in seeds:
        made = ground(rule)
        traffic(made, random.Random(seed), steps, limits=seed % 2 == 0, leaders=leaders)
        if seed % 10 == 0:  # it reads every key of the server
            assert made.store.verify() == [], f"seed {seed}"
        made.forget()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("first", range(0, 200, 100))
def test_the_leader_dispatches_in_the_order_of_the_reference(
    ground: Callable[[str], Ground], rule: str, first: int
) -> None:
    most = 100 if rule in PYTHON else 10
    compare(ground, rule, range(first, first + most), 9, leaders=False)


@pytest.mark.parametrize("rule", RULES)
def test_and_so_it_does_when_it_goes_on(ground: Callable[[str], Ground], rule: str) -> None:
    compare(ground, rule, range(2), 80, leaders=False)


@pytest.mark.parametrize("rule", RULES)
def test_the_order_goes_on_as_if_nothing_had_happened_under_new_leaders(
    ground: Callable[[str], Ground], rule: str
) -> None:
    compare(ground, rule, range(6), 25, leaders=True)


@pytest.mark.thorough
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rule", RULES)
def test_the_order_for_long(ground: Callable[[str], Ground], rule: str) -> None:
    compare(ground, rule, range(1_000, 3_000), 20, leaders=False)
    compare(ground, rule, range(3_000, 3_200), 40, leaders=True)


def test_every_policy_of_python_is_compared() -> None:
    assert set(RULES) == (set(POLICIES) - {"fifo", "priority", "edf", "wfq", "aging", "tiered", "ring"}) | set(OWN)
