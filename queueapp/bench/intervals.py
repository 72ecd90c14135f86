"""How sure a figure is: intervals over repetitions, whether one differs from another, how many repetitions it takes.

Pure. Repetitions are few (5 to 25) and each is a figure of thousands of jobs, so intervals are Student's, of the mean:
resampling five values would give intervals that are too narrow. Figures that come from one clock speed or one seed go
in pairs, so that what both sides share falls out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from queueapp.bench.statistics import deviation, mean, median, percentile, ratio

CONFIDENCE = 0.95
FEW = 5
"""Repetitions whose estimate is compared with that of all."""
WORSE = {
    "throughput_per_s": "lower",
    "utilisation": "lower",
    "jain_service": "lower",
    "jain_count": "lower",
    "jain_entitled": "lower",
    "completed": "lower",
}
"""Figures of which less is worse; of all others (waits, latencies, misses, the starved, the dead) more is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A mean over repetitions, with the half-width of its confidence interval, in the figure's own unit."""

    count: int
    mean: float
    half_width: float
    """NaN for fewer than two repetitions: one says nothing of how far the next will be."""

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width

    def __str__(self) -> str:
        """No more digits than the interval supports: its half-width has two."""
        if not math.isfinite(self.mean):
            return "-"
        if not self.half_width > 0 or not math.isfinite(self.half_width):
            return f"{self.mean:.{_digits(self.mean, 4)}f}"
        digits = _digits(self.half_width, 2)
        return f"{self.mean:.{digits}f} ± {self.half_width:.{digits}f}"


def _digits(value: float, significant: int) -> int:
    """Digits behind the point that so many significant ones of `value` take."""
    return max(0, significant - 1 - math.floor(math.log10(abs(value)))) if value else 0


def interval(values: Iterable[float], confidence: float = CONFIDENCE) -> Interval:
    """Student's interval of the mean of independent repetitions. NaN as mean for none, or where one of them is NaN."""
    known = list(values)
    if len(known) < 2:
        return Interval(count=len(known), mean=mean(known), half_width=math.nan)
    width = student(confidence, len(known) - 1) * deviation(known) / math.sqrt(len(known))
    return Interval(count=len(known), mean=mean(known), half_width=width)


def student(confidence: float, freedom: int) -> float:
    """The t that |T| stays below with probability `confidence`, T of Student's law with `freedom` degrees.

    By halving over its distribution function, a finite sum for whole degrees (Abramowitz and Stegun, 26.7.3 and 4).
    """
    if not 0 < confidence < 1 or freedom < 1:
        raise ValueError(f"confidence is {confidence!r} of {freedom!r} degrees: give one between 0 and 1 of 1 or more.")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) * tan(angle))."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for place in range(2 + odd, freedom, 2):
        term *= cosine * cosine * (place - 1) / place
        total += term
    if not odd:
        return sine * total
    return 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What another setting makes of a figure: the mean of the paired ratios, other / base, with its interval."""

    ratio: Interval

    @property
    def detected(self) -> bool:
        """The interval has a width and does not hold 1: no change would rarely look like this."""
        return not self.ratio.low <= 1 <= self.ratio.high and not math.isnan(self.ratio.half_width)


def change(base: Sequence[float], other: Sequence[float], confidence: float = CONFIDENCE) -> Change:
    """Compares two settings repetition by repetition, on the same seeds. ValueError for unequal lengths."""
    return Change(ratio=interval([ratio(new, old) for old, new in zip(base, other, strict=True)], confidence))


def shift(values: Sequence[float], few: int = FEW) -> float:
    """How far the mean of the first `few` repetitions is from that of all, as a part of the latter. NaN for too few.

    The measure of convergence. How often the small sample's interval holds the large one's mean is none: a steady
    figure has so narrow an interval that a shift of one percent leaves it, a wild one so wide an interval that nothing
    does.
    """
    if len(values) <= few:
        return math.nan
    return abs(ratio(mean(values[:few]), mean(values)) - 1)


def shifts(figures: Mapping[str, Sequence[float]], few: int = FEW) -> tuple[float, float]:
    """The median and the greatest `shift` of several figures; what has none is left out."""
    known = [found for values in figures.values() if math.isfinite(found := shift(values, few))]
    return median(known), percentile(known, 100)


def worst(name: str, values: Iterable[float]) -> float:
    """The worst of the repetitions of a figure, by its direction (`WORSE`)."""
    known = list(values)
    return min(known) if WORSE.get(name) == "lower" else max(known)
