"""Recovery: jobs whose lease ran out, or whose worker shows no sign of life, go back to pending, die when their budget
of crashes is spent, or end when they were told to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from queueapp.scheduler.duties import Pace
from queueapp.store.records import Recovered

logger = logging.getLogger(__name__)

LIMIT = 100
WATCH_S = 0.25


class RecoveryStore(Protocol):
    def partition_recover(self, limit: int = 100, witness: str = "", after: str = "") -> Recovered: ...


class Recovery:
    """One pool's lost leases, never judged by their start time: expired ones are looked at every 0.25 to 1 s, and the
    workers behind all others four times a second while `witness` answers a channel.
    """

    def __init__(self, pool: str, store: RecoveryStore, witness: Callable[[], str] = lambda: "") -> None:
        """`witness`: where this process has been subscribed for a while (`Presence.steady`); "" = nowhere."""
        self._pool = pool
        self._store = store
        self._witness = witness
        self._after = ""
        self._pace = Pace(busy_s=0.25, idle_s=1.0)

    def run(self) -> float:
        witness = self._witness()
        found = self._store.partition_recover(LIMIT, witness, self._after)
        self._after = found.after
        recovered = found.pending + found.dead + found.cancelled
        if recovered:
            logger.warning(
                "Recovered %d jobs of lost workers, %d of them dead, %d cancelled",
                recovered,
                found.dead,
                found.cancelled,
                extra={
                    "pool": self._pool,
                    "pending": found.pending,
                    "dead": found.dead,
                    "cancelled": found.cancelled,
                    "workers": found.workers,
                },
            )
        pause_s = self._pace.after(worked=bool(recovered), more=found.more)
        return min(pause_s, WATCH_S) if witness else pause_s
