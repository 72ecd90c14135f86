"""Time limits: how a running body is warned at its soft limit, and given up at its hard one; and how it is cancelled.

`attempt` runs every body through `within` or `awithin`. One thread watches the clock for all bodies that have a limit;
it is started by the first of them, so that nobody else pays. Soft: SoftTimeLimitExceeded is raised in a function, which
can only happen between two of its own steps, not inside a call that waits; a coroutine is cancelled where it waits.
Hard: the I/O thread is told, which reports the job as failed and gives its slot to others (`loop.Worker`).
"""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from inspect import iscoroutinefunction
from itertools import count
from time import monotonic
from typing import Any

from asgiref.sync import async_to_sync

from queueapp.conf import settings
from queueapp.errors import SoftTimeLimitExceeded
from queueapp.producer.task import DuctorTask
from queueapp.worker.slots import Held, Overdue

STACK_CHARACTERS = 8_000
ARRIVES_WITHIN = 1_000
"""An exception that was sent to a thread is raised at its next step but a few; so many empty ones are taken."""


@dataclass(slots=True, eq=False)
class Watch:
    """One limited body. `warn` is called at the soft limit, `where` says at the hard one what the body is doing."""

    held: Held
    soft_s: float | None
    hard_s: float | None
    warn: Callable[[], None]
    where: Callable[[], str]
    warned: bool = False
    ended: bool = field(default=False, init=False)


class Limits:
    """Watches limited bodies from a thread of its own, where `overdue` is called with what passed its hard limit."""

    def __init__(self, overdue: Callable[[Held, Overdue], None], clock: Callable[[], float] = monotonic) -> None:
        self._overdue = overdue
        self._clock = clock
        self._changed = threading.Condition()
        self._moments: list[tuple[float, int, Watch, bool]] = []
        """(when, a number that breaks ties, whose, whether it is the hard limit), a heap."""
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._closing = False

    def begin(self, watch: Watch) -> None:
        """The body begins now."""
        now = self._clock()
        with self._changed:
            for limit_s, hard in ((watch.soft_s, False), (watch.hard_s, True)):
                if limit_s is not None:
                    heappush(self._moments, (now + limit_s, next(self._numbers), watch, hard))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ductor-limits", daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self, watch: Watch) -> None:
        """The body is through. What was begun for it before may still happen."""
        with self._changed:
            watch.ended = True
            while self._moments and self._moments[0][2].ended:
                heappop(self._moments)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()

    def _work(self) -> None:
        while (due := self._wait()) is not None:
            watch, hard = due
            if not hard:
                watch.warned = True
                watch.warn()
            elif watch.hard_s is not None:
                self._overdue(watch.held, Overdue(watch.hard_s, watch.where()))

    def _wait(self) -> tuple[Watch, bool] | None:
        """The next limit of a body that still runs, once it is over; None at the end."""
        with self._changed:
            while not self._closing:
                if not self._moments:
                    self._changed.wait()
                    continue
                at, _, watch, hard = self._moments[0]
                if not watch.ended and (wait_s := at - self._clock()) > 0:
                    self._changed.wait(wait_s)
                    continue
                heappop(self._moments)
                if not watch.ended:
                    return watch, hard
        return None


def within(limits: Limits | None, held: Held, task: DuctorTask, body: Callable[[], Any]) -> object:
    """Runs a body in this thread, within the limits of its task; an asynchronous one in an event loop of its own.

    As Django calls such a task: what it does on the database comes back to this thread, whose connections are looked
    after. asyncio.run would send it to one thread that all slots share and nobody tidies.
    """
    if iscoroutinefunction(task.func):
        return async_to_sync(awithin)(limits, held, task, body)
    soft_s, hard_s = limits_of(task)
    if limits is None or (soft_s is None and hard_s is None):
        return body()
    thread = threading.get_ident()
    gate, sent = deque([None]), threading.Event()

    def warn() -> None:
        try:
            gate.pop()
        except IndexError:
            return  # the body is through
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SoftTimeLimitExceeded))
        sent.set()

    watch = Watch(held, soft_s, hard_s, warn, lambda: _stack(sys._current_frames().get(thread)))
    limits.begin(watch)
    try:
        return body()
    finally:
        limits.end(watch)
        # Whoever takes the one thing out of the gate decides: the exception comes, or the body is through before it.
        try:
            gate.pop()
        except IndexError:
            sent.wait()
            for _ in range(ARRIVES_WITHIN):
                pass


async def awithin(limits: Limits | None, held: Held, task: DuctorTask, body: Callable[[], Awaitable[Any]]) -> object:
    """Awaits a body, in which CancelledError is raised when its job is cancelled, or at the soft limit of its task.

    Once, so that it may tidy up. The soft limit leaves here as SoftTimeLimitExceeded.
    """
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None

    def stop() -> None:
        with suppress(RuntimeError):  # the loop has been closed: the body is through
            loop.call_soon_threadsafe(running.cancel)

    held.interrupts = deque((stop,))
    if held.cancelled:
        held.interrupt()  # it was told before there was anything to stop
    soft_s, hard_s = limits_of(task)
    watch: Watch | None = None
    if limits is not None and (soft_s is not None or hard_s is not None):
        watch = Watch(held, soft_s, hard_s, held.interrupt, lambda: "".join(map(_stack, running.get_stack())))
        limits.begin(watch)
    try:
        return await body()
    except asyncio.CancelledError:
        if watch is not None and watch.warned and not held.cancelled:
            running.uncancel()
            raise SoftTimeLimitExceeded from None
        raise
    finally:
        held.interrupts.clear()
        if limits is not None and watch is not None:
            limits.end(watch)


def limits_of(task: DuctorTask) -> tuple[float | None, float | None]:
    """(soft, hard), in seconds; None = no limit."""
    return task.soft_timeout, task.timeout if task.timeout is not None else settings.timeout_s


def _stack(frame: Any) -> str:
    """Where a body stands, in the form of a traceback: code, no values. Its end says most."""
    if frame is None:
        return ""
    text = "".join(traceback.format_stack(frame))[-STACK_CHARACTERS:]
    return f"Still running when its time was over:\n{text}\n"
