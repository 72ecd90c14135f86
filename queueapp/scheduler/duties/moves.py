"""Moves that somebody began and did not end: jobs between two pools go on to where they were sent, or back where they
were asked back. And what moved jobs left behind goes when there is nothing any more to which it leads.
"""

from __future__ import annotations

from queueapp.scheduler.duties import Pace
from queueapp.store import transit
from queueapp.store.transit import MovesStore


class Moves:
    """One pool's jobs on their way, looked at every 5 to 30 s. Whoever moves them brings them there himself.

    A share is one page. The next one begins behind it, so that what cannot be brought keeps nobody waiting for ever.
    """

    def __init__(self, pool: str, store: MovesStore) -> None:
        self._pool = pool
        self._store = store
        self._pace = Pace(busy_s=5.0, idle_s=30.0)
        self._after: tuple[str, str] | None = None

    def run(self) -> float:
        done = transit.share(self._pool, self._store, self._after)
        self._after = done.cursor
        more = transit.look_at_stubs(self._store)
        if done.fault is not None:
            raise done.fault
        return self._pace.after(worked=done.brought > 0, more=more or done.cursor is not None)
