"""Repetition in logs: the first of a kind is told at once, what follows within a minute as a number with the next.

An outage or a deploy makes one event a thousand times; who reads the log at night must still find the others. Pure;
safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from time import monotonic

EVERY_S = 60.0
KINDS_MOST = 1_000


class Repeats:
    """Counts events by kind and says when to tell of them."""

    def __init__(self, *, every_s: float = EVERY_S, clock: Callable[[], float] = monotonic) -> None:
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[Hashable, tuple[float, int]] = {}
        """Kind → when it was told last, and how many were not told since."""

    def due(self, kind: Hashable, number: int = 1) -> int:
        """Notes `number` more of a kind; how many there are to tell of now, 0 when it was told within the minute."""
        with self._lock:
            now = self._clock()
            at, held_back = self._told.get(kind, (now - self._every_s, 0))
            if now - at < self._every_s:
                self._told[kind] = at, held_back + number
                return 0
            if len(self._told) >= KINDS_MOST:
                self._told.clear()
            self._told[kind] = now, 0
            return held_back + number

    def forget(self) -> None:
        """The next of each kind is told."""
        with self._lock:
            self._told.clear()
