"""Records: what Ductor writes down of acts on dead letters, and outbox entries that the store refused for good, go when
they are older than `RECORDS_TTL`. Everything else that grows is trimmed in the store (`retention`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import close_old_connections
from django.utils import timezone

from queueapp.conf import settings
from queueapp.models import DeadLetterInspection
from queueapp.producer.relaying import forget_refused

EVERY_S = 3_600.0
MOST = 1_000


class Records:
    """The oldest ones, a bounded share at a time, then every hour. Harmless to do twice."""

    def run(self) -> float:
        close_old_connections()
        before = timezone.now() - timedelta(milliseconds=settings.records_ttl_ms)
        try:
            gone = max(_forget_inspections(before), forget_refused(before, MOST))
        finally:
            close_old_connections()
        return 0.0 if gone == MOST else EVERY_S


def _forget_inspections(before: datetime) -> int:
    """Rows are made in the order of their numbers, which need no index of their moments."""
    oldest = DeadLetterInspection.objects.order_by("id").values_list("id", "created")[:MOST]
    old = [number for number, created in oldest if created < before]
    if old:
        DeadLetterInspection.objects.filter(id__in=old).delete()
    return len(old)
