"""Runs a job in the calling thread, on its database connections, as the worker itself does (`worker.attempt.run_one`).

Called by `immediate()` for jobs in memory and by `drain()` for every store. What a body raised comes back to the
caller, which a worker's slot would only report.
"""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction

from queueapp.errors import InvalidOption
from queueapp.producer.task import find
from queueapp.store.records import Completed, Failed, Finish
from queueapp.testing.memory import MemoryShard
from queueapp.worker.attempt import run_one
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.slots import Held

LEASE_MS = 3_600_000
"""Nobody sends heartbeats while a test's body runs, which may stand in a debugger."""
WORKER = "test"


def run(held: Held) -> tuple[Finish | None, BaseException | None]:
    """What the run reports, and what it raised; it reports nothing when it has added children, for which its job waits.

    Raises UnknownTask, and KeyboardInterrupt, which no job has caused."""
    raised: list[BaseException] = []
    task = find(held.job.task)
    if iscoroutinefunction(task.func) and _in_loop():
        raise InvalidOption(
            f"{held.job.task} is asynchronous and cannot run inside the running event loop from synchronous code: "
            "in an asynchronous test use `await task.aenqueue(...)`, `await adrain()`."
        )
    outcome = run_one(held, Faults(), raised.append)
    error = raised[0] if raised else None
    if isinstance(error, KeyboardInterrupt):
        raise error
    if outcome is None and held.lost:
        return None, None
    if not isinstance(outcome, (Completed, Failed)):
        raise AssertionError(f"{held.job.task} was found and then not: {outcome!r}")
    return outcome, error


def run_at_once(shard: MemoryShard, job_id: str) -> BaseException | None:
    """All attempts of one job in memory, without waiting between them; what the last one raised. One that waits for
    children is left where it is, until somebody calls again.
    """
    line = Line(shard.pool, shard, WORKER, lease_ms=LEASE_MS)
    error: BaseException | None = None
    while (leased := shard.lease(job_id, WORKER)) is not None:
        outcome, error = run(Held(leased, line, begun=True))
        if outcome is not None:
            shard.finish(outcome)
    return error


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
