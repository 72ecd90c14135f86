"""Outages: what a process says, and how long it waits, while the store is away. Pure; used by worker and scheduler.

One message when the store goes, one a minute for each reason while it stays away, one when it is back: never one per
try, and never one per pool. Not thread-safe: each I/O loop owns one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from time import monotonic

PAUSE_S = 0.1
PAUSE_MAX_S = 5.0
REMIND_S = 60.0
CHANGE_S = 5.0
"""Another reason is told, too, but not sooner than this after the last message."""


class Outage:
    """Counts the failures in a row of each party (a pool, the database) and gives the pause before its next try."""

    def __init__(
        self,
        log: logging.Logger,
        *,
        clock: Callable[[], float] = monotonic,
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self._log = log
        self._clock = clock
        self._uniform = uniform
        self._failures: dict[str, int] = {}
        self._since = 0.0
        self._told: dict[str, float] = {}
        """What was said in the last minute, and when."""

    def away(self, who: str) -> bool:
        return who in self._failures

    def failed(self, who: str, error: Exception) -> float:
        """Notes a failure; returns how many seconds to wait: exponential with jitter, at most 5."""
        now, text = self._clock(), str(error)
        self._told = {said: at for said, at in self._told.items() if now - at < REMIND_S}
        if not self._failures:
            self._since = now
            self._told.clear()
        if text not in self._told and now - max(self._told.values(), default=-CHANGE_S) >= CHANGE_S:
            self._told[text] = now
            self._log.warning("%s Trying again with growing pauses; nothing is lost.", text, extra={"reason": text})
        failures = self._failures[who] = self._failures.get(who, 0) + 1
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 2.0 ** min(failures - 1, 16))
        return pause_s * (0.5 + 0.5 * self._uniform())

    def worked(self, who: str) -> None:
        """A call of this party went through."""
        if self._failures.pop(who, None) is not None and not self._failures:
            seconds = round(self._clock() - self._since, 1)
            self._log.warning("Back after %.1f s, going on", seconds, extra={"away_s": seconds})
