"""Promotion: jobs whose time has come become pending; what expired while waiting ends.

Workers do this too, in shares of their `cycle` and by wake tokens; this duty is for the times when none is free.
"""

from __future__ import annotations

from typing import Protocol

from queueapp.scheduler.duties import Pace
from queueapp.store.records import Moved

LIMIT = 100
SOONEST_S = 0.01


class PromotionStore(Protocol):
    def promote_due(self, limit: int = 100) -> Moved: ...


class Promotion:
    """One pool's due jobs: looked at when the next is due, and at least every 0.25 to 1 s."""

    def __init__(self, store: PromotionStore) -> None:
        self._store = store
        self._pace = Pace(busy_s=0.25, idle_s=1.0)

    def run(self) -> float:
        moved = self._store.promote_due(LIMIT)
        pause_s = self._pace.after(worked=bool(moved.pending or moved.expired), more=moved.more)
        if moved.next_due_ms < 0:
            return pause_s
        # Just after the next one is due, but never so soon that a job that cannot move makes a hot loop.
        return min(pause_s, max(SOONEST_S, moved.next_due_ms / 1000))
