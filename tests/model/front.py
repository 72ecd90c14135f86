"""The front door once more, as plainly as it can be said: a rate in exact fractions, and the draw from the backlog."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from queueapp.store.configuration import Rate


@dataclass
class Gcra:
    """One scope. `come` answers when one more job conforms, which may have passed; `take` has it come."""

    rate: Rate
    tat: Fraction = Fraction(0)

    def moment(self, now_ms: int) -> int:
        with_it = self._with_one_more(now_ms)
        return math.ceil(with_it - Fraction(self.rate.burst * self.rate.period_ms, self.rate.rate))

    def conforms(self, now_ms: int) -> bool:
        with_it = self._with_one_more(now_ms)
        return (with_it - now_ms) * self.rate.rate <= self.rate.burst * self.rate.period_ms

    def take(self, now_ms: int) -> None:
        self.tat = self._with_one_more(now_ms)

    def _with_one_more(self, now_ms: int) -> Fraction:
        return max(self.tat, Fraction(now_ms)) + Fraction(self.rate.period_ms, self.rate.rate)


MODULUS = 2_147_483_647
AT_ONCE = 64


def generator(seed: int) -> Callable[[], float]:
    """Park and Miller's numbers."""
    state = seed % MODULUS or 1

    def draw() -> float:
        nonlocal state
        state = 16807 * state % MODULUS
        return state / MODULUS

    return draw


Backlog = Mapping[str, Sequence[tuple[str, int]]]
"""Tenant → (id, due) of its parked jobs of one tier, by due and id."""


def drawn(fresh: Backlog, continued: Backlog, *, seed: int, most: int, weight: int, now_ms: int) -> list[str]:
    """Ids in the order in which a draw takes them."""
    random = generator(seed)
    credit, step = random(), 1 / (weight + 1)
    lines = [_in_turn(fresh, random, now_ms), _in_turn(continued, random, now_ms)]
    heads = [next(line, None) for line in lines]
    chosen: list[str] = []
    while len(chosen) < min(most, AT_ONCE) and any(heads):
        tier = 1 if heads[1] is not None else 0
        if all(heads):
            credit += step
            if credit >= 1:
                tier, credit = 0, credit - 1
        chosen.append(heads[tier] or "")
        heads[tier] = next(lines[tier], None)
    return chosen


def _in_turn(parked: Backlog, random: Callable[[], float], now_ms: int) -> Iterator[str]:
    due = {tenant: [job for job, at in jobs if at <= now_ms] for tenant, jobs in parked.items()}
    names = sorted((tenant for tenant in due if due[tenant]), key=lambda tenant: (parked[tenant][0][1], tenant))
    if not names:
        return iter(())
    first = math.floor(random() * len(names))
    window = (names[first:] + names[:first])[:AT_ONCE]
    taken: dict[str, int] = defaultdict(int)

    def turns() -> Iterator[str]:
        while any(taken[tenant] < len(due[tenant]) for tenant in window):
            for tenant in window:
                if taken[tenant] < len(due[tenant]):
                    taken[tenant] += 1
                    yield due[tenant][taken[tenant] - 1]

    return turns()
