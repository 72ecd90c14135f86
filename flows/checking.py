"""What may be wrong with a definition, each as a FlowInvalid that names the flow, the step and the remedy. Pure.

Options that are the queue's (pool, priority, cost, timeout, retries, tenant) are judged by the task itself, with
`.using()`: there is one set of rules.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Protocol, get_args

from flows import graph
from flows.definition import OnFailure, StepDefinition
from flows.errors import FlowInvalid, InvalidInput
from flows.values import Expression, Json, Value, references, to_expression, to_json
from queueapp.errors import InvalidOption

NAME_FORM = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
STEPS_MAX = 500
PARALLEL_MAX = 100_000
DURATION_MAX_S = 10 * 365 * 86_400
STAND_IN_OPTIONS = ("debounce", "singleton", "idempotency_key")
"""With these another job may stand for that of a step, whose end nobody would ever hear of."""
JOB_OPTIONS = {"pool": "queue_name", "priority": "priority", "cost": "cost", "timeout": "timeout", "tenant": "tenant"}
"""Ours → the queue's. `retries` is one less than `max_attempts`."""


class StepTask(Protocol):
    """What a flow asks of a task; `queueapp.task` makes such."""

    @property
    def func(self) -> Callable[..., Any]: ...
    @property
    def module_path(self) -> str: ...
    @property
    def takes_context(self) -> bool: ...
    @property
    def tenant(self) -> str | None: ...
    @property
    def using(self) -> Callable[..., StepTask]: ...


# -- names ---------------------------------------------------------------------------------------------------------


def flow_name(name: str) -> str:
    if not NAME_FORM.fullmatch(name):
        raise FlowInvalid(f"flow {name!r}: a name has 1 to 100 of A-Z a-z 0-9 _ . - and begins with a letter.")
    return name


def require_free_name(name: str, function: Callable[..., object], there: Callable[..., object] | None) -> None:
    """The same function again is its module, imported anew."""
    spelt = f"{function.__module__}.{function.__qualname__}"
    if there is not None and (other := f"{there.__module__}.{there.__qualname__}") != spelt:
        raise FlowInvalid(f"flow {name} is declared twice, by {other} and by {spelt}: give one of them a name=...")


def require_name(flow: str, name: str, there: Collection[str]) -> None:
    if not NAME_FORM.fullmatch(name):
        raise FlowInvalid(
            f"flow {flow}, step {name!r}: a name has 1 to 100 of A-Z a-z 0-9 _ . - and begins with a letter."
        )
    if name in there:
        raise FlowInvalid(f"flow {flow}, step {name}: another step has this name; give one of them a name=...")
    if len(there) >= STEPS_MAX:
        raise FlowInvalid(
            f"flow {flow}, step {name}: a flow has at most {STEPS_MAX} steps; use map_step for a list, or make parts "
            "of it flows of their own."
        )


def numbered(word: str, there: Collection[str]) -> str:
    """A name for what has none of its own: it stands in no graph of names that a user reads back."""
    return next(name for number in range(1, len(there) + 2) if (name := f"{word}_{number}") not in there)


def event_name(where: str, event: object) -> str:
    if not isinstance(event, str) or not NAME_FORM.fullmatch(event):
        raise FlowInvalid(
            f"{where}: the event is {event!r}: a name has 1 to 100 of A-Z a-z 0-9 _ . - and begins with a letter."
        )
    return event


def task_name(word: str, target: object) -> str:
    function = getattr(target, "func", None)
    if function is None:
        hint = " Put @task above it." if callable(target) else ""
        raise FlowInvalid(f"{word}({target!r}): the first argument must be a task or a flow.{hint}")
    return str(function.__name__)


# -- the graph -----------------------------------------------------------------------------------------------------


def require_on_failure(flow: str, given: object) -> None:
    if given not in get_args(OnFailure):
        raise FlowInvalid(f'flow {flow}: on_failure is {given!r}: it must be "stop", "continue" or "compensate".')


def require_switch(flow: str, option: str, given: object) -> None:
    if not isinstance(given, bool):
        raise FlowInvalid(f"flow {flow}: {option} is {given!r}: it must be True or False.")


def require_steps(flow: str, steps: Mapping[str, StepDefinition], result: Expression, on_failure: OnFailure) -> None:
    """Every step that is named exists, no two wait for each other, and what is undone can be."""
    if not steps:
        raise FlowInvalid(f"flow {flow} has no steps: call step(task, ...) in it.")
    for step in steps.values():
        for first in (*step.after, *step.taken):
            if first not in steps:
                near = get_close_matches(first, steps, n=1)
                hint = f"did you mean {near[0]}?" if near else f"its steps: {', '.join(steps)}."
                raise FlowInvalid(f"flow {flow}, step {step.name}: it waits for {first!r}, which is no step; {hint}")
        if step.undo and on_failure != "compensate":
            raise FlowInvalid(
                f'flow {flow}, step {step.name}: undo is never called: the flow has on_failure="{on_failure}". Give '
                'it on_failure="compensate", or leave undo out.'
            )
        if step.when is not None and any(part == "results" for _, part in references(step.when)):
            raise FlowInvalid(f"flow {flow}, step {step.name}: when looks at all results of a map; use its .counts")
    for first, _ in references(result):
        if first not in steps:
            raise FlowInvalid(f"flow {flow}: it returns a value of {first!r}, which is no step of it.")
    try:
        graph.order({step.name: (*step.after, *step.taken) for step in steps.values()})
    except graph.Cycle as cycle:
        raise FlowInvalid(
            f"flow {flow}: these steps wait for each other: {' → '.join(cycle.path)}. Take one of the arrows out."
        ) from None


# -- targets -------------------------------------------------------------------------------------------------------


def read_parameters(flow: str, function: Callable[..., object]) -> tuple[tuple[str, ...], dict[str, Json]]:
    """The parameters of a flow and their defaults."""
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.KEYWORD_ONLY):
            raise FlowInvalid(f"flow {flow}: the parameter {parameter} must be a plain one, with a name and no star.")
    try:
        defaults = {
            parameter.name: to_json(parameter.default, f"flow {flow}: the default of {parameter.name}")
            for parameter in parameters
            if parameter.default is not parameter.empty
        }
    except InvalidInput as error:
        raise FlowInvalid(str(error)) from None
    return tuple(parameter.name for parameter in parameters), defaults


def require_task(where: str, task: StepTask, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    if "<lambda>" in task.module_path or "<locals>" in task.module_path:
        raise FlowInvalid(f"{where}: {task.module_path} cannot be found by its name: move it to the top of a module.")
    for option in STAND_IN_OPTIONS:
        if getattr(task, option, None) is not None:
            raise FlowInvalid(
                f"{where}: {task.module_path} has {option}=..., by which another job may stand for that of the step: "
                "take it off, or give the step a task of its own."
            )
    require_bound(where, task.func, args, kwargs, task.takes_context, f"task {task.func.__name__}")


def require_undo(where: str, undo: StepTask) -> None:
    if getattr(undo, "func", None) is None:
        raise FlowInvalid(f"{where}: undo is {undo!r}: it must be a task.")
    require_task(f"{where}, undo (which is given what the step returned)", undo, (None,), {})


def require_bound(
    where: str,
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    takes_context: bool,
    what: str,
) -> None:
    """The arguments fit the parameters."""
    signature = inspect.signature(function)
    if takes_context:
        signature = signature.replace(parameters=[*signature.parameters.values()][1:])
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        shown = signature.replace(return_annotation=inspect.Signature.empty)
        raise FlowInvalid(f"{where}: {what} takes {shown}: {error}.") from None


# -- options -------------------------------------------------------------------------------------------------------


def require_options(
    where: str, word: str, options: Mapping[str, object], known: Collection[str], target: object
) -> None:
    function = getattr(target, "func", None) or getattr(target, "function", None)
    for name in options:
        if name in known:
            continue
        if function is not None and name in inspect.signature(function).parameters:
            hint = f"give the target its keyword arguments as kwargs={{{name!r}: ...}}."
        elif name == "max_parallel":
            hint = "it belongs to map_step."
        else:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}."
        raise FlowInvalid(f"{where}: {word}({name}=...) is no option; {hint}")
    may_fail = options.get("may_fail", False)
    if not isinstance(may_fail, bool):
        raise FlowInvalid(f"{where}: may_fail is {may_fail!r}: it must be True or False.")


def require_no_job_options(where: str, options: Mapping[str, object]) -> None:
    for name in ("retries", "timeout", "pool", "cost", "priority"):
        if name in options:
            raise FlowInvalid(f"{where}: {name} belongs to the steps of the flow that is run here; set it there.")


def read_job_options(where: str, task: StepTask | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are the queue's, judged by the task and as it keeps them. None: a flow is run."""
    given = {name: options[name] for name in JOB_OPTIONS if options.get(name) is not None}
    retries = options.get("retries")
    if retries is not None and (isinstance(retries, bool) or not isinstance(retries, int) or retries < 0):
        raise FlowInvalid(f"{where}: retries is {retries!r}: it must be a whole number from 0.")
    kept: dict[str, Any] = {name: given[name] for name in ("pool", "priority", "cost") if name in given}
    if task is None:
        return {"tenant": None if "tenant" not in given else str(given["tenant"])}
    asked = {JOB_OPTIONS[name]: value for name, value in given.items()}
    if retries is not None:
        asked["max_attempts"] = retries + 1
    try:
        judged = task.using(**asked)
    except InvalidOption as error:
        raise FlowInvalid(f"{where}: {error}") from None
    kept["retries"] = retries
    if "tenant" in given:
        kept["tenant"] = judged.tenant
    if "timeout" in given:
        kept["timeout_ms"] = milliseconds(where, "timeout", given["timeout"])
    return kept


def read_items(where: str, items: object) -> Expression:
    expression = to_expression(items, f"{where}: items")
    if expression[0] not in {"ref", "list", "either"} and not (
        expression[0] == "value" and isinstance(expression[1], list)
    ):
        raise FlowInvalid(f"{where}: items is {items!r}: it must be a list, or a value of the run that will be one.")
    return expression


def read_max_parallel(where: str, given: object) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= PARALLEL_MAX:
        raise FlowInvalid(f"{where}: max_parallel is {given!r}: it must be a whole number from 1 to {PARALLEL_MAX}.")
    return given


def read_seconds(where: str, given: object) -> Expression:
    return given.expression if isinstance(given, Value) else ["value", milliseconds(where, "seconds", given) / 1000]


def milliseconds(where: str, name: str, given: object) -> int:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= DURATION_MAX_S:
        raise FlowInvalid(f"{where}: {name} is {given!r}: it must be seconds (or a timedelta) above 0, up to 10 years.")
    return max(1, round(seconds * 1000))
