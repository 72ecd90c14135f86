"""A run as one mapping, for machines: what `--json` of the terminal says of it, and what its text is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows import models
from flows.contents import error_class, shown_input, shown_output, shown_payload, shown_step_output
from flows.definition import UNDO, Definition, StepDefinition
from flows.errors import InvalidValue, UnknownFlow
from flows.inputs import job_key, job_ms
from flows.versions import definition_of
from queueapp.errors import UnknownTask
from queueapp.moments import moment
from queueapp.producer.discovery import find
from queueapp.producer.handover import public_id

EVENTS_SHOWN = 100


def run_facts(row: models.Run) -> dict[str, Any]:
    """What is known of a run without its steps and its contents, as JSON's own types and moments."""
    ended_ms = row.ended_ms
    return {
        "id": row.id,
        "flow": row.flow,
        "version": row.definition,
        "tenant": row.tenant,
        "key": row.key,
        "state": row.state,
        "cause": row.cause or None,
        "note": row.note or None,
        "round": row.round,
        "started_at": row.started,
        "ended_at": row.ended,
        "took_s": None if ended_ms is None else (ended_ms - row.started_ms) / 1000,
        "wake_ups_in": row.pool,
        "parent": None
        if row.parent_run is None
        else {"run": row.parent_run, "step": row.parent_step, "index": _index(row)},
    }


def as_mapping(row: models.Run, *, contents: bool) -> dict[str, Any]:
    """All that is known of a run. `contents` adds input, outputs, payloads and the texts of errors, masked."""
    definition = _definition(row)
    facts = run_facts(row)
    if contents and definition is not None:
        facts["input"] = shown_input(row, definition)
        facts["output"] = shown_output(row, definition)
    facts["steps"] = [*_steps(row, definition, contents=contents)]
    facts["events"] = [
        {
            "id": event.event_id,
            "name": event.name,
            "sent_at": moment(event.sent_ms),
            "taken_by": event.taken_by or None,
            **({"payload": shown_payload(event)} if contents else {}),
        }
        for event in models.Event.objects.filter(run_id=row.id)[:EVENTS_SHOWN]
    ]
    return facts


def _definition(row: models.Run) -> Definition | None:
    """None: it is not stored any more, or by a later release."""
    try:
        return definition_of(row.flow, row.definition)
    except (UnknownFlow, InvalidValue):
        return None


def _steps(row: models.Run, definition: Definition | None, *, contents: bool) -> Iterator[dict[str, Any]]:
    """In an order in which they can run; then those that undo, in the order in which they began."""
    steps = models.StepRun.objects.filter(run_id=row.id).order_by("id")
    rows = {each.step: each for each in (steps if contents else steps.defer("output"))}
    subs = dict(
        models.Run.objects.filter(parent_run=row.id, parent_index=-1)
        .order_by("parent_attempt")
        .values_list("parent_step", "id")
    )
    order = () if definition is None else definition.order
    for name in dict.fromkeys((*order, *rows)):
        step = None if definition is None else definition.step(name)
        each = rows.get(name) or models.StepRun(run_id=row.id, step=name)
        facts = _step_facts(row, each, step)
        facts["after"] = [] if definition is None or name.startswith(UNDO) else [*definition.before[name]]
        facts["error"] = (each.error if contents else error_class(each.error)) or None
        facts["run"] = subs.get(name)
        if contents and step is not None and definition is not None and each.state == "completed":
            facts["output"] = shown_step_output(each, definition)
        yield facts


def _step_facts(row: models.Run, each: models.StepRun, step: StepDefinition | None) -> dict[str, Any]:
    is_map = step is not None and step.kind == "map"
    ended_ms, started_ms = each.ended_ms, each.started_ms
    return {
        "step": each.step,
        "kind": None if step is None else step.kind,
        "target": None if step is None else step.target or None,
        "state": each.state,
        "attempt": each.attempt,
        "skipped": each.skipped or None,
        "started_at": moment(started_ms or 0),
        "ended_at": moment(ended_ms or 0),
        "took_s": None if ended_ms is None or started_ms is None else (ended_ms - started_ms) / 1000,
        "due_at": moment(each.due_ms or 0),
        "items": {"total": each.total, "completed": each.completed, "failed": each.failed} if is_map else None,
        "job": None if step is None else job_id(row, each, step),
    }


def job_id(
    row: models.Run, each: models.StepRun, step: StepDefinition, item: models.ItemRun | None = None
) -> str | None:
    """The id by which the queue knows the current try of a step, or of an item of a map; None where it has none, or its
    pool is not known here."""
    attempt, index = (each.attempt, None) if item is None else (item.attempt, item.index)
    if not step.runs_task or (step.kind == "map") == (item is None) or not attempt:
        return None
    try:
        pool = step.pool or find(step.target).queue_name
    except UnknownTask:
        return None
    started_ms = each.started_ms or row.started_ms
    return public_id(pool, job_key(row.id, each.step, attempt, index), job_ms(started_ms, attempt))


def _index(row: models.Run) -> int | None:
    return None if row.parent_index < 0 else row.parent_index
