"""Tasks and flows of a host, for tests with a real queue and a real database."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from flows import RunHandle, current_step, either, flow, map_step, sleep, step, wait_for
from queueapp import task
from tests.working import work

RAN: Counter[str] = Counter()
"""Step key → how often its body ran to its end."""
FAIL: set[str] = set()
"""Step keys, or names of steps, whose bodies raise."""
UNDONE: list[Any] = []
"""What was given to `undo`, in order."""


def forget() -> None:
    """As before the first test."""
    RAN.clear()
    FAIL.clear()
    UNDONE.clear()


def work_through(run: RunHandle) -> None:
    """Until it has ended: a worker of a test does not wait for what is due in a moment, such as the end of a sleep."""
    deadline = time.monotonic() + 20
    while not run.refresh().row.has_ended and time.monotonic() < deadline:
        work()


def _note() -> None:
    current = current_step()
    assert current is not None
    if current.key in FAIL or current.step in FAIL:
        raise ValueError(f"{current.step} was told to fail")
    RAN[current.key] += 1


@task(max_attempts=1)
def add(left: int, right: int) -> int:
    _note()
    return left + right


@task(max_attempts=1)
def numbers(count: int) -> list[int]:
    _note()
    return list(range(count))


@task(max_attempts=1)
def double(number: int) -> int:
    _note()
    return number * 2


@task(max_attempts=1)
async def atotal(given: list[int]) -> int:
    _note()
    return sum(given)


@task(max_attempts=1)
def same(given: Any) -> Any:
    _note()
    return given


@task(max_attempts=1)
def undo(left: Any) -> None:
    UNDONE.append(left)
    _note()


@flow
def chain(number: int) -> object:
    first = step(add, number, 1)
    return step(add, first, 10, name="second")


@flow
def fan(count: int) -> object:
    listed = step(numbers, count)
    doubled = map_step(double, listed, max_parallel=4)
    return step(atotal, doubled)


@flow
def patient(number: int) -> object:
    told = wait_for("go")
    pause = sleep(0.01, after=told)
    return step(add, number, told["more"], after=pause)


@flow
def outer(number: int) -> object:
    inner = step(chain, number)
    return step(add, inner, 100)


@flow
def two_events() -> object:
    first = wait_for("first")
    second = wait_for("second")
    return step(same, second, after=first)


@flow
def outer_fan(count: int) -> object:
    listed = step(numbers, count)
    runs = map_step(chain, listed)
    return step(same, runs)


@flow(on_failure="compensate")
def undone(count: int) -> object:
    first = step(add, count, 1, undo=undo)
    listed = step(numbers, count, after=first)
    doubled = map_step(double, listed, max_parallel=1, undo=undo)
    return step(same, doubled, name="last")


@flow
def lenient(count: int) -> object:
    listed = step(numbers, count)
    doubled = map_step(double, listed, may_fail=True)
    alone = step(add, 1, 1, may_fail=True)
    return step(same, {"results": doubled, "counts": doubled.counts, "alone": either(alone, "none")}, name="last")


@flow
def wide(count: int) -> object:
    listed = step(numbers, count)
    doubled = map_step(double, listed)
    return doubled.counts


@flow
def joined() -> object:
    left = step(add, 1, 1, name="left")
    right = step(add, 2, 2, name="right")
    return step(add, left, right, name="both")


@flow(on_failure="continue")
def branches() -> object:
    """Two branches of three steps."""
    for branch in ("left", "right"):
        before = step(same, 1, name=f"{branch}_1")
        before = step(same, before, name=f"{branch}_2")
        step(same, before, name=f"{branch}_3")
    return None
