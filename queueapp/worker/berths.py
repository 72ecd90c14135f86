"""Berths: a thread for the synchronous parts of one running coroutine, which is where its database connections live.

`sync_to_async`, and with it each query of an `async def` body, runs in one thread that all coroutines of a process
share, unless a context says otherwise. Here each running body has a berth of its own: no query waits for another job's,
what `TENANT_CONTEXT` sets on a connection stays with the job, and nobody's connection is tidied under a running query.
The thread is started by its first use. Used in the loop's thread by `coroutines`.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import ParamSpec, TypeVar

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from queueapp.worker.slots import IDLE_S
from queueapp.worker.tidying import close_connections, close_stale_connections, open_caches

P = ParamSpec("P")
T = TypeVar("T")


class Berth:
    """One thread, and the context in which `sync_to_async` finds it."""

    def __init__(self) -> None:
        self._thread = _Thread()
        sensitive = ThreadSensitiveContext()
        # As the context itself does for an executor given to it, which older releases of asgiref cannot.
        SyncToAsync.context_to_thread_executor[sensitive] = self._thread
        self.context = contextvars.Context()
        """To be copied for each job: it holds where synchronous code runs, and the caches."""
        self.context.run(SyncToAsync.thread_sensitive_context.set, sensitive)
        self.context.run(open_caches)
        self.left_at = monotonic()
        self.may_hold_connections = False

    async def tidy(self) -> None:
        """Closes the connections that went stale, in their own thread; costs nothing where the job had no use of it."""
        if self._thread.used:
            self.may_hold_connections = True
            await asyncio.get_running_loop().run_in_executor(self._thread, close_stale_connections)
            self._thread.used = False

    def close_connections(self) -> None:
        """Closes what an idle thread still holds, without waiting for it."""
        if self.may_hold_connections:
            self.may_hold_connections = False
            self._thread.submit(close_connections)
            self._thread.used = False

    def close(self) -> None:
        self.close_connections()
        self._thread.shutdown(wait=False)


class Berths:
    """The berths of one loop. The one left last is taken first, so that no more threads wake than jobs need."""

    def __init__(self) -> None:
        self._free: list[Berth] = []
        self._looking: asyncio.TimerHandle | None = None

    def take(self) -> Berth:
        return self._free.pop() if self._free else Berth()

    def leave(self, berth: Berth) -> None:
        berth.left_at = monotonic()
        self._free.append(berth)
        if berth.may_hold_connections and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle)

    def close(self) -> None:
        for berth in self._free:
            berth.close()

    def _close_idle(self) -> None:
        """As slot threads do: a berth without work for a while holds no session of the database."""
        now = monotonic()
        for berth in self._free:
            if now - berth.left_at >= IDLE_S:
                berth.close_connections()
        open_still = any(berth.may_hold_connections for berth in self._free)
        self._looking = asyncio.get_running_loop().call_later(IDLE_S, self._close_idle) if open_still else None


class _Thread(ThreadPoolExecutor):
    """What `sync_to_async` submits to: one thread, of which it is known whether it was used."""

    def __init__(self) -> None:
        super().__init__(max_workers=1, thread_name_prefix="ductor-berth")
        self.used = False

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.used = True
        return super().submit(function, *args, **kwargs)
