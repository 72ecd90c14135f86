"""Slots: room for running bodies, and the chunks of jobs that the I/O thread hands to them.

The I/O thread alone calls the methods of `Slots`, but for `begin`. Here are those that are threads; `coroutines` has
those of `async def` bodies. A slot thread takes one chunk, runs its jobs one after another and posts the chunk back;
that is two queue operations a chunk, not a job. Jobs that take time travel in chunks of one. What a slot has not begun
can be taken back at any time, because both sides pop from the chunk's deque, which is atomic.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from queueapp.store.records import Completed, Failed, LeasedJob, Returned
from queueapp.worker.tidying import close_connections, open_caches

if TYPE_CHECKING:
    from queueapp.worker.line import Line

logger = logging.getLogger(__name__)

Outcome = Completed | Failed | Returned | None
"""What became of a job in a slot. None: nothing is reported, the lease runs out (a lost lease, an injected fault)."""

LOOKAHEAD_MS = 20.0
"""How much estimated work may wait for one slot: so long, about, does it take until a slot begins it."""
LOOKAHEAD_JOBS = 64
QUICK_MS = 50.0
"""Jobs that take longer are leased when a slot is free for them, and begin when the store knows that they do."""
CHUNK_MS = 2.0
"""How much estimated work one chunk carries; a job that takes longer travels alone."""
CHUNK_JOBS = 32
STUCK_S = 0.030
"""A job that is leased but not begun waits behind others no longer than this, a tick and one call: 50 ms in all."""
UNSCHEDULED_S = 1.0
"""One for which a thread is free waits for the processor alone, which giving it back would not shorten; but not longer
than this."""
TICK_S = 0.010
IDLE_S = 10.0
"""A slot without work for so long closes its database connections, however long CONN_MAX_AGE would keep them."""


@dataclass(frozen=True, slots=True)
class Overdue:
    """What is known of a body that had not ended when its hard time limit was over."""

    timeout_s: float
    where: str
    """The stack of the thread that ran it, "" where there is none to show."""


@dataclass(slots=True, eq=False)
class Held:
    """A job whose lease this process holds. Slot threads read it; the I/O thread alone writes `begun` and `lost`, and
    calls `cancel`."""

    job: LeasedJob
    line: Line
    begun: bool = False
    """The store knows that the body started: should this process die, it counts as a crash."""
    lost: bool = False
    """The lease is gone; the body is told through its context, its outcome would be refused."""
    cancelled: bool = False
    """The job was told to stop. Its lease is held as before, and whatever is reported of it ends it as cancelled."""
    interrupts: deque[Callable[[], None]] | None = None
    """While a body runs that an exception can be raised in: what does so. Who takes it out calls it, so that it happens
    once. In an asynchronous body that is CancelledError, when the job is told to stop or at its soft time limit."""
    cost: float = 0.0
    """Set by the body through its context."""
    counted_ms: float = 0.0
    """How much of its run time the meter has counted."""
    overdue: Overdue | None = None
    """This stands for a body that has passed its time limit: what is left to do is to say so."""
    recorded: threading.Event | None = None
    """Of a body that began before the store knew of its job (`match`): set once the store has answered."""
    local: Any = None
    """Of such a body: what came with its order for what surrounds it (`extensions.Wrapper`)."""

    @property
    def public_id(self) -> str:
        """The id that users see, for log lines."""
        return self.line.public_id(self.job.id)

    def unrun(self) -> Returned:
        """It goes back as it came."""
        return Returned(id=self.job.id, attempts=self.job.attempts)

    def cancel(self) -> None:
        """The job was told to stop: the body is told, too."""
        self.cancelled = True
        self.interrupt()

    def interrupt(self) -> None:
        """Raises CancelledError in the body where it can be. Called by who told it, and by a body that begins just
        then: the first one does it."""
        if self.interrupts:
            try:
                stop = self.interrupts.popleft()
            except IndexError:
                return
            stop()


@dataclass(slots=True, eq=False)
class Chunk:
    """Some jobs for one slot. `since` is the moment at which the current job began, or the chunk was queued."""

    jobs: deque[Held]
    since: float
    taken: bool = False
    """A slot has begun with it; else it waits in the queue."""
    current: Held | None = None
    done: deque[tuple[Held, Outcome, float]] = field(default_factory=deque)
    """(job, outcome, run time in ms), appended by the slot, taken by the I/O thread."""
    abandoned: bool = False
    """Its body has passed its time limit: the slot was given to others, and what becomes of the body counts no more."""
    unrecorded: bool = False
    """The store has not answered yet whether its one job is leased (`match`): it is not taken back, its outcome waits.
    """


class Slots(ABC):
    """Room for `count` running bodies, and the chunks that fill it. What runs them is for the two subclasses."""

    ahead: bool
    """Whether more may be handed over than there are free slots, to wait behind quick jobs."""
    in_use: bool
    """Whether there are threads for them."""

    def __init__(self, count: int, post: Callable[[Chunk], None]) -> None:
        self.count = count
        self._post = post
        self.outstanding: dict[int, Chunk] = {}
        """Chunks that were handed over and not yet seen to be through, by `id(chunk)`."""
        self._abandoned: dict[int, Chunk] = {}
        """Those of bodies that passed their time limit and still run, each in a place that nothing else is given."""

    @property
    def abandoned(self) -> int:
        """Bodies that passed their time limit and have not ended since."""
        return len(self._abandoned)

    @property
    def idle(self) -> int:
        """Slots that would begin a chunk at once."""
        return max(0, self.count - len(self.outstanding))

    @abstractmethod
    def start(self) -> None:
        """Makes the threads."""

    @abstractmethod
    def close(self, timeout_s: float) -> bool:
        """Ends the threads; False when a body was still running after `timeout_s`."""

    @abstractmethod
    def room(self, mean_ms: float | None, now: float) -> int:
        """How many jobs may be leased now."""

    @abstractmethod
    def put(self, jobs: Iterable[Held], now: float) -> None:
        """Hands jobs over, to whichever slot is free first."""

    @abstractmethod
    def begin(self, chunk: Chunk) -> None:
        """Hands over a chunk of one job, from any thread; `count_in` follows on the I/O thread."""

    def count_in(self, chunk: Chunk) -> None:
        """A chunk that another thread handed over fills a slot."""
        self.outstanding[id(chunk)] = chunk

    def through(self, chunk: Chunk) -> None:
        """The chunk came back; its slot is free."""
        if self.outstanding.pop(id(chunk), None) is None:
            self._abandoned.pop(id(chunk), None)

    @abstractmethod
    def begun_unreported(self) -> list[Held]:
        """Running jobs of which the store does not know yet that they began."""

    @abstractmethod
    def has_unbegun(self) -> bool:
        """Whether something handed over waits to begin."""

    @abstractmethod
    def take_stuck(self, now: float) -> list[Held]:
        """Takes back what has waited too long; all of it when `now` is infinite. An emptied chunk stays a no-op."""

    def take_unbegun(self) -> list[Held]:
        """Takes back everything that no slot has begun."""
        return self.take_stuck(now=float("inf"))

    def abandon(self, held: Held) -> list[Held] | None:
        """Counts a running body no longer among what fills the slots: it has passed its time limit, and may never end.

        What waited behind it comes back. None: it runs here no more.
        """
        for chunk in self.outstanding.values():
            if chunk.current is held:
                self._abandoned[id(chunk)] = self.outstanding.pop(id(chunk))
                chunk.abandoned = True
                return emptied(chunk)
        return None


class ThreadSlots(Slots):
    """A fixed number of threads that run chunks. A slot thread calls `post` with each chunk that is through."""

    ahead = True
    in_use = True

    def __init__(self, count: int, run: Callable[[Held], Outcome], post: Callable[[Chunk], None]) -> None:
        super().__init__(count, post)
        self._run = run
        self._queue: SimpleQueue[Chunk | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for _ in range(self.count):
            self._start_thread()

    def close(self, timeout_s: float) -> bool:
        """Ends the threads that are free; False when a body was still running after `timeout_s`."""
        for _ in self._threads:
            self._queue.put(None)
        deadline = monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def room(self, mean_ms: float | None, now: float) -> int:
        """A slot whose job takes long counts for none: it would be the others' slots that what waits has to wait for.

        `mean_ms` is the mean run time that the pool showed lately; while it is unknown nothing is leased ahead.
        """
        if may_wait(mean_ms, self.count) == 0:
            return self.idle
        long_ms = max(LOOKAHEAD_MS, 2 * (mean_ms or 0.0))
        quick, unfinished = self.count, 0
        for chunk in self.outstanding.values():
            if chunk.current is not None and (now - chunk.since) * 1000 > long_ms:
                quick -= 1
            else:
                unfinished += len(chunk.jobs) + (chunk.current is not None)
        return max(0, quick + may_wait(mean_ms, quick) - unfinished)

    def put(self, jobs: Iterable[Held], now: float) -> None:
        """One chunk, whose jobs run one after another."""
        chunk = Chunk(deque(jobs), now)
        self.outstanding[id(chunk)] = chunk
        self._queue.put(chunk)

    def begin(self, chunk: Chunk) -> None:
        self._queue.put(chunk)

    def begun_unreported(self) -> list[Held]:
        found = []
        for chunk in self.outstanding.values():
            current = chunk.current
            if current is not None and not current.begun:
                found.append(current)
        return found

    def has_unbegun(self) -> bool:
        return any(chunk.jobs for chunk in self.outstanding.values())

    def take_stuck(self, now: float) -> list[Held]:
        """What waits behind a slow job, or in the queue for a slot to become free. For the first chunks of the queue
        there may be free threads that have merely not been scheduled: those are stuck much later."""
        chunks = self.outstanding.values()
        late = [chunk for chunk in chunks if chunk.jobs and now - chunk.since >= STUCK_S and not chunk.unrecorded]
        if not late:
            return []
        free = max(0, self.count - sum(chunk.taken for chunk in chunks))
        queued = [chunk for chunk in chunks if not chunk.taken]
        spared = {id(chunk) for chunk in queued[:free] if now - chunk.since < UNSCHEDULED_S}
        return [held for chunk in late if id(chunk) not in spared for held in emptied(chunk)]

    def abandon(self, held: Held) -> list[Held] | None:
        """A thread cannot be ended: another one takes its slot, and it ends itself should its body ever return."""
        behind = super().abandon(held)
        if behind is not None:
            self._start_thread()
        return behind

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._work, name=f"ductor-slot-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        """The life of a slot thread. `run` never raises; should it, the job is left to its lease."""
        open_caches()
        try:
            while (chunk := self._next_chunk()) is not None:
                self._run_chunk(chunk)
                self._post(chunk)
                if chunk.abandoned:
                    return
        finally:
            close_connections()

    def _next_chunk(self) -> Chunk | None:
        """Waits for work. A slot that has none for a while holds no session of the database meanwhile."""
        try:
            return self._queue.get(timeout=IDLE_S)
        except Empty:
            close_connections()
            return self._queue.get()

    def _run_chunk(self, chunk: Chunk) -> None:
        jobs, done, run = chunk.jobs, chunk.done, self._run
        chunk.taken = True
        while True:
            # `since` moves before the pop: what is stuck is judged from the moment this job began.
            chunk.since = started = monotonic()
            try:
                held = jobs.popleft()
            except IndexError:
                return
            chunk.current = held
            outcome: Outcome = None
            if held.cancelled and not held.lost:
                outcome = held.unrun()
            elif not held.lost:
                try:
                    outcome = run(held)
                except BaseException:
                    logger.exception("A slot failed outside a task's body", extra={"job_id": held.public_id})
            chunk.current = None
            done.append((held, outcome, (monotonic() - started) * 1000))


def emptied(chunk: Chunk) -> list[Held]:
    """Takes out what its slot has not begun."""
    taken: list[Held] = []
    while True:
        try:
            taken.append(chunk.jobs.popleft())
        except IndexError:
            return taken


def may_wait(mean_ms: float | None, slots: int) -> int:
    """How many jobs of this mean run time may wait for so many busy slots together.

    Together: of jobs as long as the look-ahead one a slot, of longer ones as many as slots become free in that time.
    """
    if mean_ms is None or mean_ms >= QUICK_MS:
        return 0
    return min(slots * LOOKAHEAD_JOBS, int(slots * LOOKAHEAD_MS / max(mean_ms, 0.01)))


def chunk_size(mean_ms: float | None) -> int:
    """How many jobs of this mean run time travel together."""
    if mean_ms is None:
        return 1
    return max(1, min(CHUNK_JOBS, int(CHUNK_MS / max(mean_ms, 0.01))))
