"""`lottery`: each pick is a draw among the children, with tickets by weight (Waldspurger and Weihl 1994).

The draw is held as an exponential race, so that it costs O(log n) and no walk over tickets: a child's pointer is the
moment at which its bell rings, T + E / weight, where E is exponential and T the moment of the latest ring. The first to
ring is child i with probability w_i / (sum of w), and because the exponential distribution has no memory, neither the
others' pointers nor a new weight (which draws anew) prefer anybody.

Bound: in expectation only. Of n picks among the same children one with the share p gets n * p, with a standard
deviation of sqrt(n * p * (1 - p)), and waits 1 / p picks on average. Nothing is banked or remembered: whoever enters,
draws. Caveats: there is no bound for any one stretch (in 1 of 100 stretches of 5 / p picks a child gets nothing); jobs
are counted, not their cost, so that long jobs get more time; two equal pointers, one pair in some 10^9, go by name.

The numbers are Park and Miller's x = 16807 * x mod (2^31 - 1) (1988), exact in doubles. Their logarithm is a fixed
series of + - * / in a fixed order and no libm: IEEE 754 rounds each of these the same way everywhere, so that a seed
gives one order on every machine, to the last bit. `tests/unit/test_lottery.py` holds the bits.
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate, Place

SEED = 1
MULTIPLIER, MODULUS = 16807.0, 2147483647.0
LN_2 = 0.6931471805599453
SQRT_HALF = 0.7071067811865476
SERIES = tuple(range(21, 0, -2))
"""The divisors of the series, the smallest term first; the first one left out is below 2^-60 of the sum."""
LAST_DRAWN = ""
"""Where the root's `state` holds x: no child has this name."""


class Lottery:
    """Pointers are moments of the race, `node.v` that of the latest pick. One sequence of numbers serves all nodes."""

    name = "lottery"
    ordered = False
    tiered = False
    charges = False

    def __init__(self, seed: int = SEED) -> None:
        if not 1 <= seed < MODULUS:
            raise ValueError(f"seed is {seed!r}; it must lie between 1 and {MODULUS - 1:.0f}.")
        self.seed = seed

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float(job.seq)

    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        self._draw(node, child, weight)

    def moved(self, node: Node, child: str, head: Place) -> None:
        """A new head changes nothing: the draw is the child's, whatever job it is for."""

    def leave(self, node: Node, child: str) -> None:
        node.walk.discard(child)

    def reweighed(self, node: Node, child: str, weight: float) -> None:
        self._draw(node, child, weight)

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        rung = node.walk.score(child)
        assert rung is not None, "who is served stands in the walk"
        node.advance(rung)
        self._draw(node, child, weight)
        return 0.0

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        """A pick costs the same, however long the job."""

    def _draw(self, node: Node, child: str, weight: float) -> None:
        state = node.root.state
        drawn = state[LAST_DRAWN] = following(state.get(LAST_DRAWN, self.seed))
        node.walk.put(child, node.v + exponential(drawn) / weight)


def following(x: float) -> float:
    """The number after `x`. All products stay below 2^46, so that nothing is rounded."""
    return MULTIPLIER * x % MODULUS


def exponential(x: float) -> float:
    """-ln(x / MODULUS), by ln m = 2 * (s + s^3/3 + s^5/5 + ...) with s = (m - 1) / (m + 1), 1/2 <= m^2 < 2."""
    m, doublings = x / MODULUS, 0
    while m < SQRT_HALF:
        m, doublings = m * 2, doublings + 1
    s = (m - 1) / (m + 1)
    square, total = s * s, 0.0
    for divisor in SERIES:
        total = total * square + 1 / divisor
    return doublings * LN_2 - 2 * s * total
