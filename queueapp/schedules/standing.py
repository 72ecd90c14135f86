"""What became of a schedule's last job: whether it waits, runs or is over. Read before a firing that must not overlap.

A job that the outbox still keeps waits. One that nobody knows any more is over: it ended, and retention took it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from queueapp.conf import settings
from queueapp.inspection.jobs import find_jobs
from queueapp.models import OutboxEntry
from queueapp.producer import outbox
from queueapp.states import State
from queueapp.store import shards


class Standing(Enum):
    """Of a job."""

    WAITS = "waits"
    RUNS = "runs"
    OVER = "over"


def standings(ids: Sequence[str]) -> dict[str, Standing]:
    """Public id → how its job stands. Raises StoreError."""
    if not ids:
        return {}
    found = dict.fromkeys(ids, Standing.OVER)
    kept = outbox.rows(settings.database).filter(job_id__in=ids, state=OutboxEntry.State.WAITING)
    found |= dict.fromkeys(kept.values_list("job_id", flat=True), Standing.WAITS)
    for job in find_jobs(ids):
        state = job.record.state
        if state is State.ACTIVE:
            found[job.id] = Standing.RUNS
        elif state not in (State.DEAD, State.ENDED):
            found[job.id] = Standing.WAITS
    return found


def cancelled(job_id: str) -> bool:
    """Whether a job is out of the way: cancelled while it waited, or over. False when it runs. Raises StoreError."""
    outbox.rows(settings.database).filter(job_id=job_id, state=OutboxEntry.State.WAITING).delete()
    place = shards.locate(job_id)
    if place is None:
        return True
    pool, inner = place
    return shards.store(pool).cancel([inner]) != ["active"]
