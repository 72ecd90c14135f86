"""Tasks of the suite: every kind of body that a backend must cope with."""

from __future__ import annotations

from typing import Any

from queueapp import backoff, task
from queueapp.compat import TaskContext

contexts: list[Any] = []
_nothing: dict[str, None] = {}


@task
def noop(*args: Any, **kwargs: Any) -> None: ...


@task
async def noop_async(*args: Any, **kwargs: Any) -> None: ...


@task()
def answer() -> int:
    return 42


@task
async def answer_async() -> int:
    return 42


@task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


class Odd(Exception):
    """An exception whose arguments are no text."""


@task
def raises_value_error() -> None:
    raise ValueError("this job failed")


@task
def raises_in_a_chain() -> None:
    try:
        _nothing["missing"]
    except KeyError as error:
        raise Odd(ValueError("inner"), object()) from error


@task
def leaves() -> None:
    raise SystemExit("this job wants out")


@task
def interrupts() -> None:
    raise KeyboardInterrupt


@task
async def leaves_async() -> None:
    raise SystemExit("this job wants out")


@task
def raises_what_cannot_be_imported() -> None:
    raise type("Vanished", (Exception,), {"__module__": "tests.conformance.gone"})("gone")


@task
def raises_what_is_no_exception_by_its_path() -> None:
    raise type("echo", (Exception,), {})("named like a task")


@task
def returns_what_is_no_json() -> object:
    return object()


@task
def returns_bytes() -> bytes:
    return "naïve".encode()


@task
def returns_bytes_that_are_no_text() -> bytes:
    return b"\xff"


@task(takes_context=True)
def takes_context(context: TaskContext, value: int) -> dict[str, Any]:
    contexts.append(context)
    return {"attempt": context.attempt, "id": context.task_result.id, "value": value}


@task(takes_context=True, max_attempts=3, backoff=backoff.fixed(0))
def third_time_lucky(context: TaskContext) -> int:
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return context.attempt


@task(takes_context=True, max_attempts=2, backoff=backoff.fixed(0))
def looks_back(context: TaskContext) -> list[str]:
    if context.attempt < 2:
        raise ValueError("the first time")
    context.task_result.refresh()
    return [str(context.task_result.status), *(error.exception_class_path for error in context.task_result.errors)]


@task(max_attempts=3, backoff=backoff.fixed(0))
def never_lucky() -> None:
    raise ValueError("never")
