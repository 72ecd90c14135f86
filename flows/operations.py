"""What people do to a run: start, cancel, resume, retry a step, send an event. Pure: each gives what a tick gives.

They are written under the same lock as a tick, so that a button pressed twice, or while a step ends, does one thing.
What comes to nothing gives NOTHING; what cannot be done raises RunRefused and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from flows import compensation, graph
from flows.coordinator import advance, begin, tick
from flows.definition import UNDO, Definition
from flows.draft import Draft
from flows.errors import RunRefused
from flows.snapshot import (
    ENDED_RUNS,
    NOTHING,
    Changes,
    Decision,
    Event,
    Run,
    Snapshot,
    StepRun,
    Wake,
    Withdraw,
)
from flows.values import Json

RESUMABLE = frozenset({"failed", "cancelled"})


def start(
    definition: Definition,
    *,
    run_id: str,
    input: Mapping[str, Json],
    tenant: str | None,
    now_ms: int,
    gone: Collection[str] = (),
) -> tuple[Run, Decision]:
    """The run to be inserted as it is, and its first tick, in the same transaction. `input` comes from `bind`."""
    run = Run(
        id=run_id,
        flow=definition.name,
        definition=definition.version,
        input=input,
        tenant=tenant,
        started_ms=now_ms,
    )
    return run, tick(definition, Snapshot(run=run), now_ms, gone)


def cancel(definition: Definition, snapshot: Snapshot, now_ms: int, reason: str = "") -> Decision:
    """The run has ended as cancelled at once: nothing starts any more, and what ends later advances nothing.

    Bodies that run are told. Nothing is undone. Of a run that has ended: NOTHING.
    """
    if snapshot.run.state in ENDED_RUNS:
        return NOTHING
    draft = Draft(definition, snapshot, now_ms)
    for step, row in [*draft.running()]:
        if step.kind not in ("sleep", "event"):
            draft.send(Withdraw(step=step.name, attempt=row.attempt, all=True))
        draft.cancel(row)
    draft.finish("cancelled", note=reason)
    return draft.decision()


def resume(definition: Definition, snapshot: Snapshot, now_ms: int, gone: Collection[str] = ()) -> Decision:
    """What failed, was cut off or was never reached runs; what completed is kept and never run again.

    A run whose undoing failed goes on undoing. Raises RunRefused for one that has not failed and was not cancelled.
    """
    run = snapshot.run
    if run.state not in RESUMABLE:
        raise RunRefused(f"Run {run.id} is {run.state}: only a run that failed or was cancelled can be resumed.")
    draft = Draft(definition, snapshot, now_ms, gone)
    backwards = compensation.has_begun(draft)
    rows = [row for name, row in snapshot.steps.items() if name.startswith(UNDO) == backwards]
    again = {row.step for row in rows if _stopped_the_run(definition, row)}
    if not backwards:
        again |= graph.downstream(definition.before, again) & {row.step for row in rows if row.state == "skipped"}
    for row in rows:
        if row.step in again:
            draft.put(_reset(row))
    _reopen(draft, "compensating" if backwards else "running")
    return draft.decision()


def retry_step(
    definition: Definition, snapshot: Snapshot, step: str, now_ms: int, gone: Collection[str] = ()
) -> Decision:
    """One step that failed or was cut off runs again, and what it had cut off may follow.

    Raises RunRefused when the step has not failed, when the run is undoing or has undone something, and when further
    failures would stop the run again at once.
    """
    run, row = snapshot.run, snapshot.steps.get(step)
    if step not in definition.by_name:
        raise RunRefused(f"Flow {definition.name} has no step {step!r}; its steps: {', '.join(definition.by_name)}.")
    if row is None or row.state not in ("failed", "cancelled"):
        state = "waiting" if row is None else row.state
        raise RunRefused(f"Step {step} of run {run.id} is {state}: only one that failed or was cancelled runs again.")
    draft = Draft(definition, snapshot, now_ms, gone)
    if run.state in ("compensating", "compensated") or compensation.has_begun(draft):
        raise RunRefused(f"Run {run.id} has been undone, or in part: its steps do not run again; start a new run.")
    if run.state == "cancelled":
        raise RunRefused(f"Run {run.id} was cancelled, and with it more than this step: resume it.")
    cut_off = graph.downstream(definition.before, [step])
    for other in [row, *(each for each in snapshot.steps.values() if each.step in cut_off)]:
        if other is row or other.state == "skipped":
            draft.put(_reset(other))
    others = [each.step for each in snapshot.steps.values() if _stopped_the_run(definition, each) and each is not row]
    if others and definition.on_failure != "continue":
        raise RunRefused(
            f"Run {run.id} stops at a failure, and {', '.join(others)} failed or was cut off, too: resume it, which "
            "runs all of them."
        )
    if run.state in ENDED_RUNS:
        _reopen(draft, "running", only=step)
    else:
        draft.look_for_failures()
        draft.change_run(cause=_cause(draft))
        advance(draft)
    return draft.decision()


def send_event(snapshot: Snapshot, event: Event) -> Decision:
    """The event is kept until a step takes it. One of the same id that is there already: NOTHING.

    Raises RunRefused when the run has ended.
    """
    if snapshot.run.state in ENDED_RUNS:
        raise RunRefused(f"Run {snapshot.run.id} is {snapshot.run.state}: no step of it waits for an event.")
    if any(known.id == event.id for known in snapshot.events):
        return NOTHING
    return Decision(changes=Changes(version=snapshot.run.version, sent=(event,)), commands=(Wake(),))


# -- parts -----------------------------------------------------------------------------------------------------------


def _stopped_the_run(definition: Definition, row: StepRun) -> bool:
    """A failure that the run got over stays as it is."""
    may_fail = not row.step.startswith(UNDO) and definition.by_name[row.step].may_fail
    return row.state == "cancelled" or (row.state == "failed" and not may_fail)


def _reset(row: StepRun) -> StepRun:
    """The step waits again; its tries go on from where they were. One that completed after it had been given up is as
    good as any: it is running until the tick has taken in its report."""
    report = row.report
    if report is not None and report.attempt == row.attempt and report.ending == "completed":
        return replace(row, state="running", ended_ms=None)
    return replace(row, state="waiting", skipped="", error="", output=None, failed=0, started_ms=None, ended_ms=None)


def _reopen(draft: Draft, state: str, only: str | None = None) -> None:
    draft.change_run(state=state, ended_ms=None, note="", round=draft.run.round + 1, watch_ms=0)
    draft.look_for_failures()
    draft.change_run(cause=_cause(draft))
    if only is not None and draft.row(only).state == "waiting":
        begin(draft, draft.definition.by_name[only])
    advance(draft)


def _cause(draft: Draft) -> str:
    """The first of the failures that are left."""
    failed = (name for name in draft.definition.order if draft.row(name).state == "failed")
    return next((name for name in failed if not draft.definition.by_name[name].may_fail), "")
