"""Placement: which leased jobs begin at once, which travel together, which wait until the store knows, which go back.

The I/O thread alone calls it; there is one for threads and one for coroutines. Three kinds of leased jobs: those that
the store already counts as begun go to free slots; those known here to be quick are queued behind, in chunks, where
slots lease ahead; the *careful* ones wait here until a slot is free and the store has been told that they begin,
because a job that kills its process must be counted each time (C016).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from queueapp.worker.line import Line
from queueapp.worker.slots import QUICK_MS, STUCK_S, Held, Slots, chunk_size

MEAN_FACTOR = 0.125


class Placement:
    """The jobs between the store and the slots, and what is known here of how long tasks take."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._task_ms: dict[str, float] = {}
        """Mean run time here by task."""
        self._careful: deque[tuple[Held, float]] = deque()
        """(job, since when)"""

    @property
    def waiting(self) -> int:
        """Jobs that wait here for a free slot."""
        return len(self._careful)

    @property
    def crowded(self) -> bool:
        """More jobs wait here for a free slot than there are: what is leased ahead would take each slot before them.

        Those of a pool whose store is away do not count: it cannot be told that they begin.
        """
        idle = self.slots.idle
        return len(self._careful) > idle and sum(not held.line.away for held, _ in self._careful) > idle

    def learn(self, task: str, run_ms: float) -> None:
        """Learns from a body that ended."""
        mean = self._task_ms.get(task, run_ms)
        self._task_ms[task] = mean + (run_ms - mean) * MEAN_FACTOR

    def place(self, line: Line, jobs: Sequence[Held], now: float) -> None:
        """Hands jobs of one lease to the slots, evenly. Those known as begun are the heads of their chunks."""
        chunks = [[held] for held in jobs if held.begun]
        quick: deque[Held] = deque()
        for held in jobs:
            if held.begun:
                continue
            if self.is_quick(held):
                quick.append(held)
            else:
                self._careful.append((held, now))
        size = min(chunk_size(line.mean_ms), max(1, -(-len(jobs) // max(1, self.slots.idle))))
        for chunk in chunks:
            while quick and len(chunk) < size and self.is_quick(chunk[0]):
                chunk.append(quick.popleft())
            self.slots.put(chunk, now)
        while quick:
            self.slots.put([quick.popleft() for _ in range(min(size, len(quick)))], now)

    def is_quick(self, held: Held) -> bool:
        """Known here to be quick, and never leased before: it may begin before the store is told.

        A task that kills its process never ends, so it is not known here; and from its second lease on a job of a
        known task is told beforehand, too.
        """
        return self.slots.ahead and held.job.attempts == 1 and self._task_ms.get(held.job.task, QUICK_MS) < QUICK_MS

    def announced(self, line: Line) -> list[Held]:
        """Careful jobs of this pool that a free slot could begin once the store knows."""
        return [held for held, _ in self._careful if held.line is line and not (held.lost or held.cancelled)][
            : self.slots.idle
        ]

    def begin(self, announced: Sequence[Held], now: float) -> None:
        """The store was told (those that it was not told of stay): they go to their slots."""
        told = {id(held) for held in announced if held.begun}
        if told:
            self._careful = deque(entry for entry in self._careful if id(entry[0]) not in told)
            for held in announced:
                if held.begun:
                    self.slots.put([held], now)

    def tend(self, now: float) -> list[Held]:
        """Moves what is stuck behind a slow job to a free slot; returns what found none and must go back."""
        stuck = self.slots.take_stuck(now)
        if any(held.cancelled for held, _ in self._careful):
            stuck += [held for held, _ in self._careful if held.cancelled]
            self._careful = deque(entry for entry in self._careful if not entry[0].cancelled)
        while self._careful and (self._careful[0][0].lost or self._late(now)):
            stuck.append(self._careful.popleft()[0])
        homeless = []
        for held in stuck:
            if self.slots.idle and self.is_quick(held):
                self.slots.put([held], now)
            else:
                homeless.append(held)
        return homeless

    def take_unbegun(self) -> list[Held]:
        """Everything that no slot has begun."""
        unbegun = [*self.slots.take_unbegun(), *(held for held, _ in self._careful)]
        self._careful.clear()
        return unbegun

    def slow_unreported(self, line: Line, now: float) -> bool:
        """A job that was taken for a quick one runs on: from now on its loss must count as a crash."""
        return self.slots.ahead and any(
            chunk.current is not None
            and not chunk.current.begun
            and chunk.current.line is line
            and (now - chunk.since) * 1000 > QUICK_MS
            for chunk in self.slots.outstanding.values()
        )

    def _late(self, now: float) -> bool:
        return not self.slots.idle and now - self._careful[0][1] >= STUCK_S
