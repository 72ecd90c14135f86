"""The run that processes are killed under: ten steps, three branches beside each other. Each body notes its key.

What a worker process notes goes to one file in a directory that FLOW_NOTES names, a line in a single write.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from flows import current_step, flow, map_step, sleep, step
from queueapp import task

PATIENCE_S = 60.0


def note(what: str, key: str) -> None:
    with Path(os.environ["FLOW_NOTES"], "notes").open("a") as file:
        file.write(f"{what} {key}\n")


def _body() -> None:
    current = current_step()
    assert current is not None
    note("begun", current.key)
    time.sleep(0.01)
    note("ran", current.key)


@task(max_attempts=1, max_crashes=50)
def add(*numbers: int) -> int:
    _body()
    return sum(numbers)


@task(max_attempts=1, max_crashes=50)
def numbers(count: int) -> list[int]:
    _body()
    return list(range(count))


@task(max_attempts=1, max_crashes=50)
def total(given: list[int]) -> int:
    _body()
    return sum(given)


@task(max_attempts=1, max_crashes=50)
def wait_to_go(number: int) -> Any:
    """Until the test makes the file `go`."""
    current = current_step()
    assert current is not None
    note("begun", current.key)
    deadline = time.monotonic() + PATIENCE_S
    while not Path(os.environ["FLOW_NOTES"], "go").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    note("ran", current.key)
    return number


@flow(name="killed_inner")
def inner(number: int) -> object:
    first = step(add, number, 1, name="one")
    return step(add, first, 1, name="two")


@flow(name="killed")
def branches(number: int) -> object:
    """Gives 1 + 2 + 3 of the first branch, 0 + 1 + 2 + 3 of the second, number + 2 of the third, and 2."""
    root = step(add, number, 0, name="root")
    first = step(add, 1, 2, name="first", after=root)
    first_end = step(add, first, 3, name="first_end")
    listed = step(numbers, 4, name="listed", after=root)
    parts = map_step(add, listed, name="parts", max_parallel=2)
    second = step(total, parts, name="second")
    third = step(inner, root, name="third")
    nap = sleep(0.2, name="nap", after=third)
    joined = step(add, first_end, second, third, name="joined", after=nap)
    return step(add, joined, 2, name="last")


@flow(name="killed_fan")
def crowd(count: int) -> object:
    listed = step(numbers, count, name="listed")
    parts = map_step(wait_to_go, listed, name="parts", max_parallel=50)
    return step(total, parts, name="last")


EXPECTED = 6 + 6 + 2 + 2
"""What `branches` returns, beside its number."""
KEYS = ["root", "first", "first_end", "listed", "second", "joined", "last"]
"""Its steps with a body of their own, without those of its map and of its sub-flow."""
