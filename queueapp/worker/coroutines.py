"""Slots for `async def` bodies: many at once on one event loop, in one thread beside those of the other slots.

The I/O thread hands jobs over by `put`, the loop's thread runs each as a task of asyncio and posts it back. Nothing is
queued behind a running body: whatever is handed over begins at once, unless a body blocks the loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import Any

from queueapp.worker.berths import Berth, Berths
from queueapp.worker.slots import STUCK_S, Chunk, Held, Outcome, Slots, emptied

logger = logging.getLogger(__name__)

EAGERLY: dict[str, Any] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
"""A body begins when it is taken, not a turn of the loop later; what ends without waiting costs no turn at all."""
JOIN_S = 0.5
"""So long is waited beyond that for a loop that a body blocks."""


class LoopSlots(Slots):
    """Room for `count` coroutines. The thread and its loop are made when the first job comes."""

    ahead = False
    in_use = False

    def __init__(self, count: int, run: Callable[[Held], Awaitable[Outcome]], post: Callable[[Chunk], None]) -> None:
        super().__init__(count, post)
        self._run = run
        self._inbox: deque[Chunk] = deque()
        """Chunks of one job each that the loop has not begun."""
        self._waking = False
        """The loop was asked to look into the inbox, and has not yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._berths = Berths()

    def start(self) -> None:
        """Nothing yet: a worker without asynchronous tasks never needs the thread."""

    def close(self, timeout_s: float) -> bool:
        """Ends the loop, and cancels what still runs on it, which has `timeout_s` to tidy up; False when that was not
        enough."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return True
        loop.call_soon_threadsafe(self._begin_to_end, timeout_s)
        thread.join(timeout_s + JOIN_S)
        return not thread.is_alive() and not self._tasks

    def room(self, mean_ms: float | None, now: float) -> int:
        """Coroutines take turns while they wait, so that nothing is gained by leasing ahead."""
        return self.idle

    def put(self, jobs: Iterable[Held], now: float) -> None:
        """A chunk for each job: none waits for another."""
        for held in jobs:
            chunk = Chunk(deque((held,)), now)
            self.count_in(chunk)
            self._inbox.append(chunk)
        self._wake()

    def begin(self, chunk: Chunk) -> None:
        self._inbox.append(chunk)
        self._wake()

    def begun_unreported(self) -> list[Held]:
        """None: a job comes here only once the store knows that it begins (`Placement.is_quick`)."""
        return []

    def has_unbegun(self) -> bool:
        return bool(self._inbox)

    def take_stuck(self, now: float) -> list[Held]:
        """What the loop has not begun, because a body blocks it."""
        stuck = [chunk for chunk in list(self._inbox) if now - chunk.since >= STUCK_S and not chunk.unrecorded]
        return [held for chunk in stuck for held in emptied(chunk)]

    def _wake(self) -> None:
        """Asks the loop to look into the inbox, unless it will."""
        with self._lock:
            if self._loop is None:
                self._start_loop()
            if self._waking:
                return
            self._waking = True
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin)

    def _start_loop(self) -> None:
        loop = self._loop = asyncio.new_event_loop()
        self.in_use = True
        self._thread = threading.Thread(target=self._live, args=(loop,), name="ductor-loop", daemon=True)
        self._thread.start()

    # -- the loop's thread -----------------------------------------------------------------------------------------

    def _live(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            self._berths.close()
            if not self._tasks:  # else a body that does not end still refers to it
                loop.close()

    def _begin(self) -> None:
        """Takes all that has come. The flag falls first: what comes from now on asks anew."""
        with self._lock:
            self._waking = False
        assert self._loop is not None
        while self._inbox:
            chunk = self._inbox.popleft()
            chunk.since = monotonic()
            try:
                held = chunk.jobs.popleft()
            except IndexError:  # taken back meanwhile
                self._post(chunk)
                continue
            chunk.current = held
            berth = self._berths.take()
            task = asyncio.Task(
                self._run_chunk(chunk, held, berth), loop=self._loop, context=berth.context.copy(), **EAGERLY
            )
            if not task.done():
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def _begin_to_end(self, timeout_s: float) -> None:
        assert self._loop is not None
        self._ending = self._loop.create_task(self._end(timeout_s))

    async def _end(self, timeout_s: float) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        asyncio.get_running_loop().stop()

    async def _run_chunk(self, chunk: Chunk, held: Held, berth: Berth) -> None:
        outcome: Outcome = None
        if held.cancelled and not held.lost:
            outcome = held.unrun()
        elif not held.lost:
            try:
                outcome = await self._run(held)
            except BaseException:
                logger.exception("A slot failed outside a task's body", extra={"job_id": held.public_id})
            await berth.tidy()
        self._berths.leave(berth)
        chunk.current = None
        chunk.done.append((held, outcome, (monotonic() - chunk.since) * 1000))
        self._post(chunk)
