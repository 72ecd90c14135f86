"""Dispatch rates at the pick: how many leases a scope may still give, and when the next. One GCRA a scope.

A scope is a tenant, a lane, or a concurrency key under one pattern. Exact: TAT, the moment by which all its leases so
far would have come, one an interval, is a fraction of ms. `tree.py` and `keyed.py` call this; in the store it is
`lua/include/rates.lua` with `gcra.lua`. Not thread-safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRate:
    """`rate` leases in `period_ms`, evenly, and after a rest `burst` of them at once."""

    rate: int
    period_ms: int
    burst: int = 1


class Tokens:
    """What all scopes have. What is asked of a scope is asked under the rate that it has now."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[object, tuple[DispatchRate, Fraction]] = {}

    def free(self, scope: object, rate: DispatchRate, now_ms: int) -> int:
        """How many may be leased now."""
        ahead = self._tat(scope, rate, now_ms) - now_ms
        return max(0, math.floor(rate.burst - ahead * rate.rate / rate.period_ms))

    def moment(self, scope: object, rate: DispatchRate, now_ms: int, number: int = 1) -> int:
        """From when on the `number`-th from now may be leased; it may have passed."""
        interval = Fraction(rate.period_ms, rate.rate)
        return math.ceil(self._tat(scope, rate, now_ms) + (number - rate.burst) * interval)

    def take(self, scope: object, rate: DispatchRate, now_ms: int) -> None:
        """One more was leased."""
        self._known[scope] = rate, self._tat(scope, rate, now_ms) + Fraction(rate.period_ms, rate.rate)

    def _tat(self, scope: object, rate: DispatchRate, now_ms: int) -> Fraction:
        known, tat = self._known.get(scope, (rate, Fraction(now_ms)))
        if tat >= now_ms and (known.rate, known.period_ms) != (rate.rate, rate.period_ms):
            # As many are owed under another rate, rounded up to whole ms, in the very steps in which the store does it.
            whole = math.floor(tat)
            owed = whole - now_ms + float((tat - whole) * known.rate) / known.rate
            owed = owed * (rate.period_ms / known.period_ms) * (known.rate / rate.rate)
            self._known[scope] = rate, Fraction(now_ms + math.ceil(owed))
            return self._known[scope][1]
        return max(tat, Fraction(now_ms))
