"""What became of a cell's jobs, by what the store has recorded of each of them and by its own counters. Pure.

A body says itself when it began and ended. Of runs that said nothing, because they failed or were lost, the store's
moments stand: whole milliseconds, from the lease on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queueapp.bench.live.pacing import Sent
from queueapp.bench.outcomes import Outcome
from queueapp.bench.workloads import Job
from queueapp.states import Outcome as Ended
from queueapp.states import State
from queueapp.store.views import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """All jobs that were sent: done with, in line still, or lost."""

    outcomes: Sequence[Outcome]
    dead_letters: Sequence[Mapping[str, Any]]
    lost: int
    """Sent and taken, and the store knows nothing of them."""
    recorded_twice: int
    """Ends that the store has counted beyond one for each of them."""


def harvest(
    jobs: Iterable[Job],
    sent: Mapping[int, Sent],
    records: Mapping[int, JobRecord | None],
    stats: Mapping[str, int],
    *,
    begin_us: int,
) -> Harvest:
    """`sent` and `records` by the job's number; None for a job that the store does not know. `stats`: the pool's."""
    outcomes, dead_letters, lost = [], [], 0
    for job in jobs:
        if job.number not in sent:
            continue
        record = records[job.number]
        if record is None:
            lost += 1
        elif record.state in (State.ENDED, State.DEAD):
            outcomes.append(_outcome(job, sent[job.number], record, begin_us))
            if record.outcome is not Ended.COMPLETED:
                dead_letters.append(_letter(job, record))
    counted = stats.get("completed", 0) + stats.get("dead", 0)
    return Harvest(
        outcomes=outcomes,
        dead_letters=dead_letters,
        lost=lost,
        recorded_twice=max(0, counted - len(outcomes) - lost),
    )


def _outcome(job: Job, sent: Sent, record: JobRecord, begin_us: int) -> Outcome:
    completed = record.outcome is Ended.COMPLETED
    failed = max(len(record.errors), record.error_count + record.crashes)  # of the errors the newest are kept
    sent_us = max(1, sent.sent_us - begin_us)
    # A millisecond of the store may have begun before the job came.
    started_us = max(sent_us, record.first_leased_ms * 1000 - begin_us)
    ended_us, busy_us = max(started_us, record.ended_ms * 1000 - begin_us), 0
    if completed:
        began_us, ended_us = (int(moment) - begin_us for moment in json.loads(record.result or b""))
        busy_us = ended_us - began_us
        started_us = started_us if failed else began_us
    # A run that was lost had gone to its end; one that failed had not begun with its work (`faults`).
    busy_us += job.service_us * sum(error.kind == "lost" for error in record.errors)
    return Outcome(
        number=job.number,
        tenant=job.tenant,
        lane=job.lane,
        priority=job.priority,
        planned_us=job.at_us,
        sent_us=sent_us,
        started_us=started_us,
        ended_us=ended_us,
        busy_us=busy_us,
        deadline_us=job.deadline_us,
        attempts=failed + completed,
        completed=completed,
    )


def _letter(job: Job, record: JobRecord) -> dict[str, Any]:
    last = record.errors[-1].detail if record.errors else {}
    error = ": ".join(str(last[part]) for part in ("class", "message") if part in last)
    return {
        "id": record.id,
        "number": job.number,
        "tenant": job.tenant,
        "attempts": record.attempts,
        "reason": record.reason or str(record.outcome),
        "error": error,
    }
