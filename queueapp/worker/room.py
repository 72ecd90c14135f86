"""Room: how many jobs a worker asks for, where it has slots of two kinds and cannot choose what comes.

The store hands out jobs in their pool's order, whatever runs them. So each pool's recent mixture says how many of its
next jobs fit: with threads full and half of the jobs in need of one, asking for more would only bring what must go
back. The I/O thread alone uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import iscoroutinefunction

from queueapp.conf import settings
from queueapp.errors import UnknownTask
from queueapp.producer.task import DuctorTask, find
from queueapp.worker.line import Line
from queueapp.worker.placement import Placement
from queueapp.worker.slots import Held

MIX_FACTOR = 1 / 16
"""How much one leased job counts in the mixture."""
PURE = 0.02
"""A share that is not worth asking less for."""


class Mixture:
    """What one pool's jobs here needed lately."""

    def __init__(self) -> None:
        self.looped: float | None = None
        """The share that runs on the event loop; None: no job has come yet."""
        self.missed: Placement | None = None
        """Where the last job that had to go back would have run: until there is room, nothing is asked for."""

    def learn(self, threaded: int, looped: int) -> None:
        """Learns from the jobs of one lease."""
        share = looped / (threaded + looped)
        if self.looped is None:
            self.looped = share
        else:
            self.looped += (share - self.looped) * min(1.0, (threaded + looped) * MIX_FACTOR)


class Room:
    """The room of one worker: its threads, and its event loop (None: asynchronous bodies run in threads, too)."""

    def __init__(self, threads: Placement, loop: Placement | None, lines: Sequence[Line]) -> None:
        self.threads = threads
        self._loop = loop
        self._lines = lines
        self._mixtures = {id(line): Mixture() for line in lines}
        self._looped: dict[str, bool] = {}
        """Task → whether its body runs on the loop."""

    def place_of(self, held: Held) -> Placement:
        """Where a job runs. One that has to be given up, or is not known here, in a thread."""
        if self._loop is None or held.overdue is not None:
            return self.threads
        looped = self._looped.get(held.job.task)
        if looped is None:
            looped = self._looped[held.job.task] = _loops(held.job.task)
        return self._loop if looped else self.threads

    def place(self, line: Line, jobs: Sequence[Held], now: float) -> None:
        """Hands the jobs of one lease over."""
        if self._loop is None:
            self.threads.place(line, jobs, now)
            return
        threaded = [held for held in jobs if self.place_of(held) is self.threads]
        looped = [held for held in jobs if self.place_of(held) is self._loop]
        if jobs:
            self._mixtures[id(line)].learn(len(threaded), len(looped))
        if threaded:
            self.threads.place(line, threaded, now)
        if looped:
            self._loop.place(line, looped, now)

    def begin(self, announced: Sequence[Held], now: float) -> None:
        """The store was told that these begin."""
        if announced:
            self.threads.begin([held for held in announced if self.place_of(held) is self.threads], now)
            if self._loop is not None:
                self._loop.begin([held for held in announced if self.place_of(held) is self._loop], now)

    def missed(self, held: Held) -> None:
        """It found no slot and goes back."""
        self._mixtures[id(held.line)].missed = self.place_of(held)

    def of(self, line: Line, now: float) -> int:
        """How many jobs may be asked for. What an unanswered call asked for, and what waits here, is taken off."""
        mixture = self._mixtures[id(line)]
        if mixture.missed is not None:
            if self._free(mixture.missed, now) == 0:
                return 0
            mixture.missed = None
        looped = mixture.looped
        if self._loop is None or looped is None or looped < PURE:
            return self._free(self.threads, now)
        if looped > 1 - PURE:
            return self._free(self._loop, now)
        fits = min(self._free(self.threads, now) / (1 - looped), self._free(self._loop, now) / looped)
        both = self._free(self.threads, now) and self._free(self._loop, now)
        return max(int(fits), 1 if both else 0)

    def begins(self, line: Line) -> int:
        """How many of the jobs that are asked for would begin at once, whichever they are."""
        looped = self._mixtures[id(line)].looped
        threads = self.threads.slots.idle - self.threads.waiting
        if self._loop is None or looped is None or looped < PURE:
            return threads
        coroutines = self._loop.slots.idle - self._loop.waiting
        return coroutines if looped > 1 - PURE else min(threads, coroutines)

    def _free(self, placement: Placement, now: float) -> int:
        if placement.crowded:
            return 0
        # While means differ between pools the slowest decides: slots are shared.
        means = [line.mean_ms for line in self._lines if line.mean_ms is not None]
        room = placement.slots.room(max(means) if means else None, now) - placement.waiting
        return max(0, room - sum(line.promised for line in self._lines))


def runs_on_loop(task: DuctorTask) -> bool:
    """Whether a task's body is a coroutine among others. Not where the host enters a context around each body: what it
    sets on a connection belongs to one thread."""
    return settings.tenant_context is None and iscoroutinefunction(task.func)


def _loops(name: str) -> bool:
    try:
        return runs_on_loop(find(name))
    except UnknownTask:
        return False
