# mypy: disable-error-code="import-not-found, untyped-decorator"
"""streaq with one process of coroutines on uvloop; many are sent by `enqueue_many`."""

from __future__ import annotations

import os
from collections.abc import Sequence

import marks
import uvloop
from streaq import Worker

worker = Worker(
    redis_url=marks.URL,
    concurrency=int(os.environ.get("PEER_SLOTS", "16")),
    prefetch=int(os.environ.get("PEER_PREFETCH", "0")) or None,
    anyio_kwargs={"use_uvloop": True},
)


@worker.task(silent=True, ttl=0)
async def body(number: int, ms: int) -> None:
    await marks.async_body(number, ms)


@worker.task(name=marks.TASK)
async def take(text: str) -> None:
    """Never run: jobs with texts only wait."""


async def many(pairs: Sequence[marks.Pair]) -> None:
    await worker.enqueue_many([body.enqueue(number, ms) for number, ms in pairs])


async def texts(count: int) -> None:
    await worker.enqueue_many([take.enqueue(marks.TEXT) for _ in range(count)])


async def main() -> None:
    async with worker:
        await marks.command(marks.Driver(one=body.enqueue, many=many, texts=texts, awaits=True))


if __name__ == "__main__":
    work = marks.asked_to_work()
    if work is not None:
        slots, prefetch = work
        marks.become(
            marks.script("streaq"), "run", "streaq_driver:worker", PEER_SLOTS=str(slots), PEER_PREFETCH=prefetch
        )
    uvloop.run(main())
