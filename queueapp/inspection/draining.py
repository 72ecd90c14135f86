"""Waiting until a pool is quiet: nothing runs, or nothing waits either. Called by every skin; it changes nothing itself
but the pause that it begins or ends with.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from queueapp import sync
from queueapp.errors import StoreUnavailable
from queueapp.inspection.jobs import JobView, list_jobs
from queueapp.store import shards

logger = logging.getLogger(__name__)

LOOK_S = 0.5
NAMED = 5
"""How many of the jobs that still run are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a pool still has."""

    pool: str
    running: int
    waiting: int
    jobs: tuple[JobView, ...] = ()
    """Some of those that run, those whose lease ends first."""
    paused: bool = False
    """`drain` has paused the pool."""
    drained: bool = False
    """As was wanted, and paused; False: the time was over first."""


def left(pool: str) -> Left:
    """How many jobs run and wait, in one round trip, and one more where some run."""
    running, waiting = shards.reads(pool).running_and_waiting()
    jobs = list_jobs(pool, "active", count=NAMED).jobs if running else ()
    return Left(pool=pool, running=running, waiting=waiting, jobs=jobs)


def drain(
    pool: str,
    *,
    until_empty: bool = False,
    timeout_s: float | None = None,
    progress: Callable[[Left], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
    by: str = "",
) -> Left:
    """Pauses the pool and waits until nothing runs. What waits stays, and `sync.resume` lets it go on.

    `until_empty`: leaves it at work until nothing waits and nothing runs, and pauses it then. Where `timeout_s` is over
    first, the pool stays as it is: paused, or still at work (`Left.paused`). `by` goes to the log.
    """
    ends_at = None if timeout_s is None else time.monotonic() + timeout_s
    paused = not until_empty
    if paused:
        pause_at_once(pool, by=by)
    while True:
        found = replace(left(pool), paused=paused)
        if paused and not found.running:
            return _logged(replace(found, drained=True), by)
        if not paused and not found.running and not found.waiting:
            pause_at_once(pool, by=by)
            paused = True
            continue  # what came in between may run
        if ends_at is not None and time.monotonic() >= ends_at:
            return _logged(found, by)
        progress(found)
        sleep(LOOK_S if ends_at is None else max(0.0, min(LOOK_S, ends_at - time.monotonic())))


def _logged(found: Left, by: str) -> Left:
    counts = {"running": found.running, "waiting": found.waiting}
    logger.info(
        "Drained" if found.drained else "Not drained in time", extra={"pool": found.pool, "by": by, "counts": counts}
    )
    return found


def pause_at_once(pool: str, *, by: str = "") -> None:
    """Pauses it. Raises StoreUnavailable when that is not in force at once: nobody could say that nothing starts."""
    if not sync.pause(pool, by=by).in_force:
        raise StoreUnavailable(
            f"The pool {pool!r} is saved as paused, and the store did not take it yet: jobs may still start. Say "
            "`manage.py ductor sync`, or try again."
        )
