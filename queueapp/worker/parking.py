"""Parking: when the parker waits, and for what. The I/O thread alone uses it, once in each round.

The parker waits for work while slots are free and no pool that can be reached has anything for them. When none has been
free for a while, it waits for what is meant for this worker: that jobs shall stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queueapp.worker.line import Line
from queueapp.worker.parker import Parker, block_s

FULL_S = 1.0
"""When every slot has been taken for so long, the parker waits for what is meant for this worker: that a job shall
stop. Sooner it would have to be called back from that all the time."""


class Parking:
    """That of one worker."""

    def __init__(self, parker: Parker) -> None:
        self._parker = parker
        self._full_since: float | None = None

    def tend(self, reached: Sequence[Line], rooms: Mapping[str, int], now: float) -> None:
        """Sends the parker to wait, or calls it back. `reached`: lines whose store answers; `rooms`: by pool."""
        if not reached:
            return
        heartbeat_s = min(line.heartbeat.next_at for line in reached) - now
        if not any(rooms.values()):
            self._full_since = now if self._full_since is None else self._full_since
            if now - self._full_since >= FULL_S and not self._parker.parked:
                self._parker.park(block_s(None, heartbeat_s), work=False)
            return
        self._full_since = None
        if any(line.hungry and rooms[line.pool] for line in reached):
            return
        # Of a pool whose next job would find no slot: tokens that were taken would have to be returned at once.
        deaf = frozenset(line.wake_key for line in reached if not rooms[line.pool])
        if self._parker.parked:
            if not self._parker.hears_work or self._parker.deaf - deaf:
                self._parker.recall()
            return
        due_s = min(line.due_at for line in reached if rooms[line.pool]) - now
        self._parker.park(block_s(due_s, heartbeat_s), deaf=deaf)
