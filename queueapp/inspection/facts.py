"""A job as one mapping, for machines: what `--json` of the terminal and every export of dead letters say of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from queueapp.inspection.jobs import JobView
from queueapp.moments import moment


def as_mapping(job: JobView, *, payload: bool) -> dict[str, Any]:
    """All that is known of a job, as JSON's own types and moments. `payload` adds its contents, masked."""
    record = job.record
    facts: dict[str, Any] = {
        "id": job.id,
        "pool": job.pool,
        "state": record.state.value,
        "outcome": record.outcome.value if record.outcome else None,
        "cancelling": True if job.cancelling else None,
        "moved_to": job.moved_to or None,
        "reason": record.reason or None,
        "group": job.group or None,
        "task": record.task,
        "tenant": record.tenant,
        "lane": record.lane,
        "priority": record.priority,
        "charged": job.charged,
        "leases": record.attempts,
        "errors": record.error_count,
        "max_attempts": record.max_attempts or None,
        "crashes": record.crashes,
        "worker": record.worker or None,
        "submitted_at": job.submitted_at,
        "leased_at": job.leased_at,
        "due_at": job.due_at,
        "deadline_at": job.deadline_at,
        "ended_at": job.ended_at,
        "edits": record.edits or None,
        "edited_at": moment(record.edited_ms),
        "waited_s": _seconds(job.wait),
        "waits_s": job.waits.in_seconds() if job.waits is not None else None,
        "ran_s": _seconds(job.duration),
        "history": [
            {
                "kind": error.kind,
                "attempt": error.attempt,
                "worker": error.worker,
                "started": moment(error.started_ms),
                "at": moment(error.at_ms),
                "class": error.detail.get("class"),
                **({"detail": error.detail} if payload else {}),
            }
            for error in record.errors
        ],
    }
    if payload:
        arguments = job.arguments()
        facts["args"], facts["kwargs"] = arguments if arguments is not None else (None, None)
        facts["result"] = job.result()
        facts["saved"] = job.saved()
    return facts


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
