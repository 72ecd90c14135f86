"""Who waits how long: percentiles of latency, their tail, starvation, fairness as an index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from matplotlib.axes import Axes

from queueapp.bench.intervals import Interval
from queueapp.bench.plots import dots, scales
from queueapp.bench.plots.look import QUIET
from queueapp.bench.plots.series import Arm, Series
from queueapp.bench.plots.sheet import Sheet

PERCENTILES = (("latency_p50_ms", "p50", "o"), ("latency_p95_ms", "p95", "D"), ("latency_p99_ms", "p99", ">"))
"""Figure, its name and its marker."""
BANDS = "Marks are means over the repetitions, pale bands their 95 % intervals (Student)."
TAIL_RATIO = dots.Figure(
    "tail_ratio",
    "Tail of the latency: p99 in multiples of p50",
    "tail_ratio",
    "p99 / p50",
    note="The latency that one job in a hundred exceeds, in multiples of the one that every second job exceeds.",
)
JAIN_NOTE = (
    "At the right: over service | over jobs. 1: all tenants had the same; 1/n: one had it all (broken line). Where "
    "tenants ask for unequal amounts and all get them, the index says how unequal those are: read it with their waits."
)

LONGEST = dots.Figure("starvation", "Starvation: the longest wait of any job, in ms", "wait_max_ms", "ms", log=None)
STARVED = dots.Figure("starvation", "Jobs that waited too long", "starved", "jobs", whole=True)


def plots(series: Series) -> Iterator[Sheet]:
    """Those that the run has figures for."""
    if series.panels("latency_p50_ms"):
        yield percentiles(series)
    if series.panels("tail_ratio"):
        yield dots.single(series, TAIL_RATIO)
    if series.panels("jain_service"):
        yield jain(series)
    if series.panels("wait_max_ms"):
        yield starvation(series)


def percentiles(series: Series) -> Sheet:
    """A line from p50 over p95 to p99 for each arm."""
    workloads = series.panels("latency_p50_ms")
    made = dots.grid(
        series,
        "latency_percentiles",
        "Latency from planned arrival to end: p50, p95 and p99, in ms",
        workloads,
        keys=[dots.key(name, marker) for _, name, marker in PERCENTILES],
        notes=[dots.ONE if series.once else BANDS],
    )
    for number, workload in enumerate(workloads):
        axes, shown = made.panel(number, dots.heading(series, workload)), list[float]()
        for place, arm in dots.rows(axes, series, workload):
            known = [
                (name, marker, found)
                for attribute, name, marker in PERCENTILES
                if (found := series.interval(arm, workload, attribute)) is not None
            ]
            _reach(axes, place, arm, [found.mean for _, _, found in known])
            for _, marker, found in known:
                shown += _banded(axes, place, arm, marker, found)
            words = ", ".join(f"{name} {found}" for name, _, found in known)
            made.told.append(f"{workload}, {series.label(arm)}: {words} ms")
        scales.fit(axes, "x", [value for value in shown if value > 0])
        scales.name(axes, "x", "ms")
    return made


def _reach(axes: Axes, place: float, arm: Arm, means: Sequence[float]) -> None:
    """The line that holds the percentiles of one arm together."""
    line = "-" if arm.filled else ":"
    axes.plot(means, [place] * len(means), color=arm.mark.colour, linewidth=1.8, linestyle=line, zorder=1.8)


def _banded(axes: Axes, place: float, arm: Arm, marker: str, known: Interval) -> list[float]:
    """A mean on its interval; answers what the axis must have room for."""
    colour = arm.mark.colour
    axes.plot(
        [known.mean],
        [place],
        marker,
        markersize=6,
        color=colour,
        markerfacecolor=colour if arm.filled else "white",
        markeredgewidth=1.3,
        zorder=3,
    )
    if not known.half_width > 0:
        return [known.mean]
    axes.plot(
        [known.low, known.high],
        [place, place],
        color=colour,
        alpha=0.25,
        linewidth=9,
        solid_capstyle="butt",
        zorder=1.5,
    )
    return [known.mean, known.high]


def jain(series: Series) -> Sheet:
    """Both indices of each arm above the floor."""
    workloads = series.panels("jain_service")
    keys = [dots.key("over service (time of slots)", "o"), dots.key("over the number of jobs", "o", filled=False)]
    made = dots.grid(
        series,
        "jain",
        "Jain's fairness index over the tenants",
        workloads,
        keys=keys,
        notes=[dots.means(series), JAIN_NOTE],
    )
    for number, workload in enumerate(workloads):
        axes = made.panel(number, dots.heading(series, workload))
        floor = 1 / max(1, series.tenant_count(workload))
        for place, arm in dots.rows(axes, series, workload):
            service = series.interval(arm, workload, "jain_service")
            count = series.interval(arm, workload, "jain_count")
            if service is None:
                continue
            values = series.values(arm, workload, "jain_service")
            dots.of_arm(axes, place, arm, service, values)
            if count is not None:
                _hollow(axes, place, arm, count)
            dots.beside(axes, place, f"{service.mean:.3f} | {count.mean:.3f}" if count else f"{service.mean:.3f}")
            made.told.append(
                f"{workload}, {series.label(arm)}: over service {service}, over count {count}; floor {floor:.3g}"
            )
        axes.axvline(floor, color=QUIET, linewidth=1, linestyle="--")
        axes.annotate(
            f"1/n = {floor:.3g}",
            (floor, -0.6),
            xytext=(3, 0),
            textcoords="offset points",
            va="top",
            fontsize=7.5,
            color=QUIET,
        )
        axes.set_xlim(0, 1.04)
        axes.set_xlabel("index")
    return made


def _hollow(axes: Axes, place: float, arm: Arm, known: Interval) -> None:
    mark = arm.mark
    axes.plot(
        [known.mean],
        [place],
        marker=mark.marker,
        markersize=9.5,
        markerfacecolor="none",
        markeredgecolor=mark.colour,
        markeredgewidth=1.1,
        linestyle="none",
    )


def starvation(series: Series) -> Sheet:
    """The longest wait; beside it, where any did, how many waited longer than the threshold."""
    workloads = series.panels("wait_max_ms")
    if not any(value for name in workloads for arm in series.arms for value in series.values(arm, name, "starved")):
        longest = max(series.starving_ms(name) for name in workloads) / 1000
        return dots.single(series, replace(LONGEST, note=f"No job waited longer than {longest:g} s."))
    made = dots.grid(
        series,
        "starvation",
        "Starvation: the longest wait of any job, and how many waited too long",
        workloads,
        across=2,
        notes=[dots.means(series)],
    )
    for number, workload in enumerate(workloads):
        limit_s = series.starving_ms(workload) / 1000
        longest_axes, count_axes = made.axes[number]
        longest_axes.set_title(f"{dots.heading(series, workload)}: longest wait")
        dots.fill(made, series, workload, longest_axes, LONGEST)
        count_axes.set_title(f"{dots.heading(series, workload)}: jobs that waited longer than {limit_s:g} s")
        dots.fill(made, series, workload, count_axes, STARVED)
    return made
