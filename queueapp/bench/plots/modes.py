"""Kinds of dispatch side by side: what it costs that a leader chooses, and that anybody does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from queueapp.bench.plots import dots, scales
from queueapp.bench.plots.series import Series
from queueapp.bench.plots.sheet import Sheet, sheet

PARTS = (
    ("throughput_per_s", "throughput", "jobs/s"),
    ("latency_p50_ms", "p50 latency", "ms"),
    ("latency_p99_ms", "p99 latency", "ms"),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of dispatch, as it is drawn."""

    words: str
    marker: str
    filled: bool
    aside: float
    """Where in its policy's row it stands."""


KINDS = {
    "direct": Kind("direct: the store chooses", "o", True, -0.22),
    "scheduled": Kind("scheduled: a leader chooses", "s", False, 0.0),
    "none": Kind("none: jobs go out as they come", "X", True, 0.22),
    "simulated": Kind("simulated, in virtual time", "d", False, 0.22),
}


def plots(series: Series) -> Iterator[Sheet]:
    """One, where a run has more kinds than one."""
    if len(series.dispatches) > 1:
        yield side_by_side(series)


def side_by_side(series: Series) -> Sheet:
    """A row for each policy, with a mark for each kind of dispatch; a row of panels for each workload."""
    workloads = series.panels("throughput_per_s")
    policies = list(dict.fromkeys(arm.policy for arm in series.arms))
    keys = [dots.key(kind.words, kind.marker, filled=kind.filled) for kind in map(KINDS.__getitem__, series.dispatches)]
    made = sheet(
        "dispatch_modes",
        "Dispatch by the store, by a leader, by nobody: throughput and latency",
        series.conditions(workloads),
        rows=len(workloads),
        columns=len(PARTS),
        height=dots.FRAME + 1.5 * dots.ROW * len(policies),
        width=11.0,
        keys=keys,
        notes=[dots.means(series)],
    )
    for row, workload in enumerate(workloads):
        for column, (figure, title, unit) in enumerate(PARTS):
            axes, shown = made.axes[row][column], list[float]()
            axes.set_title(f"{dots.heading(series, workload)}: {title}")
            dots.lanes(axes, policies)
            for arm in series.arms:
                known = series.interval(arm, workload, figure)
                if known is None:
                    continue
                kind = KINDS[arm.dispatch]
                place = policies.index(arm.policy) + kind.aside
                values = series.values(arm, workload, figure)
                shown += [
                    *values,
                    *dots.dot(axes, place, arm.mark.colour, kind.marker, known, values, filled=kind.filled),
                ]
                made.told.append(f"{workload}, {arm.policy}, {arm.dispatch}, {title}: {known} {unit}")
            scales.fit(axes, "x", shown, log=None if unit == "ms" else False)
            scales.name(axes, "x", unit)
    return made
