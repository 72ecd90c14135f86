"""`recorded()` and `immediate()`: what `enqueue` does while a test runs, without any server.

Each is a context manager and a decorator, of functions (`async def`, too) and of TestCase classes. One holds for the
whole process, threads of the host included; nested, the inner one holds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from django.test.utils import TestContextDecorator

from queueapp.producer import client, outbox
from queueapp.store import shards
from queueapp.testing import assertions
from queueapp.testing.at_once import AtOnce
from queueapp.testing.memory import Memory
from queueapp.testing.recorder import EnqueuedJob, Recorder

Before = tuple[shards.StandIn | None, client.Watcher | None, Recorder | None]
"""What stood where this mode puts its own."""


class InTurn(threading.local):
    """Runs what is enqueued at once, where it is enqueued; but what a package hands over one after the other.

    The end of a flow's step hands over the next ones: they are to begin when that step is through, as in a worker,
    and not inside of it.
    """

    def __init__(self, run: Callable[[EnqueuedJob], None]) -> None:
        self._run = run
        self._waiting: list[EnqueuedJob] | None = None
        """None while nothing that was handed over runs in this thread."""

    def __call__(self, job: EnqueuedJob, handed_over: bool) -> None:
        if not handed_over:
            self._run(job)
        elif self._waiting is not None:
            self._waiting.append(job)
        else:
            self._waiting = [job]
            try:
                while self._waiting:
                    self._run(self._waiting.pop(0))
            finally:
                self._waiting = None


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
        recorder = Recorder(InTurn(AtOnce(memory, failures)) if self._runs else None)
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
    "pending". `drain()` inside runs what was recorded. A flow that is started records its first steps.
    """
    return Mode(runs=False, raise_on_failure=False)


def immediate(*, raise_on_failure: bool = False) -> Mode:
    """`enqueue` runs the body at once, in the calling thread, and fills the handle; gives the `Recorder`.

    Arguments and result go through JSON, the tenant is entered, failed attempts are repeated without waiting until
    `max_attempts`. Inside an atomic block of the code under test the body runs after it. A job that is due later
    (`run_after`, `debounce`) does not run; `drain(include_scheduled=True)` runs it. With `raise_on_failure` the
    end of the block raises what the first failed job raised. Of a tree of jobs the children run first, in order, and a
    parent when the last of them has ended. A flow that is started runs to its end, step after step,
    or to where it sleeps or waits for an event.
    """
    return Mode(runs=True, raise_on_failure=raise_on_failure)
