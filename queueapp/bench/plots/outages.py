"""`bench failover --json`: how long nobody dispatched, trial by trial, a row for each arm and length of the lease."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from queueapp.bench.plots import dots, scales
from queueapp.bench.plots.files import Figures
from queueapp.bench.plots.look import INK, WARNING
from queueapp.bench.plots.sheet import Sheet, sheet
from queueapp.bench.statistics import percentile

COLOUR, WINDOW = "#0072B2", "#F3D9A4"
LEAST_MS = 1.0
"""The store's stamps are whole milliseconds: what is shorter stands here."""
ARMS = {
    "none": "none: nothing happens",
    "graceful": "graceful: SIGTERM",
    "crash": "crash: SIGKILL",
    "single": "single: SIGKILL, no standby",
    "pause": "pause: SIGSTOP, SIGCONT",
    "direct": "direct: SIGKILL, store chooses",
    "worker": "worker: SIGKILL to a worker",
}
NOTE = (
    "Each dot is one trial, from the last dispatch of the old term to the first of the next, by the store's stamps; "
    "none, direct: the longest gap; worker: from the kill until the last of its jobs runs elsewhere."
)


@dataclass(frozen=True, slots=True)
class Row:
    """The trials of an arm under one lease."""

    arm: str
    ttl_s: float | None
    trials: Sequence[Mapping[str, Any]]

    @property
    def label(self) -> str:
        name = ARMS.get(self.arm, self.arm)
        return name if self.ttl_s is None else f"{name}, lease {self.ttl_s:g} s"

    @property
    def outages(self) -> list[float]:
        return [max(LEAST_MS, float(trial["outage_ms"])) for trial in self.trials if trial["outage_ms"] is not None]

    def percentile(self, percent: float) -> float | None:
        """A trial after which nobody followed counts as longer than any other; None where it falls on one."""
        known, censored = self.outages, self.censored
        if not known or math.ceil((len(self.trials) - 1) * percent / 100) >= len(known):
            return None
        return percentile([*known, *[max(known)] * censored], percent)

    @property
    def censored(self) -> int:
        """Trials after which nobody followed."""
        return sum(trial["outage_ms"] is None for trial in self.trials)

    def at(self, name: str) -> list[float]:
        """What the trials say of it, where they do."""
        return [float(value) for trial in self.trials if (value := trial.get(name)) is not None]


def plots(figures: Figures) -> Iterator[Sheet]:
    if rows := _rows(figures.rows):
        yield outages(figures, rows)


def _rows(trials: Sequence[Mapping[str, Any]]) -> list[Row]:
    found: dict[tuple[str, float | None], list[Mapping[str, Any]]] = {}
    for trial in trials:
        found.setdefault((str(trial["arm"]), trial.get("ttl_s")), []).append(trial)
    known = list(ARMS)

    def order(key: tuple[str, float | None]) -> tuple[int, float]:
        return known.index(key[0]) if key[0] in known else len(known), key[1] or 0.0

    return [Row(arm, ttl_s, found[arm, ttl_s]) for arm, ttl_s in sorted(found, key=order)]


def outages(figures: Figures, rows: Sequence[Row]) -> Sheet:
    """Dots, the middle half and the median of each row; what the lease predicts as a band; the censored hatched."""
    keys = [
        dots.key("one trial", "o"),
        dots.key("median, in a box of the middle half", "|", size=11),
        Patch(facecolor=WINDOW, label="as the lease predicts"),
        Patch(facecolor="white", edgecolor=WARNING, hatch="////", label="nobody followed within the limit"),
    ]
    made = sheet(
        "failover_outages",
        "Failover: how long nothing is dispatched, in ms",
        figures.conditions(f"{len(figures.rows)} trials"),
        rows=1,
        columns=1,
        height=dots.FRAME + 0.42 * len(rows),
        keys=keys,
        notes=[NOTE],
    )
    axes = made.panel(0, "")
    dots.lanes(axes, [row.label for row in rows])
    limits = [limit for row in rows if row.censored for limit in row.at("limit_ms")]
    scales.fit(
        axes,
        "x",
        [LEAST_MS, *(value for row in rows for value in row.outages), *(2.5 * value for value in limits)],
        log=True,
    )
    for place, row in enumerate(rows):
        _window(axes, place, row)
        _trials(axes, place, row)
        made.told.append(f"{row.label}: {_words(row)}")
        dots.beside(axes, place, _words(row))
    scales.name(axes, "x", "ms without a dispatch")
    return made


def _window(axes: Axes, place: int, row: Row) -> None:
    low, high = row.at("predicted_low_ms"), row.at("predicted_high_ms")
    if low and high:
        least = max(min(low), axes.get_xlim()[0])
        axes.add_patch(
            Rectangle((least, place - 0.4), max(high) - least, 0.8, facecolor=WINDOW, linewidth=0, zorder=0.8)
        )


def _trials(axes: Axes, place: int, row: Row) -> None:
    outages = row.outages
    low, middle, high = (row.percentile(percent) for percent in (25, 50, 75))
    if low is not None and high is not None:
        axes.add_patch(
            Rectangle((low, place - 0.26), high - low, 0.52, facecolor="none", edgecolor=INK, linewidth=1, zorder=2)
        )
    if middle is not None:
        axes.plot([middle, middle], [place - 0.32, place + 0.32], color=INK, linewidth=2.2, zorder=3)
    # Spread over the row by a fixed pattern: trials of one length would else cover each other.
    spread = [0.2 * math.sin(2.4 * number) for number in range(len(outages))]
    axes.plot(
        outages,
        [place + aside for aside in spread],
        "o",
        color=COLOUR,
        alpha=0.65,
        markersize=4.5,
        markeredgewidth=0,
        zorder=2.5,
    )
    if row.censored:
        limit, end = max(row.at("limit_ms"), default=axes.get_xlim()[1] / 2), axes.get_xlim()[1]
        never = Rectangle((limit, place - 0.3), end - limit, 0.6, facecolor="white", edgecolor=WARNING, hatch="////")
        axes.add_patch(never)


def _words(row: Row) -> str:
    told = {"median": row.percentile(50), "worst": row.percentile(100)}
    found = [f"{name} {scales.number(round(value))} ms" for name, value in told.items() if value is not None]
    if row.censored:
        limits = row.at("limit_ms")
        within = f" within {max(limits) / 1000:g} s" if limits else ""
        found.append(f"{row.censored} of {len(row.trials)} never recovered{within}")
    return ", ".join(found)
