"""Concurrency keys in the reference: never over a limit, nothing waits for a slot that is free, nobody else is held up.

`Crowd` plays the traffic for which the rules were made: six sub-lanes over random sets of one to three of four keys,
with arrivals, leases, ends and cancels in any order. The sweep is off, so that a wake that is lost is seen.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.policies.keyed import MOVED_PER_WAKE, SWEEP_MS, Key, Keyed, KeySet, SubLane
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.tree import Limits, Tree

POLICY_NAMES = ("fifo", "tiered", "ring", "wfq")
every_policy = pytest.mark.parametrize("policy", POLICY_NAMES)
PARKS_PER_PICK = 16


def keys(*names: str, limit: int = 1) -> KeySet:
    return KeySet(
        id="+".join(names), keys=tuple(Key(digest=name, limit=limit, pattern=f"p{name}") for name in sorted(names))
    )


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
        job = Candidate(id=f"{seq:06d}", tenant=tenant, lane=lane, seq=seq, tier=tier, keys=None if bare else of)  # type: ignore[arg-type]
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
            assert waits_at == ([sub.parked] if sub.parked is not None else [])
            assert pointer == (head[0] if sub.parked is None else None)
            if sub.parked is None:
                standing |= {key.digest for key in sub.keys}
        assert set(keyed.waited_for()) == {sub.parked for sub in subs if sub.parked is not None}
        for name in self.limit:
            ranks = [sub.jobs.first() for sub in keyed.waiters(name)]
            assert ranks == sorted(ranks, key=lambda head: head[0] if head is not None else 0)
        for sub in subs:
            if sub.parked is not None and keyed.full(sub) is None:
                assert sub.parked in standing, f"{sub.name} waits for {sub.parked}, which is free and offered to nobody"

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


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@every_policy
def test_no_wake_is_lost_for_long(policy: str) -> None:
    most = 0
    for seed in range(100):
        crowd = Crowd(policy, seed)
        for _ in range(2000):
            crowd.step()
        crowd.finish()
        most = max(most, crowd.most_parks)
    assert most <= PARKS_PER_PICK


def drained(tree: Tree, run: int) -> list[str]:
    """Ids in the order of their leases, `run` at a time; the oldest ends first."""
    order: list[str] = []
    flying: list[str] = []
    while len(tree) or flying:
        while len(flying) < run and (charge := tree.pick()) is not None:
            order.append(charge.id)
            flying.append(charge.id)
        tree.release(flying.pop(0))
    return order


@every_policy
def test_a_full_key_holds_up_nobody_else(policy: str) -> None:
    """Sixteen slots, 40 jobs under one key of limit 1 and 40 without: the others run as if the first were not there."""
    tree, plain = Tree(POLICIES[policy]()), Tree(POLICIES[policy]())
    for seq in range(40):
        tree.push(Candidate(id=f"k{seq}", tenant="ant", seq=2 * seq + 1, keys=keys("one")))
        for each in (tree, plain):
            each.push(Candidate(id=f"p{seq}", tenant="ant", seq=2 * seq + 2))
    order = drained(tree, 16)
    assert [job_id for job_id in order if job_id[0] == "p"] == drained(plain, 15)
    assert [job_id for job_id in order if job_id[0] == "k"] == [f"k{seq}" for seq in range(40)]
    first = order.index("p39")
    assert sum(job_id[0] == "k" for job_id in order[:first]) <= 3, "15 others run beside one"


@every_policy
def test_jobs_keep_their_place_in_the_lane(policy: str) -> None:
    tree = Tree(POLICIES[policy]())
    for seq in range(1, 7):
        tree.push(Candidate(id=str(seq), tenant="ant", seq=seq, keys=keys("x", limit=9) if seq % 2 else None))
    assert drained(tree, 1) == ["1", "2", "3", "4", "5", "6"]


def test_all_keys_are_taken_or_none() -> None:
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    tree.push(Candidate(id="2", tenant="ant", seq=2, keys=keys("a", "b")))
    tree.push(Candidate(id="3", tenant="ant", seq=3, keys=keys("b")))
    assert [charge.id for charge in iter(tree.pick, None)] == ["1", "3"], "2 does not sit on b while it waits for a"
    tree.release("3")
    assert tree.pick() is None
    tree.release("1")
    second = tree.pick()
    assert second is not None
    assert second.id == "2"


def test_a_waiter_whose_other_key_is_full_waits_for_that_one() -> None:
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    tree.push(Candidate(id="2", tenant="ant", seq=2, keys=keys("b")))
    assert len(list(iter(tree.pick, None))) == 2
    tree.push(Candidate(id="3", tenant="bee", seq=3, keys=keys("a", "b")))
    tree.push(Candidate(id="4", tenant="cat", seq=4, keys=keys("a")))
    assert [sub.tenant for sub in tree.keyed.waiters("a")] == ["bee", "cat"]
    tree.release("1")
    assert [sub.tenant for sub in tree.keyed.waiters("b")] == ["bee"]
    assert [charge.id for charge in iter(tree.pick, None)] == ["4"]


def test_an_offer_that_is_not_taken_goes_to_the_next() -> None:
    """The sub-lane that was woken is cancelled: the one behind it is woken in its place."""
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    assert tree.pick() is not None
    tree.push(Candidate(id="2", tenant="bee", seq=2, keys=keys("a")))
    tree.push(Candidate(id="3", tenant="cat", seq=3, keys=keys("a")))
    tree.release("1")
    assert [sub.tenant for sub in tree.keyed.waiters("a")] == ["cat"]
    tree.remove("2")
    assert tree.keyed.waiters("a") == []


def test_a_waiter_that_may_not_run_lets_the_next_one_pass() -> None:
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    assert tree.pick() is not None
    tree.push(Candidate(id="2", tenant="bee", seq=2, keys=keys("a")))
    tree.push(Candidate(id="3", tenant="cat", seq=3, keys=keys("a")))
    tree.configure("bee", "", Limits(paused=True))
    tree.release("1")
    third = tree.pick()
    assert third is not None
    assert third.id == "3"
    tree.configure("bee", "", Limits())
    assert tree.pick() is None
    tree.release("3")
    second = tree.pick()
    assert second is not None
    assert second.id == "2"


@pytest.mark.parametrize(("limit", "more"), [(3, 2), (None, 9)])
def test_a_limit_that_is_raised_acts_at_once(limit: int | None, more: int) -> None:
    tree = Tree(POLICIES["tiered"]())
    for seq in range(1, 11):
        tree.push(Candidate(id=str(seq), tenant=f"t{seq}", seq=seq, keys=keys("a")))
    assert len(list(iter(tree.pick, None))) == 1
    tree.keyed.configure("pa", limit)
    tree.flush()
    first = len(list(iter(tree.pick, None)))
    assert first == min(more, MOVED_PER_WAKE)
    tree.keyed.sweep()  # what one wake may not move any more
    tree.flush()
    assert first + len(list(iter(tree.pick, None))) == more


@pytest.mark.parametrize("limit", [2, 0])
def test_a_limit_that_is_lowered_waits_for_those_that_run(limit: int) -> None:
    tree = Tree(POLICIES["tiered"]())
    for seq in range(1, 11):
        tree.push(Candidate(id=str(seq), tenant="ant", seq=seq, keys=keys("a", limit=5)))
    running = [charge.id for charge in iter(tree.pick, None)]
    assert len(running) == 5
    tree.keyed.configure("pa", limit)
    tree.flush()
    for job_id in running[: 5 - limit]:
        assert tree.pick() is None
        tree.release(job_id)
    rest = [] if limit == 0 else [running[-1]]
    assert tree.pick() is None
    for job_id in rest:
        tree.release(job_id)
    assert len(list(iter(tree.pick, None))) == len(rest)
    tree.keyed.configure("pa", 0, clear=True)
    tree.flush()
    assert len(list(iter(tree.pick, None))) == 5 - limit


def test_a_wake_that_was_lost_is_repaired_within_a_second() -> None:
    """The sub-lane that was woken is paused before it runs: nobody else knows of the free slot until the sweep."""
    tree = Tree(POLICIES["fifo"]())
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=keys("a")))
    assert tree.pick() is not None
    tree.push(Candidate(id="2", tenant="bee", seq=2, keys=keys("a")))
    tree.push(Candidate(id="3", tenant="cat", seq=3, keys=keys("a")))
    tree.release("1")
    tree.configure("bee", "", Limits(paused=True))
    assert tree.pick() is None
    tree.keyed.now_ms += SWEEP_MS - 1
    tree.keyed.sweep()
    tree.flush()
    assert tree.pick() is None
    tree.keyed.now_ms += 1
    tree.keyed.sweep()
    tree.flush()
    third = tree.pick()
    assert third is not None
    assert third.id == "3"


def test_two_tasks_may_give_one_key_two_limits() -> None:
    """Each compares with its own; one that waits for the lower does not stand before one that the higher lets run."""
    tree = Tree(POLICIES["fifo"]())
    narrow, wide = keys("a", limit=1), KeySet(id="wide", keys=(Key(digest="a", limit=2),))
    tree.push(Candidate(id="1", tenant="ant", seq=1, keys=wide))
    tree.push(Candidate(id="2", tenant="ant", seq=2, keys=wide))
    assert len(list(iter(tree.pick, None))) == 2
    tree.push(Candidate(id="3", tenant="bee", seq=3, keys=narrow))
    tree.push(Candidate(id="4", tenant="bee", seq=4, keys=wide))
    tree.release("1")
    fourth = tree.pick()
    assert fourth is not None
    assert fourth.id == "4"
