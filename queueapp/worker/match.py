"""SyncMatch, where jobs run: bodies that begin in free slots of this process before the store has heard of their jobs.

Code that enqueues (`producer.matching`) calls `Channel.begin` in its own thread: it takes one of the places that the
I/O thread last saw free, and hands the job to a slot. Then it asks the store to record job and lease, and says what
became of that: `Match.recorded` or `Match.refused`, which only post into the worker's mailbox. Everything else is the
I/O thread's. A body that ends sooner waits with its outcome; what the store refuses is dropped, and its body told so.

A place is only given while the store's last answer said that nothing is runnable in the pool, and nothing configured
holds the job's tenant and lane back (`clearance`): so nobody is overtaken, and the store has no reason to refuse.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any

from queueapp.moments import now_ms
from queueapp.producer import matching
from queueapp.producer.task import DuctorTask
from queueapp.store.records import LeasedJob, NewJob
from queueapp.worker.line import Line
from queueapp.worker.placement import Placement
from queueapp.worker.room import runs_on_loop
from queueapp.worker.slots import Chunk, Held, Overdue

give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: sleep(0))
"""Lets another thread of this process run: a slot that was woken would else begin when this thread next waits."""
SUSPECT_CRASHES = 2
"""A job that twice crashed its worker runs alone."""


class Match:
    """One body that began so. `recorded` and `refused` are for the thread that enqueued it."""

    def __init__(self, held: Held, chunk: Chunk, placement: Placement, post: Callable[[Match], None]) -> None:
        self.held = held
        self.chunk = chunk
        self.placement = placement
        self.lease: LeasedJob | None = None
        """What the store recorded; None: nothing."""
        self.overdue: Overdue | None = None
        """Its time limit was over before the store had answered."""
        self.worker = held.line.worker
        self.lease_ms = held.line.lease_ms
        self._post = post

    def recorded(self, lease: LeasedJob) -> None:
        self.lease = lease
        self.refused()

    def refused(self) -> None:
        assert self.held.recorded is not None
        self.held.recorded.set()
        self._post(self)


class Matches:
    """Those of one worker, and the places that it gives."""

    def __init__(
        self,
        lines: Sequence[Line],
        threads: Placement,
        loop: Placement | None,
        post: Callable[[object], None],
        look: Callable[[], None],
    ) -> None:
        """`post` puts into the worker's mailbox; `look` has it look at its lines."""
        self._placements = [threads] if loop is None else [threads, loop]
        self._post = post
        self._look = look
        self._channels = {line.pool: Channel(self, line) for line in lines}
        self._looped: dict[str, bool] = {}
        """Task → whether its body runs on the loop."""
        self._lock = threading.Lock()
        """Guards the four below."""
        self._closed = False
        self._places = [0] * len(self._placements)
        """So many the I/O thread last saw free."""
        self._most = 0.0
        """So many may be on their way at once, of whichever kind (`max_tasks`)."""
        self._unseen = [0] * len(self._placements)
        """So many were taken of those, and it has not counted them in."""
        self._begun: deque[Match] = deque()
        """They, in the order in which they were handed over."""
        self._unrecorded: dict[str, Match] = {}
        """Those that it has counted in, by their ids, until the store has answered."""
        self._alone: Held | None = None

    # -- any thread ------------------------------------------------------------------------------------------------

    def begin(self, task: DuctorTask, job: NewJob, local: Any, line: Line) -> Match | matching.Miss:
        """Hands the job to a free slot, or says why not."""
        looped = self._looped.get(job.task)
        if looped is None:
            looped = self._looped[job.task] = len(self._placements) > 1 and runs_on_loop(task)
        if not line.quiet:
            return "miss_limited"
        clear = line.clearance.holds(job.tenant, job.lane)
        if not clear:
            if clear is None:
                self._look()
            return "miss_limited"
        with self._lock:
            if self._closed:
                return "miss_no_channel"
            if self._unseen[looped] >= self._places[looped] or self.pending >= self._most:
                return "miss_buffer_full"
            self._unseen[looped] += 1
        held = Held(_leased(job, line.lease_ms), line, begun=True, recorded=threading.Event(), local=local)
        placement = self._placements[looped]
        match = Match(held, Chunk(deque((held,)), monotonic(), unrecorded=True), placement, self._post)
        self._begun.append(match)  # first: the I/O thread must know it before its slot posts it back
        placement.slots.begin(match.chunk)
        give_way()
        return match

    # -- the I/O thread --------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Of so many bodies the store has not answered yet whether it has the job."""
        return sum(self._unseen) + len(self._unrecorded)

    def open(self) -> None:
        """From now on this process's jobs are offered."""
        matching.open_channels(self._channels)

    def close(self) -> None:
        """No more of that."""
        if not self._closed:
            matching.close_channels(self._channels)
            with self._lock:
                self._closed = True

    def publish(self, most: float) -> None:
        """Says which places are free; `most` is how many more jobs this worker may take at all."""
        alone = self._alone
        if alone is not None and alone.line.held.get(alone.job.id) is alone:
            most = 0  # beside a job that twice crashed its worker nothing else shall begin
        places = [placement.slots.idle - placement.waiting for placement in self._placements]
        with self._lock:
            self._places, self._most = places, most

    def leased(self, jobs: Sequence[Held]) -> None:
        """These were leased as usual."""
        if len(jobs) == 1 and jobs[0].job.crashes >= SUSPECT_CRASHES:
            self._alone = jobs[0]

    def count_in(self) -> None:
        """Counts in what other threads have handed to slots since."""
        while self._begun:
            match = self._begun.popleft()
            match.placement.slots.count_in(match.chunk)
            self._unrecorded[match.held.job.id] = match
            with self._lock:
                self._unseen[self._placements.index(match.placement)] -= 1

    def overdue(self, held: Held, overdue: Overdue) -> bool:
        """Its time limit is over. True: that waits until the store has answered."""
        match = self._unrecorded.get(held.job.id)
        if match is None:
            return False
        match.overdue = overdue
        return True

    def settle(self, match: Match, now: float) -> bool:
        """The store has answered: a lease as any other, or one that is not there. Its outcome may be taken now."""
        del self._unrecorded[match.held.job.id]
        held, lease = match.held, match.lease
        match.chunk.unrecorded = False
        if lease is None:
            _drop(held)
            return False
        held.job = lease
        held.line.held[lease.id] = held
        held.line.granted(lease, now)
        return True

    def give_up(self) -> None:
        """The worker ends: whatever the store answers, nobody listens any more."""
        self.count_in()
        for match in self._unrecorded.values():
            _drop(match.held)
            match.held.interrupt()


class Channel:
    """One pool's."""

    def __init__(self, matches: Matches, line: Line) -> None:
        self._matches = matches
        self._line = line

    def begin(self, task: DuctorTask, job: NewJob, local: Any) -> Match | matching.Miss:
        return self._matches.begin(task, job, local, self._line)


def _drop(held: Held) -> None:
    """Its outcome counts for nothing. Should the store have the lease after all, because its answer was lost, it goes
    back at once; it refuses that otherwise."""
    held.lost = True
    held.line.returned.append(held.unrun())


def _leased(job: NewJob, lease_ms: int) -> LeasedJob:
    """The lease as the store will record it, but for its own clock."""
    now = now_ms()
    return LeasedJob(
        id=job.id,
        attempts=1,
        errors=0,
        crashes=0,
        task=job.task,
        tenant=job.tenant,
        lane=job.lane,
        priority=job.priority,
        cost=job.cost,
        submitted_ms=now,
        ready_ms=now,
        leased_ms=now,
        deadline_ms=now + lease_ms,
        max_attempts=job.max_attempts,
        payload=job.payload,
    )
