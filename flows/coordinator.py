"""How a run gets on: `tick(definition, snapshot, now_ms)` says what to write and what to do. Pure.

A tick acts on what the rows say and never on why it was woken: woken twice, late, or for something that another tick
has seen already, it comes to NOTHING. Two ticks at once are decided by the run's `version`: one of them writes. So
wake-ups may be lost and repeated at will; what a lost one leaves undone the watchdog finds.

In one tick: what was reported is taken in, in an order in which steps can run; then each step that may start does, and
what ends at once lets the next one start; then the run ends, or turns to undoing. (tests/flows/test_coordinator.py)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from flows import compensation, fanout, watchdog
from flows.checking import DURATION_MAX_S
from flows.definition import Definition, StepDefinition
from flows.draft import Draft
from flows.errors import InvalidValue
from flows.fanout import LOSSES_MAX
from flows.snapshot import ENDED_RUNS, ENDED_STEPS, NOTHING, Decision, Enqueue, Snapshot, StepRun, Timer, Withdraw
from flows.values import WITHHELD, Absent, Expression, evaluate


def tick(definition: Definition, snapshot: Snapshot, now_ms: int, gone: Collection[str] = ()) -> Decision:
    """What is to be written and done now. `gone` names tasks of the definition that this process does not have.

    Raises OtherVersion for a definition that is not the one the run began with, ValueError for more than
    `ITEMS_PER_TICK` items.
    """
    draft = Draft(definition, snapshot, now_ms, gone)
    if draft.run.state in ENDED_RUNS:
        return NOTHING
    advance(draft)
    return draft.decision()


def advance(draft: Draft) -> None:
    """Everything that a tick does, on a draft that an operation may have changed."""
    _take_in(draft)
    if draft.run.state == "running":
        _go_forward(draft)
    if draft.run.state == "compensating":
        compensation.advance(draft, begin=begin, settle=settle)
    if draft.run.state not in ENDED_RUNS:
        _tell_what_is_held(draft)
        watchdog.look(draft)


def begin(draft: Draft, step: StepDefinition) -> None:
    """Start a step that may start: hand it over, fall asleep, or wait. Not without its code."""
    if not draft.has_code(step):
        return
    row = draft.row(step.name)
    row = draft.put(
        replace(
            row,
            state="running",
            attempt=row.attempt + 1,
            requeues=row.requeues + 1 if row.attempt else 0,
            started_ms=draft.starts_ms,
            ended_ms=None,
            losses=0,
            error="",
            withdrawn=False,
            report=None,
        )
    )
    match step.kind:
        case "map":
            fanout.start(draft, step, row)
        case "sleep":
            _fall_asleep(draft, step, row)
        case "event":
            if step.timeout_ms is not None:
                row = draft.put(replace(row, due_ms=draft.now_ms + step.timeout_ms))
                draft.set_timer(_reason(step), draft.now_ms + step.timeout_ms, row.requeues)
            settle(draft, step)
        case _:
            _hand_over(draft, step, row)


def settle(draft: Draft, step: StepDefinition) -> None:
    """A step that is running: whether it ends now. Reports of ends were taken in before."""
    row = draft.row(step.name)
    if row.state != "running":
        return
    match step.kind:
        case "map":
            fanout.settle(draft, step)
        case "sleep" | "event":
            _settle_waiting(draft, step, row)
        case _:
            _settle_job(draft, step, row)


# -- parts -----------------------------------------------------------------------------------------------------------


def _take_in(draft: Draft) -> None:
    """Ends that were reported. All of them come before anything starts: a failure stops what it may stop."""
    for step, row in [*draft.running()]:
        if step.kind == "map":
            fanout.count(draft, step, row)
            continue
        report = row.report
        if report is None or report.attempt != row.attempt:
            continue
        if report.ending == "completed":
            draft.complete(row, report.output)
        elif report.ending == "failed":
            draft.fail(row, report.error or "it failed")
        elif report.ending == "cancelled" and not row.withdrawn:
            draft.fail(row, "its job was cancelled")
        elif report.ending == "lost" and row.losses >= LOSSES_MAX:
            draft.fail(row, f"its job was lost {row.losses + 1} times")


def _go_forward(draft: Draft) -> None:
    for name in draft.definition.order:
        state = draft.state(name)
        if state == "running":
            settle(draft, draft.definition.by_name[name])
        elif state == "waiting" and not draft.halted:
            _consider(draft, draft.definition.by_name[name])
    states = [draft.state(name) for name in draft.definition.order]
    if draft.halted:
        # A failure may have come after others had been looked at.
        for step, _ in [*draft.running()]:
            settle(draft, step)
        if any(draft.state(name) == "running" for name in draft.definition.order):
            return
        if draft.definition.on_failure == "compensate":
            draft.change_run(state="compensating")
        else:
            draft.finish("failed")
    elif all(state in ENDED_STEPS for state in states):
        draft.finish("failed" if draft.failed else "completed")


def _consider(draft: Draft, step: StepDefinition) -> None:
    """A step that waits starts, is skipped, or goes on waiting."""
    before = draft.definition.before[step.name]
    if any(draft.state(first) not in ENDED_STEPS for first in before):
        return
    row = draft.row(step.name)
    if any(_cuts_off(draft, draft.row(first)) for first in before):
        draft.skip(row, "upstream")
        return
    try:
        if step.when is not None and not evaluate(step.when, draft.lookup):
            draft.skip(row, "condition")
            return
        for expression in (*step.args, *step.kwargs.values(), *([step.seconds] if step.seconds is not None else [])):
            evaluate(expression, draft.lookup)
        if step.items is not None:
            _require_list(step.items, evaluate(step.items, draft.lookup))
    except Absent:
        draft.skip(row, "no_value")
    except InvalidValue as error:
        draft.fail(row, str(error))
    else:
        begin(draft, step)


def _cuts_off(draft: Draft, first: StepRun) -> bool:
    """What comes after a failure does not start; what comes after a branch that was not taken may."""
    if first.state == "failed":
        return not draft.definition.by_name[first.step].may_fail
    return first.state == "cancelled" or first.skipped == "upstream"


def _require_list(items: Expression, value: object) -> None:
    if value is not WITHHELD and not isinstance(value, list):
        raise InvalidValue(f"items is of the type {type(value).__name__}: a map runs over a list.")


def _hand_over(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    draft.send(Enqueue(step=step.name, attempt=row.attempt, tier=draft.tier(step)))


def _fall_asleep(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    assert step.seconds is not None, "a sleep has a duration"
    seconds = evaluate(step.seconds, draft.lookup)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= DURATION_MAX_S:
        draft.fail(row, f"it was to sleep for {seconds!r}: it must be seconds from 0 to ten years.")
        return
    row = draft.put(replace(row, due_ms=draft.now_ms + round(seconds * 1000)))
    if seconds:
        draft.set_timer(_reason(step), row.due_ms or 0, row.requeues)
    settle(draft, step)


def _settle_waiting(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    due = row.due_ms is not None and draft.now_ms >= row.due_ms
    event = draft.event(step.target) if step.kind == "event" else None
    if draft.halted:
        draft.cancel(row)
    elif event is not None:
        draft.take(event, step.name)
        draft.complete(row, event.payload)
    elif due and step.kind == "sleep":
        draft.complete(row)
    elif due:
        draft.fail(row, f"no event {step.target!r} came within {(step.timeout_ms or 0) / 1000:g} s")
    elif row.due_ms is not None and draft.snapshot.fired == Timer(reason=_reason(step), requeues=row.requeues):
        # Its timer came early, by another clock, and is used up.
        row = draft.put(replace(row, requeues=row.requeues + 1))
        draft.set_timer(_reason(step), row.due_ms or 0, row.requeues)


def _settle_job(draft: Draft, step: StepDefinition, row: StepRun) -> None:
    report = row.report if row.report is not None and row.report.attempt == row.attempt else None
    if report is not None and (draft.halted or report.ending == "cancelled"):
        draft.cancel(row)
    elif report is not None:  # lost
        row = draft.put(replace(row, attempt=row.attempt + 1, losses=row.losses + 1, report=None))
        _hand_over(draft, step, row)
    elif draft.halted and not row.withdrawn:
        draft.send(Withdraw(step=step.name, attempt=row.attempt))
        draft.put(replace(row, withdrawn=True))


def _tell_what_is_held(draft: Draft) -> None:
    note = ""
    if draft.held:
        note = (
            f"Waiting for code: {', '.join(dict.fromkeys(draft.held))}. The run began with version "
            f"{draft.run.definition} of its flow, and these tasks or flows are gone. Bring them back, tasks if only "
            "under @task(aliases=...), or cancel the run."
        )
    if note != draft.run.note:
        draft.change_run(note=note)


def _reason(step: StepDefinition) -> str:
    return f"{'sleep' if step.kind == 'sleep' else 'timeout'}:{step.name}"
