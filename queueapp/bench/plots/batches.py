"""`bench ceiling --json`: what a leader takes, by how many jobs its calls have at most, the fence live and inert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from queueapp.bench.plots import scales
from queueapp.bench.plots.files import Figures
from queueapp.bench.plots.look import QUIET, Line
from queueapp.bench.plots.sheet import Sheet, sheet

Row = Mapping[str, Any]
STAGES = {"admit": "admit alone", "dispatch": "dispatch alone", "end_to_end": "both, in a leader's rounds"}
FENCES: Mapping[str, tuple[str, str, Line]] = {"live": ("#0072B2", "o", "-"), "inert": ("#D55E00", "s", "--")}
"""Colour, marker and line; the latter's markers are hollow."""
PROMISED_PER_S = 25_000
"""In full calls (tests compare it with `experiments.ceiling`)."""
PARTS = (("per_s", "jobs/s"), ("server_us_per_job", "µs of the server's time a job"))
NOTE = (
    "All jobs wait beforehand, no worker takes any; medians over the rounds. The fence inert: the same scripts without "
    "the one question whether the term is over."
)


def plots(figures: Figures) -> Iterator[Sheet]:
    rows = [row for row in figures.rows if "batch" in row and "fence" in row]
    if rows:
        yield ceiling(figures, rows)


def ceiling(figures: Figures, rows: Sequence[Row]) -> Sheet:
    """A column for each stage: above its speed, below what it costs the server."""
    rounds = max(int(row.get("rounds", 0)) for row in rows)
    keys = [
        Line2D(
            [],
            [],
            color=colour,
            marker=marker,
            linestyle=line,
            markerfacecolor=colour if fence == "live" else "white",
            label=f"the fence {fence}",
        )
        for fence, (colour, marker, line) in FENCES.items()
    ]
    made = sheet(
        "ceiling",
        "Ceiling of scheduled dispatch: jobs per second, and the server's time of a job",
        figures.conditions(
            f"{figures.run.get('jobs', 0):,} jobs", f"policy {figures.run.get('policy')}", f"{rounds} rounds"
        ),
        rows=2,
        columns=len(STAGES),
        height=2.5,
        width=11.0,
        keys=keys,
        notes=[NOTE],
    )
    batches = sorted({int(row["batch"]) for row in rows})
    for column, (stage, title) in enumerate(STAGES.items()):
        for line, (figure, unit) in enumerate(PARTS):
            axes, name = made.axes[line][column], f"{stage}_{figure}"
            axes.set_title(title)
            shown = [value for fence in FENCES for value in _curve(axes, rows, fence, name)]
            if (stage, figure) == ("end_to_end", "per_s"):
                _promise(axes)
                shown.append(PROMISED_PER_S)
            scales.fit(axes, "y", shown, log=False)
            scales.fit(axes, "x", batches, log=len(batches) > 1, zero=False)
            axes.set_xticks(batches, [f"{batch:,}" for batch in batches])
            axes.set_ylabel(unit)
            axes.set_xlabel("most jobs of a call")
            for row in rows:
                if row.get(name) is not None:
                    made.told.append(f"{title}, {row['batch']} a call, fence {row['fence']}: {row[name]:,.4g} {unit}")
    return made


def _curve(axes: Axes, rows: Sequence[Row], fence: str, name: str) -> list[float]:
    """A line of one arm; answers its values."""
    colour, marker, line = FENCES[fence]
    points = sorted((int(row["batch"]), float(row[name])) for row in rows if row["fence"] == fence and row.get(name))
    axes.plot(
        [batch for batch, _ in points],
        [value for _, value in points],
        color=colour,
        marker=marker,
        linestyle=line,
        markerfacecolor=colour if fence == "live" else "white",
    )
    return [value for _, value in points]


def _promise(axes: Axes) -> None:
    axes.axhline(PROMISED_PER_S, color=QUIET, linewidth=1, linestyle=":")
    axes.annotate(
        f"promised in full calls: {PROMISED_PER_S:,}",
        (0.98, PROMISED_PER_S),
        xycoords=("axes fraction", "data"),
        xytext=(0, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=7.5,
        color=QUIET,
    )
