"""Tasks for the tests of parents and children."""

from __future__ import annotations

from typing import Any

from queueapp import Tree, task
from queueapp.worker.context import JobContext


def never(error: BaseException, errors: int) -> None:
    """A backoff that asks for no other attempt."""


@task(takes_context=True)
def gather(context: JobContext, *args: Any) -> dict[str, Any]:
    """What became of the children of this job."""
    return {
        "results": context.children.results,
        "failed": [[child.outcome, len(child.errors)] for child in context.children.failed],
        "attempt": context.attempt,
    }


@task
def give(value: Any) -> Any:
    return value


@task(queue_name="other")
def give_there(value: Any) -> Any:
    return value


@task(queue_name="other", takes_context=True)
def gather_there(context: JobContext) -> list[Any]:
    return context.children.results


@task
def refuse(message: str) -> None:
    raise ValueError(message)


@task(takes_context=True, max_attempts=2)
def spread(context: JobContext, number: int, swallows: bool = False) -> Any:
    """Adds so many children at its first run, and sums up what they gave at its second."""
    if not context.children:
        try:
            context.add_children([give.bind(value) for value in range(number)])
        except BaseException:
            if not swallows:
                raise
            return "nobody shall see this"
    return sum(context.children.results)


@task(takes_context=True)
async def spread_async(context: JobContext, number: int) -> Any:
    if not context.children:
        await context.aadd_children([Tree(give.bind(value)) for value in range(number)])
    return sum(context.children.results)


@task(takes_context=True)
def spread_nothing(context: JobContext) -> int:
    """Adds none at its first run."""
    if context.fence < 2:
        context.add_children([])
    return int(context.fence)


@task(queue_name="other")
def refuse_there(message: str) -> None:
    raise ValueError(message)


@task(max_attempts=5, backoff=never)
def give_up(message: str) -> None:
    """Does not want another attempt, though it has some."""
    raise ValueError(message)
