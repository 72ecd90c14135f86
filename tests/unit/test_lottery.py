"""`lottery`: shares by weight within what a binomial allows, no memory, and the same numbers on every machine."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.policies.lottery import LAST_DRAWN, MODULUS, Lottery, exponential, following
from queueapp.policies.protocol import Candidate
from queueapp.policies.room import Limits
from queueapp.policies.tree import Tree

DEVIATIONS = 4
"""Standard deviations of a count from its mean that a test allows; with a fixed seed nothing is left to chance."""
SHARES = {"ant": 1.0, "bee": 2.0, "cat": 4.0, "dog": 13.0}


class Draws:
    """A tree under `lottery` in which every tenant always has work: what is leased is pushed again."""

    def __init__(self, shares: dict[str, float], seed: int = 1, policy: Lottery | None = None) -> None:
        self.tree = Tree(policy or Lottery(seed))
        self._seq = 0
        for tenant, weight in shares.items():
            self.weigh(tenant, weight)
            for _ in range(2):
                self.push(tenant)

    def weigh(self, tenant: str, weight: float) -> None:
        self.tree.configure(tenant, "", Limits(weight=weight))

    def push(self, tenant: str, lane: str = "main", cost: float = 1.0, priority: int = 0) -> None:
        self._seq += 1
        self.tree.push(
            Candidate(id=str(self._seq), tenant=tenant, lane=lane, seq=self._seq, cost=cost, priority=priority)
        )

    def picks(self, count: int) -> list[str]:
        order = []
        for _ in range(count):
            charge = self.tree.pick()
            assert charge is not None
            self.tree.release(charge.id)
            order.append(charge.tenant)
            self.push(charge.tenant)
        return order


def strays(count: int, picks: int, share: float) -> float:
    """How many standard deviations `count` lies from the mean of a binomial."""
    return abs(count - picks * share) / math.sqrt(picks * share * (1 - share))


# -- the numbers -------------------------------------------------------------------------------------------------


def test_the_generator_is_the_one_of_park_and_miller() -> None:
    """Their check for an implementation (1988): the 10,000th number after 1."""
    x = 1.0
    for _ in range(10_000):
        x = following(x)
    assert x == 1_043_618_065


def test_a_draw_is_the_same_to_the_last_bit_everywhere() -> None:
    """Only + - * / and comparisons of doubles take part, so that IEEE 754 leaves no choice to any machine.

    The bits are those of CPython; a Lua 5.1 with the same lines gave the same 100,000 numbers.
    """
    bits = {
        1.0: "0x1.57cd0e7006820p+4",
        16807.0: "0x1.7841a212157c9p+3",
        282475249.0: "0x1.03a49d1077d49p+1",
        1622650073.0: "0x1.1ef6364db0e6dp-2",
        984943658.0: "0x1.8f16608f5ce03p-1",
        1144108930.0: "0x1.4264311baff65p-1",
        470211272.0: "0x1.84d4a8e5a793fp+0",
        1518164097.0: "0x1.631e398d92829p-2",
        754388584.0: "0x1.0bd01f3de44c4p+0",
        MODULUS - 1: "0x1.0000000100000p-31",
    }
    assert {x: exponential(x).hex() for x in bits} == bits


@given(x=st.integers(1, int(MODULUS) - 1))
def test_the_series_is_the_logarithm(x: int) -> None:
    assert exponential(float(x)) == pytest.approx(-math.log(x / MODULUS), rel=1e-14, abs=0)
    assert exponential(float(x)) > 0


def test_a_seed_gives_the_same_order_on_every_machine() -> None:
    order = "".join(tenant[0] for tenant in Draws(SHARES, seed=7).picks(60))
    assert order == "ddaddccdcdddcdddcdbcddbbdcddcddaddcdddddacbddddddbccdddcccdd"
    assert "".join(tenant[0] for tenant in Draws(SHARES, seed=7).picks(60)) == order
    assert "".join(tenant[0] for tenant in Draws(SHARES, seed=8).picks(60)) != order


def test_one_policy_serves_many_trees_that_do_not_disturb_each_other() -> None:
    policy = Lottery(seed=7)
    one, other = Draws(SHARES, policy=policy), Draws(SHARES, policy=policy)
    together = [draws.picks(1)[0] for _ in range(60) for draws in (one, other)]
    assert together[0::2] == together[1::2] == Draws(SHARES, seed=7).picks(60)


@pytest.mark.parametrize("seed", [0, -3, 2**31 - 1])
def test_a_seed_that_is_no_number_of_the_sequence_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 2147483646"):
        Lottery(seed)


# -- the shares --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 7, 65_537])
def test_shares_converge_to_the_weights(seed: int) -> None:
    draws, total, served = Draws(SHARES, seed), sum(SHARES.values()), Counter[str]()
    for picks in (200, 2000, 20_000):
        served.update(draws.picks(picks - served.total()))
        for tenant, weight in SHARES.items():
            assert strays(served[tenant], picks, weight / total) <= DEVIATIONS, (tenant, picks, served)


def test_a_pick_says_nothing_about_the_next_one() -> None:
    """What a race of exponentials must have in common with a draw of tickets: no memory."""
    order = Draws(SHARES).picks(20_000)
    pairs = Counter(itertools.pairwise(order))
    total = sum(SHARES.values())
    for one, weight in SHARES.items():
        after = sum(count for (before, _), count in pairs.items() if before == one)
        for other in SHARES:
            assert strays(pairs[one, other], after, SHARES[other] / total) <= DEVIATIONS, (one, other)
        runs = [len(run) for run in "".join("x" if tenant == one else " " for tenant in order).split("x")]
        wait = 1 + sum(runs) / len(runs)
        assert wait == pytest.approx(total / weight, rel=DEVIATIONS / math.sqrt(len(runs)))


def test_cost_and_priority_buy_no_tickets() -> None:
    draws = Draws({"ant": 1.0, "bee": 1.0})
    for _ in range(2000):
        draws.push("ant", cost=1000, priority=100)
        draws.push("bee", cost=1, priority=-100)
    assert strays(Counter(draws.picks(2000))["ant"], 2000, 0.5) <= DEVIATIONS


def test_a_tenant_with_many_lanes_gets_no_more_than_one_with_one() -> None:
    draws = Draws({"ant": 1.0, "bee": 1.0})
    for number in range(2000):
        draws.push("ant", lane=f"lane{number % 100}")
    assert strays(Counter(draws.picks(2000))["ant"], 2000, 0.5) <= DEVIATIONS


def test_leaving_and_entering_gains_and_costs_nothing() -> None:
    draws, won = Draws({"ant": 1.0, "bee": 1.0}), 0
    for _ in range(2000):
        draws.tree.configure("ant", "", Limits(paused=True))
        draws.tree.configure("ant", "", Limits())
        won += draws.picks(1) == ["ant"]
    assert strays(won, 2000, 0.5) <= DEVIATIONS


def test_lanes_of_a_tenant_that_comes_and_goes_are_drawn_anew_each_time() -> None:
    """The sequence of numbers outlives the node of a tenant; one of its own would begin alike each time."""
    tree, first = Tree(Lottery()), Counter[str]()
    for seq in range(0, 2000, 2):
        for number, lane in enumerate(("main", "other")):
            tree.push(Candidate(id=f"{seq + number}", tenant="ant", lane=lane, seq=seq + number))
        charges = [tree.pick(), tree.pick()]
        first[next(charge.lane for charge in charges if charge is not None)] += 1
        for charge in charges:
            assert charge is not None
            tree.release(charge.id)
        assert not list(tree.tenants())
    assert strays(first["main"], 1000, 0.5) <= DEVIATIONS


# -- weights -----------------------------------------------------------------------------------------------------


def test_a_new_weight_draws_anew_for_that_tenant_alone() -> None:
    draws = Draws(SHARES)
    draws.picks(10)
    walk = draws.tree.root.walk
    before = {tenant: walk.score(tenant) for tenant in SHARES}
    drawn = draws.tree.root.state[LAST_DRAWN]
    draws.weigh("cat", 5.0)
    after = {tenant: walk.score(tenant) for tenant in SHARES}
    changed = draws.tree.root.v + exponential(following(drawn)) / 5.0
    assert after == before | {"cat": changed}


def test_a_raised_weight_acts_at_once() -> None:
    draws = Draws({"ant": 0.001, "bee": 1.0})
    assert Counter(draws.picks(100))["ant"] <= 1
    draws.weigh("ant", 9.0)
    assert strays(Counter(draws.picks(1000))["ant"], 1000, 0.9) <= DEVIATIONS


def test_shares_follow_weights_that_change_all_the_time() -> None:
    """A weight that swings between two values before each pick: a kept draw would favour one of them."""
    draws, won, expected, variance = Draws({"ant": 1.0, "bee": 1.0}), 0, 0.0, 0.0
    for turn in range(4000):
        weight = (0.25, 4.0)[turn % 2]
        draws.weigh("ant", weight)
        share = weight / (weight + 1)
        expected, variance = expected + share, variance + share * (1 - share)
        won += draws.picks(1) == ["ant"]
    assert abs(won - expected) <= DEVIATIONS * math.sqrt(variance)
