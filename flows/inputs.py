"""What a step is given, what a run returns, and what both are called. Pure: whoever relays a command asks here.

What a step left never changes once it is recorded, so the arguments are made when the job is, and made again the same.
"""

from __future__ import annotations

from flows.definition import Definition, StepDefinition
from flows.errors import InvalidValue
from flows.values import Absent, Expression, Json, Lookup, evaluate


def arguments(step: StepDefinition, lookup: Lookup) -> tuple[list[Json], dict[str, Json]]:
    """Positional and keyword arguments of the task or sub-flow; of a map those that follow the item."""
    return (
        [evaluate(expression, lookup) for expression in step.args],
        {name: evaluate(expression, lookup) for name, expression in step.kwargs.items()},
    )


def items(step: StepDefinition, lookup: Lookup) -> list[Json]:
    """The list that a map runs over. Raises InvalidValue for anything else."""
    listed = evaluate(step.items or ["value", []], lookup)
    if not isinstance(listed, list):
        raise InvalidValue(f"{step.name}: items is of the type {type(listed).__name__}: a map runs over a list.")
    return listed


def result(definition: Definition, lookup: Lookup) -> Json:
    """What a completed run returns: null in place of what a step that was skipped would have left."""
    return _lenient(definition.result, lookup)


def step_key(run_id: str, step: str, index: int | None = None) -> str:
    """The same in every try: what a body uses to do its work once, whatever happens."""
    return f"{run_id}/{step}" + ("" if index is None else f"/{index}")


def job_key(run_id: str, step: str, attempt: int, index: int | None = None) -> str:
    """Of one try: enqueued twice, it is there once. Of a sub-flow: the id of its run."""
    return f"{step_key(run_id, step, index)}@{attempt}"


def job_ms(started_ms: int, attempt: int) -> int:
    """The moment in its id: a later try's is later, so that its fence stands above (`queueapp.fencing`)."""
    return started_ms + attempt


def timer_key(run_id: str, reason: str, requeues: int) -> str:
    return f"{run_id}/{reason}@{requeues}"


def _lenient(expression: Expression, lookup: Lookup) -> Json:
    match expression:
        case ["list", parts]:
            return [_lenient(part, lookup) for part in parts]
        case ["map", parts]:
            return {key: _lenient(part, lookup) for key, part in parts.items()}
    try:
        return evaluate(expression, lookup)
    except (Absent, InvalidValue):
        return None
