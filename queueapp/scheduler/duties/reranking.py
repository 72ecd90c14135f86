"""Re-ranking: after a change of policy, the jobs that waited move over to the new order, a bounded share in each call.

Workers move shares, too, in every call that wants work, so that nobody waits for a scheduler; this duty sees to it that
it ends soon also where they are few or busy.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from queueapp.scheduler.duties import Pace
from queueapp.store.leader_records import Reranked

logger = logging.getLogger(__name__)

SHARE = 150
"""Jobs in one call: some milliseconds of the store's time."""


class RerankingStore(Protocol):
    def rerank(self, most: int = 250) -> Reranked: ...


class Reranking:
    """One pool's change of policy, looked for every five seconds. While one is on its way the duty rests as long as it
    worked, so that others get their turn at the store.
    """

    def __init__(self, pool: str, store: RerankingStore) -> None:
        self._pool = pool
        self._store = store
        self._pace = Pace(busy_s=0.25, idle_s=5.0)
        self._total = 0

    def run(self) -> float:
        began = time.monotonic()
        done = self._store.rerank(SHARE)
        if done.more and not self._total:
            self._total = done.total
            logger.info(
                "The policy has changed: %d of %d waiting jobs have moved over to the new order",
                done.gone,
                done.total,
                extra={"pool": self._pool},
            )
        elif self._total and not done.more:
            logger.info("All %d jobs have moved over to the new order", self._total, extra={"pool": self._pool})
            self._total = 0
        return time.monotonic() - began if done.more else self._pace.after(worked=bool(done.moved), more=False)
