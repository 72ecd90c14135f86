# mypy: disable-error-code="import-not-found, untyped-decorator"
"""Huey with a consumer of threads that wait in a blocking read; no results, no periodic tasks.

It has no call that sends many: its `map` sends one by one.
"""

from __future__ import annotations

from typing import Any

import marks
from huey import RedisHuey

huey: Any = RedisHuey("bench", url=marks.URL, results=False)


@huey.task()
def body(number: int, ms: int) -> None:
    marks.body(number, ms)


@huey.task(name=marks.TASK)
def take(text: str) -> None:
    """Never run: jobs with texts only wait."""


def texts(count: int) -> None:
    for _ in range(count):
        take(marks.TEXT)


def main() -> None:
    work = marks.asked_to_work()
    if work is not None:
        slots, kind = work
        marks.become(marks.script("huey_consumer"), "huey_driver.huey", "-k", kind, "-w", str(slots), "-n", "-q")
    marks.main(marks.Driver(one=body, many=None, texts=texts))


if __name__ == "__main__":
    # Huey calls a task by the module that it is in: for sender and consumer the same one.
    import huey_driver

    huey_driver.main()
