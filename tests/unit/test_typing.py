"""What type checkers know of a task: its parameters but the context, and what it returns. mypy reads these tests."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

import pytest
from django.utils import timezone

from queueapp import Key, task
from queueapp.errors import InvalidOption
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import DuctorTask
from queueapp.store.store import Store
from queueapp.worker.context import JobContext
from tests.working import work

pytestmark = pytest.mark.compat


@task
def area(width: int, *, height: int = 1) -> float:
    return float(width * height)


@task(max_attempts=2)
async def greet(name: str) -> str:
    return f"hello {name}"


@task(takes_context=True)
def attempts(context: JobContext, base: int) -> list[int]:
    return [base + context.attempt]


@task(takes_context=True)
def named(context: JobContext, **more: int) -> int:
    return len(more)


@task(deadline=60, concurrency=[Key("width:{width}", limit=2), Key("{tenant}", 5)])
def limited(width: int) -> int:
    return width


def total(results: list[DuctorResult[float]]) -> float:
    """Annotations with parameters are fine, also when something looks at them."""
    return sum(result.return_value for result in results)


def test_parameters_and_results(store: Store) -> None:
    first, second = area.enqueue(2, height=3), greet.using(priority=3).enqueue("Ada")
    third, fourth = attempts.enqueue(5), named.enqueue(a=1)
    work()
    for result in (first, second, third, fourth):
        result.refresh()

    assert_type(first.return_value, float)
    assert_type(second.wait().return_value, str)
    assert_type(third.return_value, list[int])
    assert_type(area.get_result(first.id), DuctorResult[float])
    assert total([first]) == 6.0
    assert (second.return_value, third.return_value, fourth.return_value) == ("hello Ada", [6], 1)


def test_deadlines_and_keys(store: Store) -> None:
    made = limited.using(deadline=timezone.now(), concurrency=Key("w", 1))
    assert_type(made.using(deadline=timedelta(hours=1), concurrency=[]).enqueue(1), DuctorResult[int])
    with pytest.raises(InvalidOption):
        task(deadline=timezone.now())(limited.func)  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(InvalidOption):
        limited.using(concurrency="width")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError):
        Key("width")  # type: ignore[call-arg]  # wrong on purpose


def test_what_does_not_fit_is_seen(store: Store) -> None:
    area.enqueue("two")  # type: ignore[arg-type]  # wrong on purpose
    area.bind(2, depth=1)  # type: ignore[call-arg]  # wrong on purpose
    attempts.enqueue(None, 5)  # type: ignore[arg-type, call-arg]  # wrong on purpose
    with pytest.raises(InvalidOption):
        area.using(prority=1)  # type: ignore[call-arg]  # wrong on purpose


def test_classes_take_parameters_at_run_time() -> None:
    assert DuctorTask[[int], float] is DuctorTask
    assert DuctorResult[int] is DuctorResult
    bare: DuctorTask = area
    made: DuctorTask[..., Any] = area
    assert bare is made
