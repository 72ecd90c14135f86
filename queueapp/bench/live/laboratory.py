"""A run of the laboratory: all cells of a plan one after another, written down as each is done, then drawn.

`bench run`, `bench matrix` and `bench sweep` end here; they differ in what they cross.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from queueapp.bench.drawing import draw_run
from queueapp.bench.harness import Progress, Report
from queueapp.bench.live.cell import run_cell
from queueapp.bench.live.plan import Plan, Workloads
from queueapp.bench.results import columns
from queueapp.bench.results.cells import Cell
from queueapp.bench.results.writing import Writer, default_directory

OVERHEAD_S = 5.0
"""Of a cell, until one has been seen: the start of its processes and their end."""


class TimeLeft:
    """How long the cells that are left take: what each needs at best, and what the others took beyond that."""

    def __init__(self, plan: Plan, workloads: Workloads, cpus: int) -> None:
        needs = [plan.needs_s(workloads.of(cell), cpus) for cell in plan.cells() if cell.repetition == 1]
        self._needs_s = [*needs] * plan.profile.run.repetitions
        self._beyond_s: list[float] = []

    @property
    def cells(self) -> int:
        return len(self._needs_s)

    @property
    def seconds(self) -> float:
        left = self._needs_s[len(self._beyond_s) :]
        beyond_s = sum(self._beyond_s) / len(self._beyond_s) if self._beyond_s else OVERHEAD_S
        return sum(left) + len(left) * beyond_s

    def took(self, seconds: float) -> None:
        """One more cell is done."""
        self._beyond_s.append(max(0.0, seconds - self._needs_s[len(self._beyond_s)]))


def span(seconds: float) -> str:
    """For people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.1f} h"


def run(
    report: Report, progress: Progress, ground: Path, plan: Plan, *, results: Path | None = None, drawn: bool = True
) -> None:
    """Runs every cell. What was done stays where it was written when the run is broken off."""
    workloads, cpus = Workloads(plan), os.cpu_count() or 1
    left = TimeLeft(plan, workloads, cpus)
    for sentence in plan.left_out():
        progress.say(f"  left out: {sentence}")
    _begin(report, progress, plan, left)
    directory = (results or default_directory(report.bench)).absolute()
    with _kept(directory, progress), Writer(directory, report.bench, report.run, profile=plan.profile) as writer:
        progress.say(f"  results in {directory}")
        for number, arranged in enumerate(plan.cells(), start=1):
            title = f"  {number} of {left.cells}, {arranged.name}"
            begun = time.monotonic()

            def told(text: str, title: str = title) -> None:
                progress.show(f"{title}: {text}; about {span(left.seconds)} left")

            cell = run_cell(plan, arranged, workloads.of(arranged), f"cell-{number}", ground, told)
            left.took(time.monotonic() - begun)
            writer.add(cell)
            report.rows.append(row(writer.run, cell))
            progress.say(f"{title}: {outcome(cell)}")
    judge(report)
    draw_run(directory, progress, report.missed, drawn=drawn)


@contextmanager
def _kept(directory: Path, progress: Progress) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        progress.say(f"  stopped; the cells that were done are in {directory}")
        raise


def _begin(report: Report, progress: Progress, plan: Plan, left: TimeLeft) -> None:
    run = plan.profile.run
    report.run = {**report.run, "workers": plan.workers, "slots": plan.slots}
    progress.say(
        f"  profile {plan.profile.name}: {run.jobs:,} jobs in {plan.workers} workers with {plan.slots} slots each, "
        f"{left.cells} cells; about {span(left.seconds)}"
    )


def outcome(cell: Cell) -> str:
    """What came of a cell, in a line."""
    told = [f"{len(cell.outcomes):,} of {cell.setting.jobs:,} jobs ended"]
    if cell.outcomes:
        times = cell.summary().all
        told.append(f"p50 {times.latency_p50_ms:.0f}, p95 {times.latency_p95_ms:.0f} ms")
    told.append(f"sender at most {cell.lag_ms_max:.0f} ms late")
    if cell.dead_letters:
        told.append(f"{len(cell.dead_letters)} dead")
    if cell.timed_out:
        told.append("TIMED OUT")
    return ", ".join(told)


def row(run: str, cell: Cell) -> dict[str, Any]:
    """A cell as the JSON has it: the columns of aggregate.csv."""
    found = cell.summary() if cell.outcomes else None
    facts = [*columns.of_setting(cell.setting), *columns.of_facts(cell)]
    values = [run, cell.setting.name, *facts, *columns.figures(cell, found).values()]
    return dict(zip(columns.AGGREGATE, values, strict=True))


def judge(report: Report) -> None:
    """The figures of all cells together, and a sentence for each cell in which something is missing or double."""
    for name in ("unfinished", "lost", "recorded_twice"):
        report.figures[name] = sum(one[name] for one in report.rows)
    lags = [one["producer_lag_ms_max"] for one in report.rows if one["completed"]]
    report.figures |= {
        "cells": len(report.rows),
        "timed_out": sum(one["timed_out"] for one in report.rows),
        "producer_lag_ms_max": max(lags, default=None),
    }
    for one in report.rows:
        report.missed += missed(one)


def missed(one: Mapping[str, Any]) -> list[str]:
    """One sentence at most: every job is accounted for, and once."""
    if not (one["lost"] or one["recorded_twice"] or one["unfinished"]):
        return []
    patience = " when its time was over" if one["timed_out"] else ""
    return [
        f"{one['cell']}: of {one['jobs']} jobs {one['unfinished']} had not ended{patience}, {one['lost']} were lost, "
        f"{one['recorded_twice']} recorded twice."
    ]
