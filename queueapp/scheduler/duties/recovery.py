"""Recovery: jobs whose lease ran out go back to pending, die when their budget of crashes is spent, or end when they
were told to stop."""

from __future__ import annotations

import logging
from typing import Protocol

from queueapp.scheduler.duties import Pace
from queueapp.store.records import Moved

logger = logging.getLogger(__name__)

LIMIT = 100


class RecoveryStore(Protocol):
    def partition_recover(self, limit: int = 100) -> Moved: ...


class Recovery:
    """One pool's expired leases, looked at every 0.25 to 1 s. The deadline alone decides, never the start time."""

    def __init__(self, pool: str, store: RecoveryStore) -> None:
        self._pool = pool
        self._store = store
        self._pace = Pace(busy_s=0.25, idle_s=1.0)

    def run(self) -> float:
        moved = self._store.partition_recover(LIMIT)
        recovered = moved.pending + moved.dead + moved.cancelled
        if recovered:
            logger.warning(
                "Recovered %d jobs of lost workers, %d of them dead, %d cancelled",
                recovered,
                moved.dead,
                moved.cancelled,
                extra={
                    "pool": self._pool,
                    "pending": moved.pending,
                    "dead": moved.dead,
                    "cancelled": moved.cancelled,
                },
            )
        return self._pace.after(worked=bool(recovered), more=moved.more)
