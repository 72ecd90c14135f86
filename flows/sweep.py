"""The sweep: a duty of every scheduler that finds runs which nobody looks at any more, and old ones to forget.

A run is found when its watchdog's moment has passed unheard, because its timer was lost with the store; or when
commands of it have waited for too long, because their process died. Each gets a wake-up, which a worker follows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from django.db import close_old_connections
from django.db.models import Min

from flows import models
from flows.waking import wake
from queueapp.conf import settings
from queueapp.errors import DuctorError, StoreError
from queueapp.moments import now_ms

logger = logging.getLogger(__name__)

LATE_MS = 30_000
"""So long after its watchdog's moment a run is taken to have lost it."""
UNRELAYED_MS = 5_000
SELDOM_MS = 3_600_000
"""A run that no wake-up has helped so far gets the next one after twice the time; but as often as this."""
PAGE = 500
FORGOTTEN = 50
"""Most runs that are deleted in one go."""
BUSY_S, IDLE_S = 1.0, 5.0


class Sweep:
    """All runs of the database, a page at a time: what it has found in one pass does not hide others from the next."""

    def __init__(self) -> None:
        self._after = ""

    def run(self) -> float:
        close_old_connections()
        try:
            found = sweep(now_ms(), self._after)
            self._after = found[-1] if len(found) >= PAGE else ""
            forgotten = forget(now_ms())
        finally:
            close_old_connections()
        if forgotten >= FORGOTTEN:
            return 0.0
        return BUSY_S if found or forgotten else IDLE_S


def sweep(now: int, after: str = "") -> list[str]:
    """The runs that got a wake-up, in the order of their ids: at most PAGE of those that come after `after`.

    Raises StoreError when none of them could get one.
    """
    found: list[str] = []
    away: dict[str, StoreError] = {}
    woken = 0
    for run_id, pool, once in _found(now, after):
        found.append(run_id)
        if pool in away:
            continue
        try:
            wake(run_id, pool, once=once)
            woken += 1
        except StoreError as error:
            away[pool] = error
        except DuctorError:
            logger.exception("A run cannot be woken", extra={"run": run_id, "pool": pool})
    if away and not woken:
        raise next(iter(away.values()))
    return found


def forget(now: int) -> int:
    """How many ended runs were deleted, with all that is theirs: those that ended longer ago than they are kept."""
    kept_ms = settings.runs_ttl_ms
    if not kept_ms:
        return 0
    ended = models.Run.objects.filter(ended_ms__lt=now - kept_ms).order_by("ended_ms")
    ids = list(ended.values_list("id", flat=True)[:FORGOTTEN])
    # A run that was resumed meanwhile has not ended any more.
    models.Run.objects.filter(pk__in=ids, ended_ms__lt=now - kept_ms).delete()
    return len(ids)


def _found(now: int, after: str) -> Iterator[tuple[str, str, str]]:
    """(run, pool, what the wake-up is for), each run once."""
    commands = models.FlowCommand.objects.filter(made_ms__lt=now - UNRELAYED_MS, run_id__gt=after)
    unrelayed = commands.values_list("run_id", "run__pool").annotate(since=Min("made_ms")).order_by("run_id")[:PAGE]
    runs = models.Run.objects.filter(
        state__in=("running", "compensating"), watch_ms__lt=now - LATE_MS, id__gt=after
    ).order_by("id")
    late = runs.values_list("id", "pool", "watch_ms")[:PAGE]
    both = {run_id: (pool, since) for rows in (late, unrelayed) for run_id, pool, since in rows}
    for run_id in sorted(both)[:PAGE]:
        pool, since = both[run_id]
        yield run_id, pool, f"found:{since + _waited_ms(now - since)}"


def _waited_ms(late_ms: int) -> int:
    """The last of the moments, as long after the first one, at which a wake-up is due: each after twice the time.

    Found in between, a run has one that is there already; so nothing piles up that nobody follows, or that fails.
    """
    if late_ms >= SELDOM_MS:
        return late_ms - late_ms % SELDOM_MS
    return UNRELAYED_MS << max(0, (late_ms // UNRELAYED_MS).bit_length() - 1)
