"""Statistics of the benchmarks. Pure: no Django, no Redis, no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], percent: float) -> float:
    """The `percent` percentile (0..100) as numpy's default method computes it: linear between the two nearest ranks.

    NaN for no values. The order of the floating-point operations is numpy's, so that both agree to the bit
    (tests/unit/test_statistics.py).
    """
    if not 0 <= percent <= 100:
        raise ValueError(f"percent is {percent!r}: it must be from 0 to 100.")
    ordered = sorted(values)
    if not ordered:
        return math.nan
    at = (len(ordered) - 1) * (percent / 100)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    share = at - below
    low, high = float(ordered[below]), float(ordered[above])
    if share >= 0.5:
        return high - (high - low) * (1 - share)
    return low + (high - low) * share


def percentiles(values: Iterable[float], *percents: float) -> tuple[float, ...]:
    """Several percentiles of the same values."""
    ordered = sorted(values)
    return tuple(percentile(ordered, percent) for percent in percents)


def median(values: Iterable[float]) -> float:
    """The middle value; the mean of the two middle ones of an even number; NaN for none."""
    return percentile(values, 50)


def ratio(above: float, below: float) -> float:
    """`above / below`; infinity when only `below` is 0, NaN when both are or either is NaN."""
    if math.isnan(above) or math.isnan(below):
        return math.nan
    if below == 0:
        return math.nan if above == 0 else math.inf
    return above / below


def supported(count: int, percent: float) -> bool:
    """Whether `count` values say anything of their `percent` percentile: one of them at least is expected beyond it.

    20 values for the 95th, 100 for the 99th, 1,000 for the 99.9th. Below, it is little else than the greatest value.
    """
    return count * (100 - percent) >= 100 - 1e-9


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean, its sum exact whatever the order (`math.fsum`); NaN for none."""
    known = list(values)
    return ratio(math.fsum(known), len(known))


def deviation(values: Iterable[float]) -> float:
    """The sample's standard deviation (over n - 1); NaN for fewer than two."""
    known = list(values)
    if len(known) < 2:
        return math.nan
    middle = mean(known)
    return math.sqrt(math.fsum((value - middle) ** 2 for value in known) / (len(known) - 1))


def throughput(completed: int, makespan_s: float) -> float:
    """Jobs per second: those that completed, over the makespan, which is from the first planned arrival to the last
    end. Dead letters have taken time, too, but are no throughput."""
    return ratio(completed, makespan_s)


def utilisation(busy_s: float, slots: int, makespan_s: float) -> float:
    """The part of the slots' time over the makespan in which they ran jobs, from 0 to 1."""
    return ratio(busy_s, slots * makespan_s)


def missed(ended: float, deadline: float) -> bool:
    """Whether a job missed its deadline, both on one clock. To end exactly on it is a hit."""
    return ended > deadline


def jain(shares: Iterable[float]) -> float:
    """Jain's fairness index (Jain, Chiu, Hawe 1984): (Σx)² / (n · Σx²), from 1/n (one has it all) to 1 (all the same).

    `shares` has a 0 for everybody who might have had something and had nothing: without them a queue that served one
    tenant alone would look perfectly fair. All zeros are 1 by convention; NaN for nobody, ValueError below 0.
    """
    had = [float(share) for share in shares]
    if any(share < 0 for share in had):
        raise ValueError(f"A share is {min(had)!r}: nobody can have had less than nothing.")
    most = max(had, default=0.0)
    if most == 0:
        return 1.0 if had else math.nan
    parts = [share / most for share in had]  # the index knows no unit; squares of tiny ones would vanish
    return math.fsum(parts) ** 2 / (len(parts) * math.fsum(part * part for part in parts))
