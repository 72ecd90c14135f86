"""Concurrency keys in the reference under random traffic: no wake is lost, no limit is passed, nobody is held up.

`Crowd` plays the traffic for which the rules were made: six sub-lanes over random sets of one to three of four keys,
with arrivals, leases, ends and cancels in any order. The sweep is off, so that a wake that is lost is seen.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.policies.keyed import Keyed, KeySet, SubLane
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.tree import Tree
from queueapp.policies.waiting import Key

every_policy = pytest.mark.parametrize("policy", ["fifo", "tiered", "ring", "wfq"])
PARKS_PER_PICK = 16


class Crowd:
    """A tree under random traffic; every change is followed by a look at what must always hold."""

    def __init__(self, policy: str, seed: int, *, sets: int = 6, names: str = "abcd") -> None:
        self.chance = random.Random(seed)
        self.tree = Tree(POLICIES[policy]())
        self.limit = {name: self.chance.choice([1, 1, 2, 3]) for name in names}
        self.places = []
        for number in range(sets):
            chosen = sorted(self.chance.sample(names, self.chance.randint(1, 3)))
            of = KeySet(
                id=f"{number}", keys=tuple(Key(digest=name, limit=self.limit[name], pattern=name) for name in chosen)
            )
            self.places.append((f"t{self.chance.randint(1, 3)}", self.chance.choice(["main", "other"]), of))
        self.seq = itertools.count(1)
        self.waiting: dict[str, Candidate] = {}
        self.running: list[Candidate] = []
        self.parks = self.most_parks = 0

    def step(self) -> None:
        match self.chance.choice(["arrive", "arrive", "lease", "lease", "end", "end", "cancel"]):
            case "arrive":
                self.arrive()
            case "lease":
                self.lease()
            case "end" if self.running:
                self.end()
            case "cancel" if self.waiting:
                self.cancel()
        self.look()

    def arrive(self, keyless: float = 0.1) -> None:
        tenant, lane, of = self.chance.choice(self.places)
        seq = next(self.seq)
        tier = self.chance.choice(["start", "continue"])
        bare = self.chance.random() < keyless
        job = Candidate(id=f"{seq:06d}", tenant=tenant, lane=lane, seq=seq, tier=tier, keys=None if bare else of)  # type: ignore[arg-type]  # as much of it as is asked here
        self.waiting[job.id] = job
        self.tree.push(job)

    def lease(self) -> bool:
        step_aside = Keyed.step_aside
        self.parks = 0

        def counted(keyed: Keyed, sub: SubLane) -> None:
            self.parks += 1
            step_aside(keyed, sub)

        with patch.object(Keyed, "step_aside", counted):
            charge = self.tree.pick()
        self.most_parks = max(self.most_parks, self.parks)
        if charge is None:
            assert not [job for job in self.waiting.values() if self.fits(job.keys)], "a job that fits is held up"
            return False
        self.running.append(self.waiting.pop(charge.id))
        return True

    def end(self) -> None:
        job = self.running.pop(self.chance.randrange(len(self.running)))
        if self.chance.random() < 0.2:  # it comes back
            self.waiting[job.id] = job
            with self.tree.together():
                self.tree.push(job)
                self.tree.release(job.id)
        else:
            self.tree.release(job.id)

    def cancel(self) -> None:
        job_id = self.chance.choice(sorted(self.waiting))
        del self.waiting[job_id]
        assert self.tree.remove(job_id) is not None

    def fits(self, of: KeySet | None) -> bool:
        used = Counter(key.digest for job in self.running if job.keys for key in job.keys.keys)
        return of is None or all(used[key.digest] < self.limit[key.digest] for key in of.keys)

    def look(self) -> None:
        keyed = self.tree.keyed
        used = Counter(key.digest for job in self.running if job.keys for key in job.keys.keys)
        for name, limit in self.limit.items():
            assert keyed.used(name) == used[name] <= limit
        standing: set[str] = set()
        subs = list(keyed.sub_lanes())
        assert sum(len(sub.jobs) for sub in subs) == sum(job.keys is not None for job in self.waiting.values())
        for sub in subs:
            queue = self.tree.queue_of(sub.tenant, sub.lane, continued=sub.continued)
            self.tree.refresh(sub.tenant, sub.lane)  # queue_of may have made a lane
            head = sub.jobs.first()
            assert head is not None
            pointer = queue.score("@" + sub.name)
            waits_at = [name for name in self.limit if sub in keyed.waiters(name)]
            assert waits_at == ([sub.aside] if sub.aside is not None else [])
            assert pointer == (head[0] if sub.aside is None else None)
            if sub.aside is None:
                standing |= {key.digest for key in sub.keys}
        assert set(keyed.waited_for()) == {sub.aside for sub in subs if sub.aside is not None}
        for name in self.limit:
            heads = [(sub.tenant, sub.jobs.first() or (0, 0, "")) for sub in keyed.waiters(name)]
            for tenant in {"*"} if self.tree.policy.ordered else {tenant for tenant, _ in heads}:
                ranks = [head[0] for whose, head in heads if tenant in ("*", whose)]
                assert ranks == sorted(ranks)
        for sub in subs:
            if sub.aside is not None and keyed.full(sub) is None:
                assert sub.aside in standing, f"{sub.name} waits for {sub.aside}, which is free and offered to nobody"

    def finish(self) -> None:
        """No more arrivals: everything runs."""
        while self.waiting:
            if not self.lease():
                assert self.running
                self.end()
            self.look()
        while self.running:
            self.tree.release(self.running.pop().id)
        assert not self.tree.keyed
        assert not self.tree.root.walk


@every_policy
@given(seed=st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_no_wake_is_lost_and_no_limit_is_passed(policy: str, seed: int) -> None:
    crowd = Crowd(policy, seed)
    for _ in range(150):
        crowd.step()
    crowd.finish()
    assert crowd.most_parks <= PARKS_PER_PICK


def crowds(policy: str, seeds: Iterable[int]) -> None:
    """2,000 steps for each seed."""
    most = 0
    for seed in seeds:
        crowd = Crowd(policy, seed)
        for _ in range(2000):
            crowd.step()
        crowd.finish()
        most = max(most, crowd.most_parks)
    assert most <= PARKS_PER_PICK


@pytest.mark.long
@pytest.mark.timeout(600)
@every_policy
def test_no_wake_is_lost_in_many_steps(policy: str) -> None:
    crowds(policy, range(100, 105))


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@every_policy
def test_no_wake_is_lost_for_long(policy: str) -> None:
    crowds(policy, range(100))
