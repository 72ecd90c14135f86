"""Guaranteed minima in the pure reference: what they give, to whom, and that they cost the others nothing later."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueapp.policies.charge import Charge
from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import DIRECT, POLICIES
from queueapp.policies.room import Limits
from queueapp.policies.tree import FLOOR_RUN, Tree
from tests.model.traffic import Event, costs, run, traffic_with_minima
from tests.model.witness import Witness

NAMES = ("ant", "bee", "cat", "dog")


def busy(policy: str, minima: dict[str, int], jobs: int = 400) -> Tree:
    """Everybody has work that lasts; `ant` came first and has the best ranks."""
    tree = Tree(POLICIES[policy]())
    seq = itertools.count(1)
    for name in NAMES:
        tree.configure(name, "", Limits(min_share=minima.get(name, 0)))
        for _ in range(jobs):
            number = next(seq)
            tree.push(Candidate(id=str(number), tenant=name, seq=number, cost=1, priority=5 if name == "ant" else 0))
    return tree


@pytest.mark.parametrize("policy", sorted(DIRECT))
def test_each_has_its_slots_at_nearly_every_moment(policy: str) -> None:
    """Sixteen slots, one is freed at a time: whoever falls below has it back within one lease beside its own."""
    minima = {"cat": 5, "dog": 3}
    tree, chance = busy(policy, minima), random.Random(7)
    flying: list[Charge] = []
    for _ in range(300):
        while len(flying) < 16:
            charge = tree.pick()
            assert charge is not None
            flying.append(charge)
        missing = sum(max(0, slots - tree.in_flight(name)) for name, slots in minima.items())
        assert missing <= 1, "one, after nine in a row"
        tree.release(flying.pop(chance.randrange(len(flying))).id)


@pytest.mark.parametrize("policy", sorted(DIRECT))
@given(seed=st.integers(0, 10**6), minima=st.lists(st.integers(0, 6), min_size=4, max_size=4))
@settings(deadline=None, max_examples=15)
def test_nine_in_a_row_at_most(policy: str, seed: int, minima: list[int]) -> None:
    tree, chance = busy(policy, dict(zip(NAMES, minima, strict=True)), jobs=60), random.Random(seed)
    flying: list[Charge] = []
    run = 0
    for _ in range(120):
        if flying and chance.random() < 0.4:
            tree.release(flying.pop(chance.randrange(len(flying))).id)
        below = [name for name in NAMES if tree.below_minimum(name)]
        charge = tree.pick()
        if charge is None:
            break
        flying.append(charge)
        assert charge.for_minimum == (bool(below) and run < FLOOR_RUN)
        assert not charge.for_minimum or charge.tenant in below
        run = run + 1 if charge.for_minimum else 0
        assert run <= FLOOR_RUN


@pytest.mark.parametrize("policy", sorted(DIRECT))
@given(events=traffic_with_minima, workers=st.integers(1, 12))
@settings(deadline=None, max_examples=60)
def test_the_invariants_hold_beside_minima(policy: str, events: list[Event], workers: int) -> None:
    run(Witness(Tree(POLICIES[policy]())), events, workers, estimated=False)


@given(events=traffic_with_minima, workers=st.integers(1, 12), estimate=costs)
@settings(deadline=None, max_examples=150)
def test_the_invariants_hold_beside_minima_with_settled_estimates(
    events: list[Event], workers: int, estimate: float
) -> None:
    tree = Tree(POLICIES["tiered"](), estimate=lambda _job: estimate)
    run(Witness(tree, settled=True), events, workers, estimated=True)


@pytest.mark.parametrize("policy", sorted(DIRECT - {"wfq"}))
def test_afterwards_all_is_as_without_it(policy: str) -> None:
    """What the minimum gave moved no pointer of the root: the turns go on where they were. (wfq tags at admission.)"""
    with_minimum, without = busy(policy, {"dog": 4}), busy(policy, {})
    given_ = [with_minimum.pick() for _ in range(4)]
    assert [charge.tenant for charge in given_ if charge] == ["dog"] * 4
    with_minimum.configure("dog", "", Limits())
    orders = [[charge.tenant for _ in range(200) if (charge := tree.pick())] for tree in (with_minimum, without)]
    assert orders[0] == orders[1]


def test_the_others_share_the_rest_by_their_weights() -> None:
    tree = busy("tiered", {"dog": 8}, jobs=2000)
    tree.configure("bee", "", Limits(weight=2))
    tree.configure("cat", "", Limits(weight=4))
    flying: list[Charge] = []
    turns: Counter[str] = Counter()
    for _ in range(1400):
        if len(flying) == 16:
            tree.release(flying.pop(0).id)
        charge = tree.pick()
        assert charge is not None
        flying.append(charge)
        turns[charge.tenant] += not charge.for_minimum
    shares = [turns[name] / weight for name, weight in (("ant", 1), ("bee", 2), ("cat", 4), ("dog", 1))]
    assert max(shares) - min(shares) <= 2


def test_a_ceiling_a_pause_and_a_closed_pool_go_before_it() -> None:
    tree = busy("tiered", {})
    tree.configure("dog", "", Limits(min_share=5, ceiling=2))
    assert [charge.tenant for _ in range(4) if (charge := tree.pick())] == ["dog", "dog", "ant", "bee"]
    tree.configure("dog", "", Limits(min_share=5, paused=True))
    assert not tree.below_minimum("dog")
    tree.configure("dog", "", Limits(min_share=5))
    tree.pool = Limits(ceiling=4)
    assert tree.pick() is None


def test_a_lane_has_none() -> None:
    tree = busy("tiered", {})
    tree.configure("dog", "main", Limits(min_share=5))
    assert not tree.below_minimum("dog")
