"""What became of a schedule's last job: whether it waits, runs or is over. Read before a firing that must not overlap,
which tells one that runs to stop where the rule is `replace`.

A job that the outbox still keeps waits. One that nobody knows any more is over: it ended, and retention took it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from queueapp.conf import settings
from queueapp.inspection.jobs import find_jobs
from queueapp.models import OutboxEntry, Schedule
from queueapp.producer import outbox
from queueapp.schedules import jobs
from queueapp.states import State
from queueapp.store import transit
from queueapp.store.following import read_job


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
        if job.moved_to:
            moved = read_job(job.moved_to)
            state = moved[1].state if moved is not None else state
        if state is State.ACTIVE:
            found[job.id] = Standing.RUNS
        elif state not in (State.DEAD, State.ENDED):
            found[job.id] = Standing.WAITS
    return found


def cancelled(job_id: str, schedule: Schedule) -> bool:
    """Whether a new job of the schedule may come now that this one was cancelled. Raises StoreError.

    One that waited is over, and so may be any other. One that runs was told to stop; the new one waits until it has
    ended, by their concurrency key. False when it has none, and while somebody is sending it to the store: it would be
    there a moment later.
    """
    kept = outbox.rows(settings.database).filter(job_id=job_id)
    outbox.unclaimed(kept).delete()
    if kept.filter(state=OutboxEntry.State.WAITING).exists():
        return False
    found = read_job(job_id)
    if found is None:
        return True
    pool, record = found
    if record.state is State.MOVING:
        return False
    return transit.cancel(pool, [record.id]) != ["stopping"] or jobs.waits_for(schedule, job_id)
