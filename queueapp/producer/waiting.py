"""Waiting for results: one thread with one blocking connection per process, which wakes the callers that wait in it.

The store tells a waiting process that a job has ended by pushing its id to a list of that process (script `await`). The
thread blocks on those lists; it ends, closing its connection, within `BLOCK_S` of the last caller's leaving. A token
can be lost with its connection or with the store, so every caller also asks anew each `RECHECK_S`. After a fork the
child begins afresh.

Callers: any thread (`wait`) and any event loop (`await_`); the thread never runs their code beyond setting an event.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic, sleep
from typing import cast

from queueapp.errors import InvalidOption, StoreError, StoreUnavailable, WaitTimeout
from queueapp.store import connection, shards
from queueapp.store.ids import new_id

logger = logging.getLogger(__name__)

RECHECK_S = 5.0
BLOCK_S = 1.0
PAUSE_S = 0.5

Wake = Callable[[], None]


class Waiter:
    """The callers of this process, by (pool, job id), and the thread that listens for them."""

    def __init__(self) -> None:
        self.id = new_id()
        self._lock = threading.Lock()
        self._callers: dict[tuple[str, str], list[Wake]] = {}
        self._listening: frozenset[str] | None = None
        """Pools whose lists the thread blocks on; None when there is no thread."""

    def add(self, pool: str, job_id: str, wake: Wake) -> None:
        """Wake this caller when the job ends. To be called before the store is asked, so that no token is missed."""
        with self._lock:
            self._callers.setdefault((pool, job_id), []).append(wake)

    def listen(self, pool: str) -> str | None:
        """See to it that a thread listens, once the store has said that there is something to wait for.

        Returns a pool to `nudge` when the thread blocks without listening to this one.
        """
        with self._lock:
            if self._listening is None:
                # It begins by taking the lock. Where no thread can be started, none is believed to listen.
                threading.Thread(target=self._listen, name="ductor-waiter", daemon=True).start()
                self._listening = frozenset()
            return next(iter(self._listening), None) if pool not in self._listening else None

    def remove(self, pool: str, job_id: str, wake: Wake) -> None:
        """The caller waits no longer."""
        with self._lock:
            callers = self._callers.get((pool, job_id), [])
            with suppress(ValueError):
                callers.remove(wake)
            if not callers:
                self._callers.pop((pool, job_id), None)

    def nudge(self, pool: str) -> None:
        """Let the thread, which blocks on this pool's list, look at once; without it, that takes up to `BLOCK_S`."""
        name = shards.keys(pool)[f"done:{self.id}"]
        with suppress(StoreError), connection.translate_errors():
            pipeline = connection.commands().pipeline(transaction=False)
            pipeline.rpush(name, b"")
            pipeline.expire(name, 60)
            pipeline.execute()

    def _listen(self) -> None:
        """The thread: block on the lists of the pools in which somebody waits, until nobody does."""
        client = None
        try:
            while True:
                with self._lock:
                    pools = frozenset(pool for pool, _ in self._callers)
                    self._listening = pools or None
                    if not pools:
                        return
                try:
                    with connection.translate_errors():
                        if client is None:
                            client = connection.blocking()
                        lists = {shards.keys(pool)[f"done:{self.id}"]: pool for pool in sorted(pools)}
                        popped = cast("list[bytes] | None", client.blpop(list(lists), timeout=BLOCK_S))
                except StoreError as error:
                    logger.debug("Waiting for results goes on when the store is back", extra={"error": str(error)})
                    sleep(PAUSE_S)
                    continue
                if popped is not None:
                    self._wake(lists[popped[0].decode()], popped[1].decode())
        except Exception:
            logger.exception("The thread that waits for results ended; callers ask the store themselves")
            with self._lock:
                self._listening = None
        finally:
            if client is not None:
                client.close()

    def _wake(self, pool: str, job_id: str) -> None:
        with self._lock:
            callers = self._callers.pop((pool, job_id), [])
        for wake in callers:
            wake()


_waiter = Waiter()


def _renew() -> None:
    global _waiter
    _waiter = Waiter()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def wait(pool: str, job_id: str, deadline: Deadline) -> None:
    """Block until the job has ended, is dead, or is gone. Raises WaitTimeout.

    StoreUnavailable is raised only when the store cannot be asked at the beginning; it may go away later and come back.
    """
    waiter, ended, asked = _waiter, threading.Event(), False
    waiter.add(pool, job_id, ended.set)
    try:
        while True:
            try:
                if shards.store(pool).await_result(job_id, waiter.id):
                    return
                asked = True
            except StoreUnavailable:
                if not asked:
                    raise
            if nudge := waiter.listen(pool):
                waiter.nudge(nudge)
            if ended.wait(deadline.slice_s()):
                return
            deadline.check(f"Job {job_id}")
    finally:
        waiter.remove(pool, job_id, ended.set)


async def await_(pool: str, job_id: str, deadline: Deadline) -> None:
    """`wait` for a coroutine; neither the loop nor a worker thread of it is held."""
    waiter, ended, asked = _waiter, asyncio.Event(), False
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody is left to be woken
            loop.call_soon_threadsafe(ended.set)

    waiter.add(pool, job_id, wake)
    try:
        while True:
            try:
                if await shards.async_store(pool).await_result(job_id, waiter.id):
                    return
                asked = True
            except StoreUnavailable:
                if not asked:
                    raise
            if nudge := waiter.listen(pool):
                await asyncio.to_thread(waiter.nudge, nudge)
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), deadline.slice_s())
                return
            deadline.check(f"Job {job_id}")
    finally:
        waiter.remove(pool, job_id, wake)


class Deadline:
    """When a caller gives up."""

    def __init__(self, timeout: float | timedelta | None) -> None:
        seconds: object = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        if seconds is None:
            seconds = math.inf
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
            raise InvalidOption(
                f"timeout is {timeout!r}: it must be seconds from 0 up, a timedelta, or None for no end."
            )
        self._timeout_s = seconds
        self._at = monotonic() + seconds

    def slice_s(self) -> float:
        """How long to wait before the store is asked anew."""
        return min(RECHECK_S, self.left_s())

    def left_s(self) -> float:
        return max(0.0, self._at - monotonic())

    def check(self, what: str) -> None:
        """Raises WaitTimeout when the time is over. `what` is what has not ended."""
        if monotonic() >= self._at:
            raise WaitTimeout(
                f"{what} has not ended within {self._timeout_s:g} s; it goes on. Does a worker run for its pool?"
            )
