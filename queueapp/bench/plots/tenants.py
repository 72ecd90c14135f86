"""Who pays: each tenant beside the others, big against small; each priority beside the others."""

from __future__ import annotations

from collections.abc import Iterator

from matplotlib.axes import Axes

from queueapp.bench.intervals import interval
from queueapp.bench.plots import dots, scales
from queueapp.bench.plots.curves import lines, note
from queueapp.bench.plots.look import INK
from queueapp.bench.plots.series import Arm, Series
from queueapp.bench.plots.sheet import Sheet, sheet

PARTS = (("wait_p95_ms", "wait_p50_ms", "wait"), ("latency_p95_ms", "latency_p50_ms", "latency"))
"""The figure, the one instead where a tenant has too few jobs for it, and in a word."""
SKEW_NOTE = (
    "Each mark is one tenant, the mean of its p95 over the repetitions; where it has fewer than the 20 jobs that a p95 "
    "takes, of its median."
)


def plots(series: Series) -> Iterator[Sheet]:
    """Those that the run has something for."""
    if workloads := [name for name in series.workloads if series.tenant_count(name) > 1]:
        yield skew(series, workloads)
    if workloads := [name for name in series.workloads if _several_levels(series, name)]:
        yield priorities(series, workloads)


def skew(series: Series, workloads: list[str]) -> Sheet:
    """Waits and latencies of every tenant, in a row for each arm."""
    keys = [
        dots.key("the big tenant, which sends more than half: p95", "s", size=8),
        dots.key("another tenant: p95", "o", filled=False),
        dots.key("its median: it has few jobs", "d", filled=False),
    ]
    made = dots.grid(
        series,
        "tenant_skew",
        "Tenants: each one's p95 wait and p95 latency, in ms",
        workloads,
        keys=keys,
        notes=[SKEW_NOTE],
        across=2,
    )
    for number, workload in enumerate(workloads):
        big = series.big(workload)
        for column, (figure, instead, word) in enumerate(PARTS):
            axes, shown = made.axes[number][column], list[float]()
            axes.set_title(f"{dots.heading(series, workload)}: {word}")
            for place, arm in dots.rows(axes, series, workload):
                known = series.tenants(arm, workload, figure)
                fewer = {
                    tenant: values
                    for tenant, values in series.tenants(arm, workload, instead).items()
                    if tenant not in known
                }
                means = {tenant: interval(values) for tenant, values in {**known, **fewer}.items()}
                for tenant, found in means.items():
                    _tenant(axes, place, arm, found.mean, big=tenant == big, few=tenant in fewer)
                    shown.append(found.mean)
                told = ", ".join(f"{tenant} {found}" for tenant, found in sorted(means.items())[:12])
                more = f", and {len(means) - 12} more" if len(means) > 12 else ""
                made.told.append(f"{workload}, {series.label(arm)}, {word} in ms: {told}{more}")
            scales.fit(axes, "x", [value for value in shown if value > 0], log=True)
            scales.name(axes, "x", "ms")
    return made


def _tenant(axes: Axes, place: float, arm: Arm, mean: float, *, big: bool, few: bool) -> None:
    colour = arm.mark.colour
    axes.plot(
        [mean],
        [place],
        marker="s" if big else "d" if few else "o",
        markersize=8 if big else 6.5,
        linestyle="none",
        markerfacecolor=colour if big else "none",
        markeredgecolor=INK if big else colour,
        markeredgewidth=1.3,
        alpha=0.85,
        zorder=3 if big else 2.5,
    )


def priorities(series: Series, workloads: list[str]) -> Sheet:
    """A line for each arm over the levels of priority."""
    columns = min(2, len(workloads))
    made = sheet(
        "priority_starvation",
        "Waits by priority: p95 wait of the jobs of each level, in ms",
        series.conditions(workloads),
        rows=-(-len(workloads) // columns),
        columns=columns,
        height=2.7,
        notes=[note(series)],
    )
    made.hide_from(len(workloads))
    for number, workload in enumerate(workloads):
        axes = made.panel(number, dots.heading(series, workload))
        curves = {}
        for arm in series.arms:
            levels = series.priorities(arm, workload)
            if levels:
                curves[arm] = [(float(level), interval(values)) for level, values in sorted(levels.items())]
        lines(axes, series, curves)
        for arm, points in curves.items():
            told = ", ".join(f"{level:g}: {found}" for level, found in points)
            made.told.append(f"{workload}, {series.label(arm)}, p95 wait in ms by priority: {told}")
        axes.set_xticks(sorted({level for points in curves.values() for level, _ in points}))
        axes.set_xlabel("priority: the greater, the more urgent")
        scales.name(axes, "y", "ms")
    return made


def _several_levels(series: Series, workload: str) -> bool:
    return any(len(series.priorities(arm, workload)) > 1 for arm in series.arms)
