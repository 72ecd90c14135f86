"""A run as rows, read for a tick and written after it. What the columns mean: `snapshot`; who calls it: `runtime`.

Nothing here is locked while it is read. The row of the run comes first, and is the first to be written, under its
`lock`: if it has moved on since, nothing else is written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from django.db.models import F

from flows import models, statements
from flows.definition import Definition, StepDefinition
from flows.snapshot import (
    ENDED_STEPS,
    ITEMS_PER_TICK,
    Changes,
    Counted,
    Ending,
    Event,
    ItemReport,
    Report,
    Run,
    Snapshot,
    StepRun,
    Timer,
)
from flows.values import WITHHELD

OUTPUT_BYTES = 64 * 1024
"""Of larger outputs a tick sees only that they are there."""

_RUN = {
    "state": "state",
    "ended_ms": "ended_ms",
    "cause": "cause",
    "note": "note",
    "ends": "ends",
    "round": "round",
    "watch_ms": "watch_ms",
    "watches": "watches",
}
_STEP = (
    "state",
    "attempt",
    "losses",
    "error",
    "skipped",
    "started_ms",
    "ended_ms",
    "due_ms",
    "requeues",
    "withdrawn",
    "place",
    "listed",
    "total",
    "asked",
    "issued",
    "completed",
    "failed",
    "recounted",
)
_READ = ("id", "step", *_STEP, "output_bytes", "report_attempt", "report_ending", "report_error", "output")
_BY_LISTER = frozenset({"listed", "total"})
"""Columns of a map that whoever lists its items writes, too."""


def read_run(row: models.Run) -> Run:
    """The run as ticks see it."""
    return Run(
        id=row.id,
        flow=row.flow,
        definition=row.definition,
        input=row.input,
        tenant=row.tenant or None,
        state=row.state,  # type: ignore[arg-type]  # its choices
        version=row.lock,
        started_ms=row.started_ms,
        ended_ms=row.ended_ms,
        cause=row.cause,
        note=row.note,
        ends=row.ends,
        round=row.round,
        watch_ms=row.watch_ms,
        watches=row.watches,
    )


class Seen:
    """A run as it was read, and what its rows are called in the database."""

    def __init__(
        self, row: models.Run, definition: Definition, fired: Timer | None = None, *, fresh: bool = False
    ) -> None:
        """`fresh`: it has no other rows yet."""
        self.row = row
        self.definition = definition
        self.ids: dict[str, int] = {}
        """Step → its row."""
        if fresh:
            self.snapshot = Snapshot(run=read_run(row))
            return
        steps = self._steps()
        items, more = self._items(steps)
        self.snapshot = Snapshot(
            run=read_run(row), steps=steps, items=items, more=more, events=self._events(steps), fired=fired
        )

    def _steps(self) -> dict[str, StepRun]:
        looked_at = self.definition.looked_at()
        rows = statements.select(
            models.StepRun, _READ, {"run_id": self.row.id}, instead={"output": _shown(sorted(looked_at))}
        )
        found = {}
        for row_id, step, *values, output_bytes, attempt, ending, error, output in rows:
            columns = dict(zip(_STEP, values, strict=True))
            if output_bytes > OUTPUT_BYTES and step not in looked_at:
                output = WITHHELD
            report = None
            if ending and attempt == columns["attempt"]:
                report = Report(attempt=attempt, ending=ending, output=output, error=error)
            kept = output if columns["state"] == "completed" else None
            self.ids[step] = row_id
            found[step] = StepRun(step=step, output=kept, report=report, **columns)
        return found

    def _items(self, steps: Mapping[str, StepRun]) -> tuple[dict[str, tuple[ItemReport, ...]], bool]:
        """Ended items of maps that run, not counted yet."""
        maps = {self.ids[name]: name for name, row in steps.items() if row.state == "running" and row.listed}
        if not maps:
            return {}, False
        ended = models.ItemRun.objects.filter(step_run_id__in=maps, state=models.ItemRun.State.ENDED)
        rows = ended.order_by("step_run_id", "index")
        listed = list(rows.values_list("step_run_id", "index", "attempt", "ending", "error")[: ITEMS_PER_TICK + 1])
        found: dict[str, list[ItemReport]] = {}
        for step_id, index, attempt, ending, error in listed[:ITEMS_PER_TICK]:
            how = cast("Ending", ending)
            report = ItemReport(index=index, attempt=attempt, ending=how, error=error)
            found.setdefault(maps[step_id], []).append(report)
        return {name: tuple(reports) for name, reports in found.items()}, len(listed) > ITEMS_PER_TICK

    def _events(self, steps: Mapping[str, StepRun]) -> tuple[Event, ...]:
        """The oldest of each name that no step has taken, as many as there are steps that may still wait for it."""
        open_ = (each.target for each in self.definition.steps if each.kind == "event" and not _has_ended(steps, each))
        found: list[Event] = []
        for name, number in Counter(open_).items():
            rows = models.Event.objects.filter(run_id=self.row.id, taken_by="", name=name).order_by("id")
            for event_id, payload in rows.values_list("event_id", "payload")[:number]:
                found.append(Event(id=event_id, name=name, payload=payload))
        return tuple(found)

    def write(self, changes: Changes, now_ms: int, also: Mapping[str, Any]) -> bool:
        """Inside a transaction; False, and nothing was written, when the run is no longer as it was read.

        `also` are columns of the run that no tick knows: what it returned, whose sub-run it is.
        """
        before, run = self.snapshot.run, changes.run
        if run is not None:
            columns = {
                column: getattr(run, name)
                for name, column in _RUN.items()
                if getattr(run, name) != getattr(before, name)
            }
            columns |= {"lock": run.version, **also}
            if not statements.update(models.Run, columns, {"id": run.id, "lock": changes.version}):
                return False
        self._write_steps(changes.steps)
        for counted in changes.counted:
            self._write_counted(counted)
        for event_id, step in changes.taken.items():
            models.Event.objects.filter(run_id=self.row.id, event_id=event_id).update(taken_by=step)
        sent = [
            models.Event(run_id=self.row.id, event_id=event.id, name=event.name, payload=event.payload, sent_ms=now_ms)
            for event in changes.sent
        ]
        if sent:
            models.Event.objects.bulk_create(sent, ignore_conflicts=True)
        return True

    def _write_steps(self, steps: Iterable[StepRun]) -> None:
        fresh = []
        for row in steps:
            before = self.snapshot.steps.get(row.step)
            if before is None:
                columns = {name: getattr(row, name) for name in _STEP}
                columns |= {"output": row.output, "output_bytes": size_of(row.output)}
                fresh.append({"run": self.row.id, "step": row.step, **columns})
                continue
            columns = {
                name: value
                for name in _STEP
                if (value := getattr(row, name)) != getattr(before, name) and name not in _BY_LISTER
            }
            if (output := _output(row, before)) is not _AS_IT_IS:
                columns |= {"output": output, "output_bytes": size_of(output)}
            if columns:
                statements.update(models.StepRun, columns, {"id": self.ids[row.step]})
        statements.insert(models.StepRun, fresh)

    def _write_counted(self, counted: Counted) -> None:
        items = models.ItemRun.objects.filter(step_run_id=self.ids[counted.step])
        if counted.ended:
            items.filter(index__in=counted.ended).update(state=models.ItemRun.State.COUNTED)
        if counted.again:
            items.filter(index__in=counted.again).update(
                attempt=F("attempt") + 1, state=models.ItemRun.State.WAITING, ending="", error=""
            )
            steps = models.StepRun.objects.filter(pk=self.ids[counted.step])
            steps.update(marked=F("marked") - len(counted.again))


_AS_IT_IS = object()


def _shown(looked_at: Sequence[str]) -> tuple[str, Sequence[Any]]:
    """The output where a tick sees it whole, else null."""
    wanted = f" OR {{step}} IN ({', '.join(['%s'] * len(looked_at))})" if looked_at else ""
    return f"CASE WHEN {{output_bytes}} <= %s{wanted} THEN {{output}} END", [OUTPUT_BYTES, *looked_at]


def _has_ended(steps: Mapping[str, StepRun], step: StepDefinition) -> bool:
    row = steps.get(step.name)
    return row is not None and row.state in ENDED_STEPS


def _output(row: StepRun, before: StepRun) -> Any:
    """What is to be written as its output. What was reported stands there already."""
    reported = row.report is not None and row.report.attempt == row.attempt and row.report.ending == "completed"
    if reported or row.output is before.output or row.output is WITHHELD:
        return _AS_IT_IS
    return row.output


def size_of(output: Any) -> int:
    """In bytes of JSON."""
    return 0 if output is None else len(json.dumps(output))


def new_run(run: Run, **more: Any) -> models.Run:
    """The row of a run that begins."""
    plain = asdict(run)
    columns = {column: plain[name] for name, column in _RUN.items()}
    return models.Run(
        id=run.id,
        flow=run.flow,
        definition=run.definition,
        tenant=run.tenant or "",
        input=dict(run.input),
        lock=run.version,
        started_ms=run.started_ms,
        **columns,
        **more,
    )
