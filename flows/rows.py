"""A run as rows, read for a tick and written after it. What the columns mean: `snapshot`; who calls it: `runtime`.

Nothing here is locked while it is read. The row of the run comes first, and is the first to be written, under its
`lock`: if it has moved on since, nothing else is written. Each change gives the lock a value drawn at random, that no
other one has: so what was written under it is what is there, even where a database fell back to an earlier state.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple, cast

from django.db import connections
from django.db.models import F

from flows import models, reports, statements
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
from queueapp.conf import settings

OUTPUT_BYTES = 64 * 1024
"""Of larger outputs a tick sees only that they are there."""
KEPT_BYTES = 256 * 1024
"""A run that shows more is not kept in memory while a body runs."""

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


class News(NamedTuple):
    """A run as this process has just written it."""

    seen: Seen
    since_s: float
    """When that was committed, on the monotonic clock of the process."""


class Seen:
    """A run as it was read, or as it was written, and what its rows are called in the database."""

    def __init__(
        self,
        row: models.Run,
        definition: Definition,
        snapshot: Snapshot,
        ids: Mapping[str, int],
        shown_bytes: int,
    ) -> None:
        self.row = row
        """As it was read first. What changes of a run stands in the snapshot."""
        self.definition = definition
        self.snapshot = snapshot
        self.ids = ids
        """Step → its row."""
        self.shown_bytes = shown_bytes
        """Of its input and of the outputs that ticks see, as JSON."""

    @classmethod
    def new(cls, row: models.Run, definition: Definition) -> Seen:
        """One that has no other rows yet."""
        return cls(row, definition, Snapshot(run=read_run(row)), {}, reports.size_of(row.input))

    @classmethod
    def read(cls, row: models.Run, definition: Definition, fired: Timer | None = None) -> Seen:
        steps, ids, shown_bytes = _steps(row, definition)
        items, more = _items(steps, ids)
        events = _events(row, definition, steps)
        snapshot = Snapshot(run=read_run(row), steps=steps, items=items, more=more, events=events, fired=fired)
        return cls(row, definition, snapshot, ids, shown_bytes + reports.size_of(row.input))

    @property
    def is_whole(self) -> bool:
        """Whether nothing that a tick needs stands in rows that come and go without the lock: items, and events. How
        steps ended may be told without it, too; whoever tells that makes a tick of his own. And whether it is small
        enough to be kept while a body runs."""
        steps, definition = self.snapshot.steps, self.definition
        knows_ids = connections[settings.database].features.can_return_rows_from_bulk_insert
        if self.shown_bytes > KEPT_BYTES or not knows_ids:
            return False
        if any(each.kind == "event" and not _has_ended(steps, each) for each in definition.steps):
            return False
        running = (name for name, row in steps.items() if row.state == "running")
        return all(definition.step(name).kind != "map" for name in running)

    def told(self, end: reports.End) -> Seen | None:
        """With the end of a try of a step, for a tick to take in; None: there is no such step."""
        row = self.snapshot.steps.get(end.step)
        if row is None:
            return None
        # All of what it returned, however large: it is not in the database yet.
        report = Report(attempt=end.attempt, ending=end.ending, output=end.output, error=end.error)
        steps = {**self.snapshot.steps, end.step: replace(row, report=report)}
        return Seen(self.row, self.definition, replace(self.snapshot, steps=steps), self.ids, self.shown_bytes)

    def write(
        self, changes: Changes, now_ms: int, also: Mapping[str, Any], end: reports.End | None = None
    ) -> Seen | None:
        """Inside a transaction: the run as it stands then. None when somebody wrote first; the transaction is to be
        undone then.

        `also` are columns of the run that no tick knows: what it returned, whose sub-run it is. `end` is what this run
        was `told`, and is written with it.
        """
        before, run = self.snapshot.run, changes.run
        if run is not None:
            columns = {
                column: getattr(run, name)
                for name, column in _RUN.items()
                if getattr(run, name) != getattr(before, name)
            }
            run = replace(run, version=new_lock())
            columns |= {"lock": run.version, **also}
            if not statements.update(models.Run, columns, {"id": run.id, "lock": changes.version}):
                return None
        ids = self._write_steps(changes.steps, end)
        if ids is None:
            return None
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
        steps, shown_bytes = dict(self.snapshot.steps), self.shown_bytes
        for row in changes.steps:
            steps[row.step], output_bytes = self._shown(row, end)
            shown_bytes += output_bytes
        after = Snapshot(run=run or before, steps=steps)
        return Seen(self.row, self.definition, after, {**self.ids, **ids}, shown_bytes)

    def _shown(self, row: StepRun, end: reports.End | None) -> tuple[StepRun, int]:
        """A step that was written, as the next tick sees it, and the bytes of what it sees."""
        if row.output is WITHHELD:
            return row, 0
        is_told = end is not None and end.step == row.step
        output_bytes = end.output_bytes if end is not None and is_told else reports.size_of(row.output)
        if output_bytes <= OUTPUT_BYTES or row.step in self.definition.looked_at():
            return row, output_bytes
        report = replace(row.report, output=WITHHELD) if row.report is not None else None
        return replace(row, output=row.output and WITHHELD, report=report), 0

    def _write_steps(self, steps: Iterable[StepRun], end: reports.End | None) -> dict[str, int] | None:
        """The rows of those that had none; None when the end of the try had been told."""
        fresh = []
        for row in steps:
            before = self.snapshot.steps.get(row.step)
            if before is None:
                columns = {name: getattr(row, name) for name in _STEP}
                columns |= {"output": row.output, "output_bytes": reports.size_of(row.output)}
                fresh.append({"run": self.row.id, "step": row.step, **columns})
                continue
            columns = {
                name: value
                for name in _STEP
                if (value := getattr(row, name)) != getattr(before, name) and name not in _BY_LISTER
            }
            if (output := _output(row, before)) is not _AS_IT_IS:
                columns |= {"output": output, "output_bytes": reports.size_of(output)}
            if end is not None and end.step == row.step:
                if not end.write(self.ids[row.step], columns):
                    return None
            elif columns:
                statements.update(models.StepRun, columns, {"id": self.ids[row.step]})
        ids = statements.insert(models.StepRun, fresh)
        return dict(zip((columns["step"] for columns in fresh), ids, strict=False))  # not every database tells them

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


# -- reading -----------------------------------------------------------------------------------------------------------


def _steps(row: models.Run, definition: Definition) -> tuple[dict[str, StepRun], dict[str, int], int]:
    """The steps, what their rows are called, and the bytes of their outputs that are shown."""
    looked_at = definition.looked_at()
    rows = statements.select(models.StepRun, _READ, {"run_id": row.id}, instead={"output": _shown(sorted(looked_at))})
    found, ids, shown_bytes = {}, {}, 0
    for row_id, step, *values, output_bytes, attempt, ending, error, output in rows:
        columns = dict(zip(_STEP, values, strict=True))
        if output_bytes > OUTPUT_BYTES and step not in looked_at:
            output = WITHHELD
        else:
            shown_bytes += output_bytes
        report = None
        if ending and attempt == columns["attempt"]:
            report = Report(attempt=attempt, ending=ending, output=output, error=error)
        kept = output if columns["state"] == "completed" else None
        ids[step] = row_id
        found[step] = StepRun(step=step, output=kept, report=report, **columns)
    return found, ids, shown_bytes


def _items(steps: Mapping[str, StepRun], ids: Mapping[str, int]) -> tuple[dict[str, tuple[ItemReport, ...]], bool]:
    """Ended items of maps that run, not counted yet; and whether there are more."""
    maps = {ids[name]: name for name, row in steps.items() if row.state == "running" and row.listed}
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
    return {name: tuple(reported) for name, reported in found.items()}, len(listed) > ITEMS_PER_TICK


def _events(row: models.Run, definition: Definition, steps: Mapping[str, StepRun]) -> tuple[Event, ...]:
    """The oldest of each name that no step has taken, as many as there are steps that may still wait for it."""
    open_ = (each.target for each in definition.steps if each.kind == "event" and not _has_ended(steps, each))
    found: list[Event] = []
    for name, number in Counter(open_).items():
        rows = models.Event.objects.filter(run_id=row.id, taken_by="", name=name).order_by("id")
        for event_id, payload in rows.values_list("event_id", "payload")[:number]:
            found.append(Event(id=event_id, name=name, payload=payload))
    return tuple(found)


# -- parts -------------------------------------------------------------------------------------------------------------


def new_lock() -> int:
    """A value that no other change is given, as a column of whole numbers takes it in every database."""
    return secrets.randbits(62)


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
