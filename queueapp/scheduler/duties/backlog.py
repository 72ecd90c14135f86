"""The backlog: parked jobs whose moment has come go on to the line, drawn between the tiers.

Workers do this too, in shares of their `cycle`; this duty is for the times when none is free.
"""

from __future__ import annotations

import random
from typing import Protocol

from queueapp.scheduler.duties import Pace
from queueapp.store.records import Moved

SOONEST_S = 0.01
SEEDS = 2**31 - 2


class BacklogStore(Protocol):
    def backlog_promote(self, seed: int, most: int = 64) -> Moved: ...


class Backlog:
    """One pool's parked jobs: looked at when the next one is due, and at least every 0.25 to 1 s."""

    def __init__(self, store: BacklogStore, seeds: random.Random | None = None) -> None:
        self._store = store
        self._seeds = seeds or random.Random()
        self._pace = Pace(busy_s=0.25, idle_s=1.0)

    def run(self) -> float:
        moved = self._store.backlog_promote(self._seeds.randint(1, SEEDS))
        pause_s = self._pace.after(worked=bool(moved.pending), more=moved.more)
        if moved.next_due_ms < 0:
            return pause_s
        return min(pause_s, max(SOONEST_S, moved.next_due_ms / 1000))
