"""Random draws that are the same on any machine, in any version of Python.

What is random comes from `random.Random(seed).random()` alone, the one method whose sequence Python promises to keep.
It goes through comparisons, IEEE additions, multiplications and divisions, and rounding to whole numbers. Powers,
exponentials and logarithms of a platform's library differ in their last bits; the only ones here are those of
`decimal`, which its specification demands to be correctly rounded, so that there is one right answer.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from itertools import accumulate
from typing import TypeVar

Name = TypeVar("Name")

EXACT = Context(prec=20)
"""More digits than a double has; what is drawn is rounded to whole microseconds anyway."""


def exponential(dice: random.Random) -> float:
    """Exponential with mean 1, by von Neumann's comparisons (1951): exact, and without a logarithm.

    A run of falling uniforms of odd length accepts its first; each run of even length adds 1 to the answer.
    """
    whole = 0
    while True:
        first = last = dice.random()
        length = 1
        while (following := dice.random()) < last:
            last = following
            length += 1
        if length % 2:
            return whole + first
        whole += 1


def uniform(dice: random.Random, least: int, most: int) -> int:
    """A whole number from `least` to `most`, both included. Draws nothing where there is nothing to choose."""
    return least + int(dice.random() * (most - least + 1)) if most > least else least


def by_share(shares: Mapping[Name, int]) -> Callable[[random.Random], Name]:
    """Draws names by their shares: whole numbers, so that their bounds are exact. A single name takes no draw."""
    names = [name for name, share in shares.items() if share]
    bounds = list(accumulate(shares[name] for name in names))
    if len(names) == 1:
        return lambda dice: names[0]
    return lambda dice: names[bisect_right(bounds, int(dice.random() * bounds[-1]))]


def pareto(dice: random.Random, least: int, most: int, alpha: float) -> int:
    """A whole number by Pareto's law from `least` on, P(X > x) = (least / x) ** alpha; what exceeds `most` is `most`.

    least * e ** (E / alpha) with E exponential: the power becomes one correctly rounded exponential.
    """
    factor = EXACT.exp(EXACT.create_decimal_from_float(exponential(dice) / alpha))
    return min(most, int(EXACT.multiply(factor, least)))


def pareto_mean(least: int, most: int, alpha: float) -> float:
    """The mean of `pareto`, but for its rounding down: the area under P(X > x) up to `most`, in closed form."""
    below, power = Decimal(least), Decimal(alpha)
    decades = EXACT.ln(EXACT.divide(Decimal(most), below))
    if alpha == 1:
        return float(EXACT.multiply(below, EXACT.add(1, decades)))
    tail = EXACT.exp(EXACT.multiply(EXACT.subtract(1, power), decades))
    return float(EXACT.divide(EXACT.multiply(below, EXACT.subtract(power, tail)), EXACT.subtract(power, 1)))
