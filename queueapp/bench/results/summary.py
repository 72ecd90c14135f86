"""`summary.csv` and `summary.md`: means over repetitions, each with its interval and the number that it is of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from queueapp.bench.intervals import CONFIDENCE, interval, worst
from queueapp.bench.results.cells import Setting, State
from queueapp.bench.results.columns import FIGURES
from queueapp.bench.results.rows import Value, write

CSV, MARKDOWN = "summary.csv", "summary.md"
COLUMNS = ("run", "policy", "dispatch", "workload", "load", "cells", "timed_out", "unfinished", "figure", "n", "mean")
BOUNDS = ("low", "high", "worst")
SHOWN: Mapping[str, str] = {
    "latency_p50_ms": "p50 ms",
    "latency_p95_ms": "p95 ms",
    "latency_p99_ms": "p99 ms",
    "tail_ratio": "p99/p50",
    "wait_max_ms": "longest wait ms",
    "miss_rate": "missed",
    "starved": "starved",
    "dead": "dead",
    "throughput_per_s": "jobs/s",
    "utilisation": "busy",
    "jain_service": "Jain (service)",
    "jain_count": "Jain (jobs)",
}
"""Figure → heading in Markdown."""
NONE = "-"
"""A figure that there is not, or that so few jobs do not support."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the tables need of a cell."""

    run: str
    setting: Setting
    state: State
    unfinished: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """Cells of one arm are repetitions of each other: they differ in the seed."""

    workload: str
    load: float
    policy: str
    dispatch: str


def arm(setting: Setting) -> Arm:
    return Arm(setting.workload, setting.load, setting.policy, setting.dispatch)


def arms(rows: Iterable[Row]) -> dict[Arm, list[Row]]:
    """The repetitions of each arm, in the order in which the arms came."""
    found: dict[Arm, list[Row]] = {}
    for row in rows:
        found.setdefault(arm(row.setting), []).append(row)
    return found


def write_tables(directory: Path, bench: str, rows: Iterable[Row]) -> None:
    """Both files."""
    found = arms(rows)
    with (directory / CSV).open("w", encoding="utf-8", newline="") as file:
        write(file, [COLUMNS + BOUNDS])
        for key, members in found.items():
            write(file, _means(key, members))
    (directory / MARKDOWN).write_text("\n".join(_markdown(bench, found)) + "\n", encoding="utf-8")


def _means(key: Arm, rows: Sequence[Row]) -> Iterator[list[Value]]:
    runs = " ".join(dict.fromkeys(row.run for row in rows))
    timed_out = sum(row.state == "timed_out" for row in rows)
    whose: list[Value] = [runs, key.policy, key.dispatch, key.workload, key.load, len(rows), timed_out]
    for name in FIGURES:
        values = [row.figures[name] for row in rows]
        known = interval(values)
        most = worst(name, values) if math.isfinite(known.mean) else math.nan
        bounds = [known.low, known.high, most]
        yield [*whose, sum(row.unfinished for row in rows), name, known.count, known.mean, *bounds]


def _markdown(bench: str, found: Mapping[Arm, Sequence[Row]]) -> Iterator[str]:
    yield f"# {bench}"
    yield ""
    yield f"Means over the repetitions, ± {CONFIDENCE * 100:g} % (Student); n is their number. No warm-up is left out."
    yield f"`{NONE}`: there is no such figure, or the jobs are too few for it."
    marked = False
    for workload, load in dict.fromkeys((key.workload, key.load) for key in found):
        yield from ("", f"## {workload}, load {load:.3g}", "")
        headings = ("policy", "dispatch", "n", *SHOWN.values())
        yield "| " + " | ".join(headings) + " |"
        yield "|---|---|" + "---:|" * (len(headings) - 2)
        for key, rows in found.items():
            if (key.workload, key.load) != (workload, load):
                continue
            part = any(row.state != "complete" for row in rows)
            marked |= part
            cells = [str(interval(row.figures[name] for row in rows)) for name in SHOWN]
            told = [key.policy, key.dispatch, f"{len(rows)}{'*' if part else ''}", *cells]
            yield "| " + " | ".join(told) + " |"
    if marked:
        yield from ("", "\\* Some cells were not finished, or not in time: these figures are of a part of the jobs.")
