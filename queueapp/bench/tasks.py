"""The tasks that benchmarks run."""

from __future__ import annotations

import asyncio
import threading
import time

from queueapp import task
from queueapp.bench.peers.drivers import marks
from queueapp.worker.context import JobContext


@task(queue_name="bench")
def noop(number: int = 0) -> None:
    """Nothing: what is left is the queue's own cost."""


@task(queue_name="bench-async")
async def anoop() -> None:
    """As `noop`, on the event loop."""


@task(queue_name="bench-async")
async def asleep() -> float:
    """Waits for a second, as a call to somewhere does; when it ended."""
    await asyncio.sleep(1)
    return time.time()


@task(queue_name="bench")
def marked(number: int, ms: int) -> None:
    """What the drivers of other queues run, too: says when it began, and sleeps."""
    marks.body(number, ms)


@task(queue_name="bench")
async def amarked(number: int, ms: int) -> None:
    """The same as a coroutine."""
    await marks.async_body(number, ms)


@task(queue_name="bench-held", takes_context=True, max_crashes=1_000)
def held(context: JobContext) -> None:
    """Runs until it is told to stop."""
    while not context.is_cancelled:
        time.sleep(0.02)


class Note:
    """What the last run of `noted` left for a thread of its own process."""

    began_s = 0.0
    """On the clock of `time.perf_counter`."""
    left = threading.Event()


note = Note()


@task(queue_name="bench-match")
def noted() -> None:
    """Notes when it began, for whoever enqueued it in the same process."""
    note.began_s = time.perf_counter()
    note.left.set()


@task(queue_name="bench-start")
def started(sent_s: float) -> float:
    """Milliseconds from the moment before the call of `enqueue` to this line. Both clocks are this machine's."""
    return (time.time() - sent_s) * 1000
