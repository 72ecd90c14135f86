"""One run with very many items: how fast they go through, and that no tick grows with their number.

A worker with its slots in this process runs them all, so that its memory and its ticks can be watched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows import RunHandle, coordinator, models
from flows.definition import Definition
from flows.snapshot import ITEMS_PER_TICK, Decision, Snapshot
from queueapp.bench.flow_work import FAN, fan
from queueapp.bench.harness import Progress, Report
from queueapp.bench.listening import heard
from queueapp.bench.statistics import ratio
from queueapp.bench.worker_thread import worker_thread

SLOTS = 4
OWN_ROWS = 10
"""Of the run, its steps and its commands: so many a tick may see or write beside the items it counts."""
LOOK_S = 0.1
PATIENCE_S = 60.0
SLOWEST_PER_S = 20.0
"""An item a second that is slower than this is a standstill."""
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MIB = 1024


class _Asked(threading.local):
    since_write = 0
    ticked = False


@dataclass
class Ticks:
    """What ticks came to. Numbers alone: a million items must not fill the memory that is measured."""

    number: int = 0
    shown: int = 0
    """Most rows that one was shown."""
    written: int = 0
    """Most rows that one wrote: the run, steps, items that are counted, commands."""
    queries: int = 0
    """Most statements of a thread from one commit to the next with a tick between them."""

    def __post_init__(self) -> None:
        self._asked = _Asked()

    def queried(self, sql: str, in_transaction: bool, begun_s: float, ended_s: float) -> None:
        self._asked.since_write += 1
        if not in_transaction and not sql.startswith(("SELECT", "BEGIN")):
            self._forget()

    def committed(self, begun_s: float, ended_s: float) -> None:
        if self._asked.ticked:
            self.queries = max(self.queries, self._asked.since_write)
        self._forget()

    def ticked(self, snapshot: Snapshot, decision: Decision) -> None:
        self._asked.ticked = True
        self.number += 1
        items = sum(len(reports) for reports in snapshot.items.values())
        self.shown = max(self.shown, 1 + len(snapshot.steps) + items + len(snapshot.events))
        changes = decision.changes
        if changes is not None:
            counted = sum(len(one.ended) + len(one.again) for one in changes.counted)
            self.written = max(self.written, 1 + len(changes.steps) + counted + len(decision.commands))

    def _forget(self) -> None:
        self._asked.since_write, self._asked.ticked = 0, False


def run(report: Report, progress: Progress, *, items: int) -> None:
    """One run with so many items, to its end."""
    ticks = Ticks()
    with heard(ticks), _counted(ticks), worker_thread(FAN, slots=SLOTS):
        before_mib = _memory_mib(reset=True)
        begun = time.monotonic()
        handle: RunHandle = fan.using(tenant="runs").start(items)
        _await(handle, progress, items)
        seconds, peak_mib = time.monotonic() - begun, _memory_mib()
    output: Mapping[str, int] = handle.output
    report.figures |= {
        "items": items,
        "items_completed": output["completed"],
        "items_per_s": ratio(items, seconds),
        "fan_rss_before_mib": before_mib,
        "fan_rss_peak_mib": peak_mib,
        "ticks": ticks.number,
        "tick_rows_shown_max": ticks.shown,
        "tick_rows_written_max": ticks.written,
        "tick_queries_max": ticks.queries,
    }
    memory = f"{before_mib:,.0f} MiB before, {peak_mib:,.0f} at most" if peak_mib and before_mib else "memory unknown"
    progress.say(f"  {items:>11,} items {ratio(items, seconds):6,.0f} items/s; {memory}")
    progress.say(
        f"  {ticks.number:>11,} ticks, of which none saw more than {ticks.shown:,} rows, wrote more than "
        f"{ticks.written:,}, or made more than {ticks.queries} statements"
    )


def judge(report: Report) -> None:
    """A sentence for each bound that a tick passed, and for items that are missing."""
    figures = report.figures
    for what, words in (("shown", "was shown"), ("written", "wrote")):
        found = figures[f"tick_rows_{what}_max"] or 0
        if found > ITEMS_PER_TICK + OWN_ROWS:
            report.missed.append(
                f"A tick {words} {found:,} rows; at most {ITEMS_PER_TICK} items and {OWN_ROWS} of the run are promised."
            )
    if figures["items_completed"] != figures["items"]:
        report.missed.append(f"{figures['items_completed']:,} of {figures['items']:,} items completed.")


@contextmanager
def _counted(ticks: Ticks) -> Iterator[None]:
    """Every tick of this process is counted."""
    tick = coordinator.tick

    def counted(definition: Definition, snapshot: Snapshot, now_ms: int, gone: Any = ()) -> Decision:
        decision = tick(definition, snapshot, now_ms, gone)
        ticks.ticked(snapshot, decision)
        return decision

    coordinator.tick = counted
    try:
        yield
    finally:
        coordinator.tick = tick


def _await(handle: RunHandle, progress: Progress, items: int) -> None:
    end = time.monotonic() + PATIENCE_S + items / SLOWEST_PER_S
    while not handle.refresh().row.has_ended:
        if time.monotonic() > end:
            raise TimeoutError(f"The run with {items:,} items has not ended; it is {handle.state}.")
        done = models.StepRun.objects.filter(run_id=handle.id).values_list("completed", "failed").order_by("-listed")
        completed, failed = done.first() or (0, 0)
        progress.show(f"  {completed + failed:,} of {items:,} items have ended")
        time.sleep(LOOK_S)


def _memory_mib(*, reset: bool = False) -> float | None:
    """Most memory of this process since the last reset, where Linux tells it."""
    with suppress(OSError):
        if reset:
            CLEAR.write_text("5")
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / MIB
    return None
