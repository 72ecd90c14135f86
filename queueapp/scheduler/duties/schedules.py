"""Schedules: what is due is fired, by every scheduler, whoever comes first (`schedules.firing`).

The duty asks to be called exactly when the next firing is due. Somebody may edit a schedule meanwhile, so it looks once
a second: one row of an index.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from django.db import close_old_connections

from queueapp import metrics
from queueapp.moments import now_ms
from queueapp.schedules import firing
from queueapp.schedules.rows import bring_into_rows

logger = logging.getLogger(__name__)

LOOK_S = 1.0
REPAIR_EVERY_S = 10.0
ASIDE_S = 5.0
"""A schedule whose task or zone nobody here knows is left to others for so long; then it is looked at again."""
SOONEST_S = 0.001


class Schedules:
    """All schedules. The first run brings those that are declared in code into rows. `now` is in milliseconds."""

    def __init__(self, now: Callable[[], int] = now_ms, clock: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._clock = clock
        self._synced = False
        self._repair_at = 0.0
        self._repair_after = 0
        self._aside: dict[int, float] = {}
        self._told: set[int] = set()
        """Of those set aside, the ones of which the log has been told."""

    def run(self) -> float:
        close_old_connections()
        try:
            return self._run()
        finally:
            close_old_connections()

    def _run(self) -> float:
        if not self._synced:
            bring_into_rows()
            self._synced = True
        if self._clock() >= self._repair_at:
            self._repair_after = firing.repair(self._now(), self._repair_after)
            metrics.SCHEDULES_OVERDUE.set(firing.overdue(self._now()))
            self._repair_at = self._clock() + REPAIR_EVERY_S
        self._aside = {pk: until for pk, until in self._aside.items() if until > self._clock()}
        passed, unknown = firing.fire_due(self._now(), aside=self._aside)
        if new := sorted(name for pk, name in unknown.items() if pk not in self._told):
            logger.warning(
                "Schedules are left to other schedulers for UNKNOWN_TASK_GRACE: this one does not know their task or "
                "time zone",
                extra={"schedules": new},
            )
        self._told = {pk for pk in self._told if pk in self._aside} | unknown.keys()
        self._aside |= dict.fromkeys(unknown, self._clock() + ASIDE_S)
        if passed.more:
            return 0.0
        following = firing.next_due_ms(self._aside)
        if following is None:
            return LOOK_S
        return min(LOOK_S, max(SOONEST_S, (following - self._now()) / 1000))
