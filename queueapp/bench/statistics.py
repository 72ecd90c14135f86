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
