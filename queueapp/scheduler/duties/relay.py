"""Relay: jobs that the outbox keeps, because the store was away when their transaction committed, are sent.

Every scheduler does it, leader or not; who sends which row is decided in SQL, row by row (`producer/relaying.py`).
"""

from __future__ import annotations

from django.db import close_old_connections

from queueapp.producer.relaying import relay
from queueapp.scheduler.duties import Pace


class Relay:
    """All databases that have an outbox: each second while something is found, up to every 5 s while nothing is."""

    def __init__(self) -> None:
        self._pace = Pace(busy_s=1.0, idle_s=5.0)

    def run(self) -> float:
        close_old_connections()
        try:
            relayed = relay()
        finally:
            close_old_connections()
        return self._pace.after(worked=relayed.found > 0, more=relayed.more)
