"""Rows of arms with a dot for each figure, its interval, and pale the single repetitions: a panel for each workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from queueapp.bench.intervals import Interval
from queueapp.bench.plots import scales
from queueapp.bench.plots.look import FAINT, QUIET
from queueapp.bench.plots.series import Arm, Series
from queueapp.bench.plots.sheet import Sheet, sheet

ROW = 0.27
"""Height of an arm's row, in inches."""
FRAME = 0.75
"""Of a panel's title, ticks and label."""
INTERVALS = "Dots are means over the repetitions, bars their 95 % intervals (Student), pale dots single repetitions."
ONE = "A single repetition: how far the next would be from it is not known."


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a cell that one plot shows."""

    name: str
    """Of the file."""
    title: str
    attribute: str
    axis: str
    """What is written along it."""
    percent: bool = False
    note: str = ""
    log: bool | None = False
    """None: as the values are spread."""
    whole: bool = False


FIGURES = (
    Figure("throughput", "Throughput: jobs completed per second of the makespan", "throughput_per_s", "jobs/s"),
    Figure(
        "deadline_misses",
        "Deadlines missed, in percent of the completed jobs that have one",
        "miss_rate",
        "missed",
        percent=True,
    ),
    Figure(
        "utilisation",
        "Utilisation: percent of the slots' time in which they ran jobs",
        "utilisation",
        "busy",
        percent=True,
    ),
)


def figures(series: Series) -> Iterator[Sheet]:
    """A plot for each of `FIGURES` that the run has."""
    for figure in FIGURES:
        if series.panels(figure.attribute):
            yield single(series, figure)


def single(series: Series, figure: Figure) -> Sheet:
    """One figure of each arm, with its interval in words at the right."""
    made = grid(series, figure.name, figure.title, series.panels(figure.attribute), notes=[means(series), figure.note])
    for number, workload in enumerate(series.panels(figure.attribute)):
        fill(made, series, workload, made.panel(number, heading(series, workload)), figure)
    return made


def fill(made: Sheet, series: Series, workload: str, axes: Axes, figure: Figure) -> None:
    """One panel of it, and what it says in words."""
    shown: list[float] = []
    for place, arm in rows(axes, series, workload):
        values = series.values(arm, workload, figure.attribute)
        known = series.interval(arm, workload, figure.attribute)
        if known is None:
            continue
        shown += [*values, *of_arm(axes, place, arm, known, values)]
        words = told(known, percent=figure.percent)
        beside(axes, place, words)
        made.told.append(f"{workload}, {series.label(arm)}: {words} {'' if figure.percent else figure.axis}".rstrip())
    scales.fit(axes, "x", shown, log=figure.log, whole=figure.whole)
    if figure.percent:
        scales.percent(axes, "x")
    scales.name(axes, "x", figure.axis)


# -- parts of such plots ---------------------------------------------------------------------------------------------


def grid(
    series: Series,
    name: str,
    title: str,
    workloads: Sequence[str],
    *,
    keys: Sequence[Artist] = (),
    notes: Sequence[str] = (),
    across: int = 1,
) -> Sheet:
    """A sheet with a panel for each workload, two in a row; `across` panels for each of them instead, side by side."""
    columns = across if across > 1 else min(2, len(workloads))
    panels = len(workloads) * across
    most = max(len(series.present(workload)) for workload in workloads)
    made = sheet(
        name,
        title,
        series.conditions(workloads),
        rows=-(-panels // columns),
        columns=columns,
        height=FRAME + ROW * most,
        keys=keys,
        notes=[note for note in notes if note],
        width=10.0 if columns > 1 else 7.5,
    )
    made.hide_from(panels)
    return made


def means(series: Series) -> str:
    """The note of plots with means and their intervals."""
    return ONE if series.once else INTERVALS


def heading(series: Series, workload: str) -> str:
    return workload.replace("_", " ")


def rows(axes: Axes, series: Series, workload: str) -> Iterator[tuple[int, Arm]]:
    """The arms from top to bottom, each with the height of its row."""
    arms = series.present(workload)
    lanes(axes, [series.label(arm) for arm in arms])
    yield from enumerate(arms)


def lanes(axes: Axes, names: Sequence[str]) -> None:
    """A named row for each, from top to bottom."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    for place in range(len(names)):
        axes.axhline(place, color=FAINT, linewidth=0.6, zorder=0.5)


def of_arm(axes: Axes, place: float, arm: Arm, known: Interval, values: Sequence[float] = ()) -> list[float]:
    """`dot` in the colour and with the marker of the arm."""
    return dot(axes, place, arm.mark.colour, arm.mark.marker, known, values, filled=arm.filled)


def dot(
    axes: Axes,
    place: float,
    colour: str,
    marker: str,
    known: Interval,
    values: Sequence[float] = (),
    *,
    filled: bool = True,
    size: float = 6.5,
) -> list[float]:
    """A mean with its interval, and pale its repetitions. Answers what the axis must have room for."""
    if len(values) > 1:
        axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.3, markersize=3.5, markeredgewidth=0)
    reach = known.half_width if known.half_width > 0 else 0.0
    axes.errorbar(
        [known.mean],
        [place],
        xerr=[[reach], [reach]] if reach else None,
        marker=marker,
        markersize=size,
        color=colour,
        markerfacecolor=colour if filled else "white",
        markeredgecolor=colour,
        markeredgewidth=1.3,
        capsize=3,
        elinewidth=1.3,
    )
    return [known.mean, max(0.0, known.mean - reach), known.mean + reach] if reach else [known.mean]


def beside(axes: Axes, place: float, words: str) -> None:
    """`words` at the right of the panel, in line with a row."""
    axes.annotate(
        words,
        (1.0, place),
        xycoords=("axes fraction", "data"),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=QUIET,
        annotation_clip=False,
    )


def told(known: Interval, *, percent: bool = False) -> str:
    """The interval in words."""
    if not percent:
        return str(known)
    scaled = Interval(count=known.count, mean=100 * known.mean, half_width=100 * known.half_width)
    return f"{scaled} %"


def key(words: str, marker: str, *, filled: bool = True, size: float = 6.0) -> Line2D:
    """An entry of the legend, in grey: colours are told by the rows."""
    return Line2D(
        [],
        [],
        marker=marker,
        linestyle="none",
        color=QUIET,
        markerfacecolor=QUIET if filled else "white",
        markersize=size,
        label=words,
    )
