"""Axes: whether they are logarithmic, their limits, and how their numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

Which = Literal["x", "y"]
LOG_FROM = 12.0
"""The greatest value is so many times the least: from here on the axis is logarithmic."""

FINE = (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
"""Ticks of a logarithmic axis that hardly spans anything."""


def fit(
    axes: Axes,
    which: Which,
    values: Iterable[float],
    *,
    zero: bool = True,
    log: bool | None = None,
    whole: bool = False,
) -> None:
    """Scale and limits for `values`. Linear axes begin at 0 unless `zero` is False; `log` None: as they are spread;
    `whole`: there are no ticks between whole numbers."""
    known = [value for value in values if math.isfinite(value)]
    positive = [value for value in known if value > 0]
    if log is None:
        log = len(positive) == len(known) > 0 and max(positive) / min(positive) >= LOG_FROM
    axis = axes.xaxis if which == "x" else axes.yaxis
    limits = axes.set_xlim if which == "x" else axes.set_ylim
    if log and positive:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log", nonpositive="clip")
        limits(min(positive) / 1.3, max(positive) * 1.3)
        _log_ticks(axis, max(positive) / min(positive))
        return
    low, high = min(known, default=0.0), max(known, default=1.0)
    low = min(0.0, low) if zero else low
    room = (high - low) or 1.0
    # Below 0 just enough that a marker on it is whole.
    limits(low - (0.025 if zero and low == 0 else 0.06) * room, high + 0.06 * room)
    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10], integer=whole))
    axis.set_major_formatter(FuncFormatter(lambda value, place: number(value)))


def name(axes: Axes, which: Which, unit: str) -> None:
    """Writes the unit along the axis, and whether it is logarithmic."""
    scale = axes.get_xscale() if which == "x" else axes.get_yscale()
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(f"{unit}, log scale" if scale == "log" else unit)


def percent(axes: Axes, which: Which) -> None:
    """Writes parts of 1 as percent."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, place: f"{100 * value:.3g} %"))


def number(value: float) -> str:
    """As short as it can be told: 0.5, 12, 3,400, 1.2 M."""
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:.4g} M"
    return f"{value:,.0f}" if abs(value) >= 1_000 or value == int(value) else f"{value:.3g}"


def _log_ticks(axis: Axis, spread: float) -> None:
    steps: tuple[float, ...] = (1.0,)
    for most, finer in ((3_000, (1.0, 3.0)), (200, (1.0, 2.0, 5.0)), (8, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)), (2, FINE)):
        steps = finer if spread < most else steps
    axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, place: number(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
