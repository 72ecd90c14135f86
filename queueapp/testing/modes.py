"""`recorded()` and `immediate()`: what `enqueue` does while a test runs, without any server.

Each is a context manager and a decorator, of functions (`async def`, too) and of TestCase classes. One holds for the
whole process, threads of the host included; nested, the inner one holds.
"""

from __future__ import annotations

from types import TracebackType

from django.test.utils import TestContextDecorator

from queueapp.producer import client, outbox
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.ids import LENGTH
from queueapp.testing import assertions
from queueapp.testing.memory import Memory
from queueapp.testing.recorder import EnqueuedJob, Recorder
from queueapp.testing.running import run_at_once

Before = tuple[shards.StandIn | None, client.Watcher | None, Recorder | None]
"""What stood where this mode puts its own."""


class Mode(TestContextDecorator):
    """Puts a memory in the place of the store and a recorder behind the producer, for as long as it is entered."""

    def __init__(self, *, runs: bool, raise_on_failure: bool) -> None:
        super().__init__()
        self._runs = runs
        self._raise_on_failure = raise_on_failure
        self._entered: list[tuple[Recorder, list[BaseException], Before]] = []

    def __enter__(self) -> Recorder:  # type: ignore[override]  # the stubs think of the registry of apps alone
        return self.enable()

    def enable(self) -> Recorder:
        outbox.forget()  # that a store was away a moment ago is nothing to this one
        memory = Memory()
        failures: list[BaseException] = []

        def run(job: EnqueuedJob) -> None:
            shard = memory.shard(job.queue_name)
            job_id = job.result.id[-LENGTH:]
            record = shard.job(job_id)
            if record is None or record.state is not State.PENDING:
                return  # due later
            job.error = run_at_once(shard, job_id)
            job.result.refresh()
            if job.error is not None:
                failures.append(job.error)

        recorder = Recorder(run if self._runs else None)
        self._entered.append((recorder, failures, (shards.stand_in, client.watcher, assertions.recorder)))
        shards.stand_in, client.watcher, assertions.recorder = memory, recorder, recorder
        return recorder

    def disable(self) -> None:
        """Leave; raises the first failure of a body, where that was asked for."""
        for error in self._leave():
            raise error

    def _leave(self) -> list[BaseException]:
        recorder, failures, before = self._entered.pop()
        try:
            recorder.collect()
        finally:
            shards.stand_in, client.watcher, assertions.recorder = before
        return failures if self._raise_on_failure else []

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failures = self._leave()
        if error is None and failures:
            raise failures[0]


def recorded() -> Mode:
    """Jobs are recorded and nothing runs; gives the `Recorder`, a list of `EnqueuedJob`.

    Everything that `enqueue` checks without the store is checked; idempotency keys, debounce and singletons hold within
    the block, rates and room do not. Handles stay
    "pending". `drain()` inside runs what was recorded.
    """
    return Mode(runs=False, raise_on_failure=False)


def immediate(*, raise_on_failure: bool = False) -> Mode:
    """`enqueue` runs the body at once, in the calling thread, and fills the handle; gives the `Recorder`.

    Arguments and result go through JSON, the tenant is entered, failed attempts are repeated without waiting until
    `max_attempts`. Inside an atomic block of the code under test the body runs after it. A job that is due later
    (`run_after`, `debounce`) does not run; `drain(include_scheduled=True)` runs it. With `raise_on_failure` the
    end of the block raises what the first failed job raised.
    """
    return Mode(runs=True, raise_on_failure=raise_on_failure)
