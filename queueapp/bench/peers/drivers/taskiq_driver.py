# mypy: disable-error-code="import-not-found, untyped-decorator"
"""taskiq on its list in Redis, with one process of coroutines on uvloop, acknowledged when they come; no results.

It has no call that sends many; its own page sends many with `asyncio.gather`, and so does this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import marks
import uvloop
from taskiq_redis import ListQueueBroker

broker = ListQueueBroker(marks.URL, max_connection_pool_size=64)


@broker.task(task_name="body")
async def body(number: int, ms: int) -> None:
    await marks.async_body(number, ms)


@broker.task(task_name=marks.TASK)
async def take(text: str) -> None:
    """Never run: jobs with texts only wait."""


async def many(pairs: Sequence[marks.Pair]) -> None:
    await asyncio.gather(*[body.kiq(number, ms) for number, ms in pairs])


async def texts(count: int) -> None:
    await asyncio.gather(*[take.kiq(marks.TEXT) for _ in range(count)])


async def main() -> None:
    await broker.startup()
    try:
        await marks.command(marks.Driver(one=body.kiq, many=many, texts=texts, awaits=True))
    finally:
        await broker.shutdown()


if __name__ == "__main__":
    work = marks.asked_to_work()
    if work is not None:
        slots, prefetch = work
        command = ("worker", "taskiq_driver:broker", "--workers", "1", "--log-level", "WARNING")
        ways = ("--max-async-tasks", str(slots), "--max-prefetch", prefetch, "--ack-type", "when_received")
        marks.become(marks.script("taskiq"), *command, *ways)
    uvloop.run(main())
