"""Schedules of tests: made at a moment of the test's choosing, and what the store got of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from queueapp.models import OutboxEntry, Schedule
from queueapp.producer.relaying import relay
from queueapp.schedules import declared
from queueapp.schedules.firing import Passed, fire_due
from queueapp.store.ids import made_ms
from queueapp.store.records import LeasedJob
from queueapp.store.store import Store

HOUR, MINUTE, DAY = 3_600_000, 60_000, 86_400_000
NOW = round(datetime(2025, 6, 1, 12, tzinfo=UTC).timestamp() * 1000)
"""A full hour of the past: what fires then is due at once."""


def stored(at: datetime) -> datetime:
    """An aware moment as the database takes it: without USE_TZ on the clock of the project."""
    return at if settings.USE_TZ else timezone.make_naive(at, timezone.get_default_timezone())


def planned(next_ms: int = NOW, **values: Any) -> Schedule:
    """An hourly schedule of `tests.producing.add` whose next firing is at `next_ms`."""
    given = {"name": "hourly", "task": "tests.producing.add", "args": [1], "cron": "0 * * * *", "zone": "UTC"}
    given |= values
    if "every_seconds" in values:
        given |= {"cron": ""}
    row = Schedule(**given)
    row.full_clean()
    row.save()
    Schedule.objects.filter(pk=row.pk).update(next_ms=next_ms)
    row.refresh_from_db()
    return row


def fire(now_ms: int = NOW, **options: Any) -> Passed:
    """One pass at this moment."""
    return fire_due(now_ms, **options)[0]


def relay_all() -> None:
    """What another scheduler sends once the claims of those that died have run out."""
    while OutboxEntry.objects.exists():
        OutboxEntry.objects.update(due=timezone.now())
        relay()


def fired(store: Store) -> list[int]:
    """The moments of all firings whose jobs the store has, in order."""
    jobs: list[LeasedJob] = []
    while leased := store.check_and_lease("reader", len(jobs) + 1, want=200, begin=200, lease_ms=600_000).jobs:
        jobs += leased
    assert len({job.id for job in jobs}) == len(jobs)
    return sorted(made_ms(job.id) for job in jobs)


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    """What a test declares is gone after it."""
    before = dict(declared.registry)
    declared.registry.clear()
    yield
    declared.registry.clear()
    declared.registry.update(before)
