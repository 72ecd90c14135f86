"""The outbox's size: how many jobs wait there for the store, and how many it refused, for the metrics."""

from __future__ import annotations

from django.db import close_old_connections

from queueapp import metrics
from queueapp.producer import outbox

EVERY_S = 15.0
NAN = float("nan")


class OutboxSize:
    """All databases that have an outbox, every 15 s. While one cannot be asked, they are not a number."""

    def run(self) -> float:
        close_old_connections()
        waiting = refused = NAN
        try:
            waiting, refused = outbox.waiting(), outbox.refused()
        finally:
            metrics.OUTBOX_ENTRIES.labels("waiting").set(waiting)
            metrics.OUTBOX_ENTRIES.labels("refused").set(refused)
            close_old_connections()
        return EVERY_S
