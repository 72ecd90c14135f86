"""What is said of a run, filled into the shapes of `shapes`.

Who may speak for a tenant is told how its runs and their steps stand, and what a run returned. Input, notes, payloads
of events and the texts of errors are for users who may see contents (`view_payload`). Contents are masked in any case.
What steps returned is not told: their tasks need not be of the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from flows import contents as shown
from flows.definition import Definition
from flows.models import Event, Run, StepRun
from queueapp.api.answers import said
from queueapp.moments import moment

Address = Callable[[str], str]
"""From a run's id to the address of the run."""


def brief(run: Run, address: Address) -> dict[str, Any]:
    """A run in a list."""
    return {
        "id": run.id,
        "url": address(run.id),
        "state": run.state,
        "flow": run.flow,
        "version": run.definition,
        "tenant": run.tenant,
        "key": run.key,
        "cause": run.cause or None,
        "round": run.round,
        "started": said(run.started),
        "ended": said(run.ended),
        "took_s": _took_s(run.started_ms, run.ended_ms),
    }


def whole(
    run: Run, address: Address, *, definition: Definition | None, known: bool, parent: Run | None, contents: bool
) -> dict[str, Any]:
    """All of one run. `known`: its flow is; one that is gone from the code may not have been one of the API's."""
    completed = run.state == Run.State.COMPLETED
    return {
        **brief(run, address),
        "note": (run.note or None) if contents else None,
        "step_of": None if parent is None else {"run": parent.id, "url": address(parent.id), "step": run.parent_step},
        "input": shown.shown_input(run, definition) if contents and definition is not None else None,
        "output": shown.shown_output(run, definition) if completed and known and definition is not None else None,
        "steps": [*steps(run, definition, contents=contents)],
    }


def steps(run: Run, definition: Definition | None, *, contents: bool) -> Iterator[dict[str, Any]]:
    """In an order in which they can run; then those that undo, as they began. One without a row waits."""
    rows = {row.step: row for row in StepRun.objects.filter(run_id=run.id).order_by("id").defer("output")}
    for name in dict.fromkeys((*(definition.order if definition is not None else ()), *rows)):
        row = rows.get(name) or StepRun(run_id=run.id, step=name)
        kind = definition.step(name).kind if definition is not None else None
        counts = {"total": row.total, "completed": row.completed, "failed": row.failed}
        yield {
            "step": name,
            "kind": kind,
            "state": row.state,
            "attempt": row.attempt,
            "skipped": row.skipped or None,
            "started": _said(row.started_ms),
            "ended": _said(row.ended_ms),
            "took_s": _took_s(row.started_ms, row.ended_ms),
            "due": _said(row.due_ms),
            "items": counts if kind == "map" else None,
            "error": shown.error_class(row.error) or None,
            "message": (row.error or None) if contents else None,
        }


def event(row: Event, *, contents: bool) -> dict[str, Any]:
    """An event in a list."""
    return {
        "id": row.event_id,
        "name": row.name,
        "sent": _said(row.sent_ms),
        "taken_by": row.taken_by or None,
        "payload": shown.shown_payload(row) if contents else None,
    }


def _said(at_ms: int | None) -> str | None:
    return None if at_ms is None else said(moment(at_ms))


def _took_s(started_ms: int | None, ended_ms: int | None) -> float | None:
    return None if started_ms is None or ended_ms is None else (ended_ms - started_ms) / 1000
