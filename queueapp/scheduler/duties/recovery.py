"""Recovery: jobs whose lease ran out go back to pending, or die when their budget of crashes is spent."""

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
        if moved.pending or moved.dead:
            logger.warning(
                "Recovered %d jobs of lost workers, %d of them dead",
                moved.pending + moved.dead,
                moved.dead,
                extra={"pool": self._pool, "pending": moved.pending, "dead": moved.dead},
            )
        return self._pace.after(worked=bool(moved.pending or moved.dead), more=moved.more)
