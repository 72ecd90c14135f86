"""What may be shown of a run's contents: nothing whose name is in `MASK`, nothing that a task of it calls sensitive.

Input, outputs and payloads of events are shown through these functions, as a job's contents are through
`queueapp.inspection.masking`. What goes to a task that is gone from the code is hidden: nobody can say what it was. Of
errors those who may not see contents are shown the class, because the text of an exception may quote an argument.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from flows import models
from flows.definition import Definition, StepDefinition
from flows.values import INPUT, Expression, Json, references
from queueapp.errors import UnknownTask
from queueapp.inspection.masking import HIDDEN, is_secret, masked
from queueapp.producer.discovery import find
from queueapp.producer.task import DuctorTask

TRACEBACK = "Traceback (most recent call last):\n"
CLASS = re.compile(r"[A-Za-z_][\w.]*")
OWN_CHARACTERS = 500
"""Errors that are no traceback are sentences of ours; they are shorter than this."""
SOMETHING = "an error"


def shown_input(row: models.Run, definition: Definition) -> dict[str, Json]:
    """The arguments of the run, by name, masked."""
    shown: dict[str, Json] = masked(row.input)
    return shown | {name: HIDDEN for name in _sensitive_inputs(definition) if name in shown}


def shown_output(row: models.Run, definition: Definition) -> Json:
    """What the run returned, masked; hidden whole where a sensitive task has a part in it."""
    steps = (definition.by_name[name] for name, _ in references(definition.result))
    return HIDDEN if any(map(_is_closed, steps)) else masked(row.output)


def shown_step_output(row: models.StepRun, definition: Definition) -> Json:
    """What the step returned, masked."""
    return HIDDEN if _is_closed(definition.step(row.step)) else masked(row.output)


def shown_payload(event: models.Event) -> Json:
    """What came with the event, masked."""
    return masked(event.payload)


def error_class(text: str) -> str:
    """What those may see of an error who may not see contents; "" for none."""
    before, found, frames = text.rpartition(TRACEBACK)
    if not found:
        return text if "\n" not in text and len(text) < OWN_CHARACTERS else SOMETHING
    raised = next((line for line in frames.splitlines() if line and not line.startswith(" ")), "")
    name = CLASS.match(raised)
    item = re.match(r"item \d+: ", before + found)
    return f"{item[0] if item else ''}{name[0] if name else SOMETHING}"


# -- parts -----------------------------------------------------------------------------------------------------------


def _is_closed(step: StepDefinition) -> bool:
    task = _task(step)
    return task is not None and task.sensitive is True


def _sensitive_inputs(definition: Definition) -> Iterator[str]:
    """The parameters of the flow whose values go, whole or in part, where a task calls its argument sensitive."""
    for step in definition.steps:
        if step.runs_task:
            task = _task(step)
            given = (*([step.items] if step.items is not None else []), *step.args)
            places = [] if task is None else _parameters(task)
            for place, expression in enumerate(given):
                if place >= len(places) or _is_hidden(task, places[place]):
                    yield from _inputs(expression)
            for name, expression in step.kwargs.items():
                if _is_hidden(task, name):
                    yield from _inputs(expression)


def _is_hidden(task: DuctorTask | None, parameter: str) -> bool:
    if task is None or task.sensitive is True or is_secret(parameter):
        return True
    named = () if isinstance(task.sensitive, bool) else task.sensitive
    return any(path.split(".")[0] == parameter for path in named)


def _parameters(task: DuctorTask) -> list[str]:
    """The names of the places of the task's arguments, without its context."""
    return [*inspect.signature(task.func).parameters][1 if task.takes_context else 0 :]


def _inputs(expression: Expression) -> Iterator[str]:
    """The parameters of the flow that the expression takes something of."""
    match expression:
        case ["ref", step, _, [name, *_]] if step == INPUT:
            yield str(name)
        case ["list" | "either" | "all" | "any", parts]:
            for part in parts:
                yield from _inputs(part)
        case ["map", parts]:
            for part in parts.values():
                yield from _inputs(part)


def _task(step: StepDefinition) -> DuctorTask | None:
    if not step.runs_task:
        return None
    try:
        return find(step.target)
    except UnknownTask:
        return None
