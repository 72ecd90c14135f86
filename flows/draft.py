"""A run while it is being advanced: the snapshot, what has changed of it so far, and the commands. Pure.

Made for one tick or operation and thrown away. Rows are replaced, never edited; `decision` tells which were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from flows.definition import UNDO, Definition, StepDefinition
from flows.errors import OtherVersion
from flows.snapshot import (
    ITEMS_PER_TICK,
    NOTHING,
    Changes,
    Command,
    Counted,
    Decision,
    Event,
    Finish,
    RunState,
    SetTimer,
    Skipped,
    Snapshot,
    StepRun,
    StepState,
    Tier,
    Wake,
)
from flows.values import INPUT, WITHHELD, Absent, Json


class Draft:
    """`gone` are the tasks and flows of the definition that this process does not have."""

    def __init__(self, definition: Definition, snapshot: Snapshot, now_ms: int, gone: Collection[str] = ()) -> None:
        run = snapshot.run
        if (run.flow, run.definition) != (definition.name, definition.version):
            raise OtherVersion(
                f"Run {run.id} began with version {run.definition} of flow {run.flow}, and was to be advanced by "
                f"version {definition.version} of flow {definition.name}: load the definition stored with the run."
            )
        if sum(map(len, snapshot.items.values())) > ITEMS_PER_TICK:
            raise ValueError(f"A tick looks at {ITEMS_PER_TICK} ended items at most: load no more of them.")
        self.definition = definition
        self.snapshot = snapshot
        self.now_ms = now_ms
        self.run = run
        self.held: list[str] = []
        """Steps that could start if their code were there."""
        self.again = False
        """There is more to do at once than one tick may."""
        self._gone = frozenset(gone)
        self._steps = dict(snapshot.steps)
        self._commands: list[Command] = []
        self._counted: list[Counted] = []
        self._taken: dict[str, str] = {}
        self.failed = False
        """A step failed, or items of a map did, that may not."""
        self.look_for_failures()

    # -- reading ---------------------------------------------------------------------------------------------------

    def row(self, step: str) -> StepRun:
        return self._steps.get(step) or StepRun(step=step)

    def state(self, step: str) -> StepState:
        row = self._steps.get(step)
        return "waiting" if row is None else row.state

    def running(self) -> Iterator[tuple[StepDefinition, StepRun]]:
        """In an order in which steps can run, those that undo at the end."""
        undoing = [name for name in self._steps if name.startswith(UNDO)]
        for name in (*self.definition.order, *undoing):
            row = self._steps.get(name)
            if row is not None and row.state == "running":
                yield self.definition.step(name), row

    @property
    def starts_ms(self) -> int:
        """When what starts now has started: after all that has ended, whatever clocks say. Fences go by it."""
        ended = (row.started_ms + row.attempt + 1 for row in self._steps.values() if row.ended_ms and row.started_ms)
        return max(self.now_ms, *ended, 0)

    @property
    def halted(self) -> bool:
        """Nothing more starts on the way forward."""
        return self.failed and self.definition.on_failure != "continue" and self.run.state == "running"

    def lookup(self, step: str, part: str) -> Json:
        """What a step left, for expressions. Raises Absent."""
        if step == INPUT:
            return self.run.input
        row = self.row(step)
        if part == "error":
            return row.error or None
        if row.state != "completed":
            raise Absent(step)
        match part:
            case "results":
                return WITHHELD
            case "counts":
                return {"total": row.total or 0, "completed": row.completed, "failed": row.failed}
        return row.output

    def event(self, name: str) -> Event | None:
        """The oldest event of this name that no step has taken."""
        return next((each for each in self.snapshot.events if each.name == name and each.id not in self._taken), None)

    def has_code(self, step: StepDefinition) -> bool:
        """Whether this process has the task or the flow of the step; if not, the run says so."""
        if step.kind in ("task", "flow", "map") and step.target in self._gone:
            self.held.append(f"{step.name} ({step.target})")
            return False
        return True

    def tier(self, step: StepDefinition) -> Tier:
        """What begins a run is fresh work; everything later belongs to a run that has begun."""
        is_first = step.name in self.definition.before and not self.definition.before[step.name]
        return "start" if is_first and self.run.round == 1 else "continue"

    # -- changing --------------------------------------------------------------------------------------------------

    def put(self, row: StepRun) -> StepRun:
        self._steps[row.step] = row
        return row

    def change_run(self, **given: Any) -> None:
        self.run = replace(self.run, **given)

    def send(self, command: Command) -> None:
        self._commands.append(command)

    def set_timer(self, reason: str, at_ms: int, requeues: int) -> None:
        self.send(SetTimer(reason=reason, at_ms=at_ms, requeues=requeues))

    def complete(self, row: StepRun, output: Json = None) -> None:
        self.put(replace(row, state="completed", output=output, ended_ms=self.now_ms, due_ms=None, place=self.run.ends))
        self.change_run(ends=self.run.ends + 1)

    def fail(self, row: StepRun, error: str) -> None:
        row = self.put(replace(row, state="failed", error=error, ended_ms=self.now_ms, due_ms=None))
        self.note_failure(row)

    def look_for_failures(self) -> None:
        """From the rows, as they are now."""
        self.failed = any(self._has_failed(row) for row in self._steps.values())

    def note_failure(self, row: StepRun) -> None:
        """The first failure that counts decides the run."""
        if self._has_failed(row):
            self.failed = True
            if not self.run.cause:
                self.change_run(cause=row.step)

    def skip(self, row: StepRun, why: Skipped) -> None:
        self.put(replace(row, state="skipped", skipped=why, ended_ms=self.now_ms))

    def cancel(self, row: StepRun) -> None:
        self.put(replace(row, state="cancelled", ended_ms=self.now_ms, due_ms=None))

    def take(self, event: Event, step: str) -> None:
        self._taken[event.id] = step

    def count(self, counted: Counted) -> None:
        self._counted.append(counted)

    def finish(self, state: RunState, note: str = "") -> None:
        self.change_run(state=state, ended_ms=self.now_ms, note=note)
        self.send(Finish(state=state, round=self.run.round))

    def decision(self) -> Decision:
        """What it all comes to; NOTHING when it comes to nothing."""
        before = self.snapshot
        if self.again:
            self.send(Wake())
        steps = tuple(row for name, row in self._steps.items() if row is not before.steps.get(name))
        if not (steps or self._counted or self._taken or self._commands) and self.run == before.run:
            return NOTHING
        changes = Changes(
            version=before.run.version,
            run=self.run,
            steps=steps,
            counted=tuple(self._counted),
            taken=self._taken,
        )
        return Decision(changes=changes, commands=tuple(self._commands))

    def _has_failed(self, row: StepRun) -> bool:
        if row.step.startswith(UNDO) or self.definition.by_name[row.step].may_fail:
            return False
        return row.state == "failed" or (row.state == "running" and row.failed > 0)
