"""After a change of policy the store leases in the order in which the reference would, had it been given the same jobs.

The reference is a tree of the new policy, into which the jobs are put as they come over: in the order of the old policy
where it is an order, else in turns of four jobs a lane. Whatever happens later goes on from there on both sides. A pair
changes its policy while nothing runs and nothing is held back; tests/model/test_generations.py has all the rest.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import redis

from queueapp.policies.protocol import Candidate
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree
from queueapp.store.keys import ShardKeys
from queueapp.store.store import Store
from tests.model.pair import Clock, Pair, under
from tests.model.test_parity import LANES, RULES, TENANTS, dense, play

TURN = 4
"""Jobs of a lane that come over in a row where the old policy takes turns (lua/include/moving.lua)."""
_shards = itertools.count(1)


class ChangingPair(Pair):
    """A pair whose rule changes."""

    def __init__(self, store: Store, clock: Clock, rule: str) -> None:
        super().__init__(store, clock, rule)
        self.rule = rule
        self.kept: dict[str, tuple[str, float]] = {}

    def lease(self, want: int, lease_ms: int = 10**9) -> None:
        before = len(self.flying)
        super().lease(want, lease_ms)
        for flight in self.flying[before:]:
            self.kept[flight.leased.id] = (self.rule, flight.charge.rank)

    def requeue(self, indices: Iterable[int]) -> None:
        self._returning(super().requeue, indices)

    def recover(self) -> None:
        self._returning(lambda _: super(ChangingPair, self).recover(), ())

    def _returning(self, act: Callable[[Iterable[int]], None], indices: Iterable[int]) -> None:
        """What comes back waits anew from now on; that it keeps its place is the rank's affair."""
        flying = {flight.leased.id for flight in self.flying}
        act(indices)
        for job_id in flying - {flight.leased.id for flight in self.flying}:
            self.jobs[job_id] = replace(self.jobs[job_id], ready_ms=self.clock())

    def change(self, rule: str) -> None:
        """Everything that runs is completed, every limit but weights is lifted, and the policy changes."""
        self.finish(range(len(self.flying)), 7, 0.0, None, fails=False)
        self.configure_pool(None, paused=False)
        for tenant, lane in list(self.tree.configured()):
            self.configure(tenant, lane, Limits(weight=self.tree.limits(tenant, lane).weight))
        coming = self._in_turns() if self.rule in ("tiered", "ring") else self._in_order()
        old, self.rule = self.tree, rule
        policy, pool = under(rule)
        self.tree = Tree(policy, estimate=lambda job: self.estimates.cost(self.tasks[job.id], job.tenant))
        for tenant, lane in old.configured():
            self.tree.configure(tenant, lane, old.limits(tenant, lane))
        self.pool = pool
        self.store.configure(next(self._versions), pool=pool)
        moved = 0
        while (share := self.store.rerank(10_000)).more:
            moved += share.moved
        assert moved + share.moved == len(coming)
        for job_id in self.parked:
            self.tree.park(self.jobs[job_id])
        with self._together():
            for job in coming:
                self.tree.push(job, rank=self._kept_rank(job.id))

    def _kept_rank(self, job_id: str) -> float | None:
        """That of its last lease, where the same rule gave it and its row cannot tell it again."""
        rule, rank = self.kept.get(job_id, ("", 0.0))
        return rank if rule == self.rule and (rule.startswith("aging") or rule == "edf:latest_start") else None

    def _in_order(self) -> list[Candidate]:
        found = []
        while (charge := self.tree.pick()) is not None:
            found.append(self.jobs[charge.id])
        return found

    def _in_turns(self) -> list[Candidate]:
        """As the share reads the old walk: a few jobs of its first lane, then lane and tenant go to the end."""
        queues = {
            (tenant, lane): self._queue(tenant, lane) for tenant, node in self.tree.tenants() for lane in node.walk
        }
        root = self._line(self.tree.root.walk)
        lines = {tenant: self._line(node.walk) for tenant, node in self.tree.tenants()}
        found: list[Candidate] = []
        while root:
            tenant = root.pop(0)
            lane = lines[tenant].pop(0)
            queue = queues[tenant, lane]
            found += queue[:TURN]
            del queue[:TURN]
            if queue:
                lines[tenant].append(lane)
            if lines[tenant]:
                root.append(tenant)
        return found

    @staticmethod
    def _line(walk: Iterable[str]) -> list[str]:
        return sorted(walk, key=lambda child: (walk.score(child), child))  # type: ignore[attr-defined]  # the narrower type is known here alone

    def _queue(self, tenant: str, lane: str) -> list[Candidate]:
        tiered = self.rule == "tiered"
        jobs = [self.jobs[job_id] for job_id in self.jobs if job_id in self.tree]
        jobs = [job for job in jobs if (job.tenant, job.lane) == (tenant, lane)]

        def place(job: Candidate) -> tuple[bool, int, int]:
            priority = max(-100, min(100, job.priority)) if tiered else 0
            return (tiered and job.tier != "continue", -priority, job.seq)

        return sorted(jobs, key=place)


@pytest.fixture
def fresh(redis_client: redis.Redis, namespace: str) -> Callable[[str], ChangingPair]:
    def make(rule: str) -> ChangingPair:
        clock = Clock()
        keys = ShardKeys(namespace, "change", next(_shards))
        return ChangingPair(Store(redis_client, keys, clock_ms=clock), clock, rule)

    return make


def compare(fresh: Callable[[str], ChangingPair], rule: str, seeds: Iterable[int], length: int) -> None:
    """From `rule` to each other one and further, with traffic before, between and after."""
    for seed in seeds:
        chance = random.Random(seed)
        pair = fresh(rule)
        for _ in range(3):
            for event in dense(chance, length, TENANTS, LANES, keyed=False):
                play_one(pair, event)
            pair.change(chance.choice([other for other in RULES if other != pair.rule]))
            assert pair.store.verify() == [], f"seed {seed}"
        play(pair, dense(chance, length, TENANTS, LANES, keyed=False))
        assert pair.store.verify() == [], f"seed {seed}"


def play_one(pair: ChangingPair, event: object) -> None:
    """`play` without what it does at the end."""
    drain, pair.drain = pair.drain, lambda: None  # type: ignore[method-assign]  # stands in for it in this test
    try:
        play(pair, [event])  # type: ignore[list-item]  # each has its own type
    finally:
        pair.drain = drain  # type: ignore[method-assign]  # stands in for it in this test


@pytest.mark.parametrize("rule", RULES)
def test_what_moved_over_is_leased_as_the_reference_says(fresh: Callable[[str], ChangingPair], rule: str) -> None:
    compare(fresh, rule, range(8), 25)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rule", RULES)
def test_what_moved_over_is_leased_as_the_reference_says_for_long(
    fresh: Callable[[str], ChangingPair], rule: str
) -> None:
    compare(fresh, rule, range(100, 200), 40)
