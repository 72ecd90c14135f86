"""Moves that somebody began and did not end: jobs between two pools go on to where they were sent."""

from __future__ import annotations

from queueapp.inspection.moving import MovesStore, deliver
from queueapp.scheduler.duties import Pace


class Moves:
    """One pool's jobs on their way, looked at every 5 to 30 s. Whoever moves them brings them there himself."""

    def __init__(self, pool: str, store: MovesStore) -> None:
        self._pool = pool
        self._store = store
        self._pace = Pace(busy_s=5.0, idle_s=30.0)

    def run(self) -> float:
        return self._pace.after(worked=deliver(self._pool, self._store) > 0, more=False)
