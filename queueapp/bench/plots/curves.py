"""Lines over something that grows: offered load, priority; each with its interval and its name at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes

from queueapp.bench.intervals import Interval
from queueapp.bench.plots import scales
from queueapp.bench.plots.dots import ONE
from queueapp.bench.plots.look import QUIET
from queueapp.bench.plots.series import Arm, Series
from queueapp.bench.plots.sheet import Sheet, sheet

Curve = Sequence[tuple[float, Interval]]
PARTS = (
    ("latency_p99_ms", "p99 latency", "ms"),
    ("throughput_per_s", "throughput", "jobs/s"),
    ("miss_rate", "deadlines missed", "missed"),
)
CAPACITY = "The dotted line is capacity: there work arrives as fast as the slots serve it."
APART = 0.007
"""Of the whole axis: so far beside each other stand the intervals of one place, which would else cover each other."""
BETWEEN = 10.5
"""Points between two names at the ends of lines."""


def plots(series: Series) -> Iterator[Sheet]:
    """One for all workloads that were run under several loads."""
    if series.swept:
        yield load_curves(series)


def load_curves(series: Series) -> Sheet:
    """A row for each workload: tail, throughput and misses over the load."""
    workloads = series.swept
    parts = [part for part in PARTS if any(_curves(series, name, part[0]) for name in workloads)]
    made = sheet(
        "load_curves",
        f"Over the offered load: {', '.join(title for _, title, _ in parts)}",
        series.conditions(workloads, swept=True),
        rows=len(workloads),
        columns=len(parts),
        height=2.7,
        width=3.9 * len(parts),
        notes=[f"{note(series)} {CAPACITY}"],
    )
    for row, workload in enumerate(workloads):
        for column, (figure, title, unit) in enumerate(parts):
            axes, curves = made.axes[row][column], _curves(series, workload, figure)
            axes.set_title(f"{workload.replace('_', ' ')}: {title}")
            lines(axes, series, curves, log=None if unit == "ms" else False)
            axes.axvline(1, color=QUIET, linewidth=0.9, linestyle=":")
            if figure == "miss_rate":
                scales.percent(axes, "y")
            axes.set_xlabel("offered load, in multiples of what is served")
            scales.name(axes, "y", unit)
            for arm, points in curves.items():
                words = ", ".join(f"{load:g}: {found}" for load, found in points)
                made.told.append(f"{workload}, {series.label(arm)}, {title} by load: {words}")
    return made


def note(series: Series) -> str:
    """What the bars are."""
    return ONE if series.once else "Bars are 95 % intervals (Student) over the repetitions."


def _curves(series: Series, workload: str, figure: str) -> dict[Arm, Curve]:
    found: dict[Arm, Curve] = {}
    for arm in series.arms:
        points = [(load, series.interval(arm, workload, figure, load)) for load in series.loads(workload)]
        if known := [(load, value) for load, value in points if value is not None]:
            found[arm] = known
    return found


def lines(axes: Axes, series: Series, curves: Mapping[Arm, Curve], *, log: bool | None = None) -> None:
    """A line for each arm; their names stand at their ends, apart from each other."""
    shown: list[float] = []
    ends: list[tuple[float, float, str, str]] = []
    places = [place for points in curves.values() for place, _ in points]
    apart = APART * (max(places, default=0.0) - min(places, default=0.0))
    for number, (arm, points) in enumerate(curves.items()):
        aside = apart * (number - (len(curves) - 1) / 2)
        mark = arm.mark
        middles = [found.mean for _, found in points]
        reaches = [found.half_width if found.half_width > 0 else 0.0 for _, found in points]
        axes.errorbar(
            [place + aside for place, _ in points],
            middles,
            yerr=reaches,
            color=mark.colour,
            marker=mark.marker,
            linestyle=mark.line,
            markerfacecolor=mark.colour if arm.filled else "white",
            markersize=5,
            capsize=2,
            elinewidth=1,
        )
        shown += middles
        shown += [middle + reach for middle, reach in zip(middles, reaches, strict=True)]
        ends.append((middles[-1], points[-1][0] + aside, series.label(arm), mark.ink))
    scales.fit(axes, "y", [value for value in shown if value > 0 or log is False], log=log)
    _name(axes, ends)


def _name(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Writes each name beside the end of its line, moved up or down until none covers another."""
    if not ends:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    tall = axes.get_position().height * figure.get_figheight() * 72  # in points, as good as before the layout
    whole = axes.transLimits.transform
    scaled = axes.transScale.transform
    wanted = sorted((float(whole(scaled((x, y)))[1]) * tall, y, name, colour) for y, x, name, colour in ends)
    heights = apart_by(BETWEEN, [height for height, *_ in wanted])
    # Nothing below the axis, where its numbers stand; only then nothing above the panel.
    move = min(0.0, tall - heights[-1])
    move += max(0.0, BETWEEN / 2 - heights[0] - move)
    for height, (real, y, name, colour) in zip(heights, wanted, strict=True):
        axes.annotate(
            name,
            (1.0, y),
            xycoords=("axes fraction", "data"),
            xytext=(4, height + move - real),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=colour,
            annotation_clip=False,
        )


def apart_by(least: float, wanted: Sequence[float]) -> list[float]:
    """The ascending `wanted`, moved as little as it takes that none is nearer than `least` to the next: neighbours that
    are too near become a group, which stays where it was in the mean."""
    groups: list[list[float]] = []
    for height in wanted:
        groups.append([height])
        while len(groups) > 1 and _bottom(groups[-1], least) - _top(groups[-2], least) < least:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [_bottom(group, least) + place * least for group in groups for place in range(len(group))]


def _bottom(group: Sequence[float], least: float) -> float:
    return sum(group) / len(group) - least * (len(group) - 1) / 2


def _top(group: Sequence[float], least: float) -> float:
    return _bottom(group, least) + least * (len(group) - 1)
