"""What is said of a job, filled into the shapes of `job_shapes`.

A job is told without its arguments and without what its errors said, unless the user may see contents
(`view_payload`). Its result is told to whoever may speak for its tenant. Contents are masked in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from queueapp.inspection.explain import Why, as_mapping
from queueapp.inspection.jobs import JobView
from queueapp.moments import moment

Address = Callable[[str], str]
"""From a job's id to the address of the job."""


def brief(job: JobView, address: Address) -> dict[str, Any]:
    """A job in a list."""
    record = job.record
    last = job.last_error
    return {
        "id": job.id,
        "url": address(job.id),
        "task": record.task,
        "pool": job.pool,
        "tenant": record.tenant,
        "lane": record.lane,
        "priority": record.priority,
        "state": record.state.value,
        "outcome": record.outcome.value if record.outcome else None,
        "cancelling": job.cancelling,
        "moved_to": job.moved_to or None,
        "reason": record.reason or None,
        "group": job.group or None,
        "charged": job.charged,
        "attempts": record.attempts,
        "max_attempts": record.max_attempts or None,
        "crashes": record.crashes,
        "error": _class_of(last.detail) if last is not None else None,
        "submitted": said(job.submitted_at),
        "due": said(job.due_at),
        "deadline": said(job.deadline_at),
        "started": said(job.first_leased_at),
        "ended": said(job.ended_at),
    }


def whole(job: JobView, address: Address, *, known: bool, contents: bool) -> dict[str, Any]:
    """All of one job. `known`: its task is; one that is gone from the code may not have been one of the API's."""
    saved = job.saved() if known else {}
    given = job.arguments() if contents else None
    return {
        **brief(job, address),
        "waits_s": job.waits.in_seconds() if job.waits is not None else None,
        "errors": [
            {
                "kind": entry.kind,
                "attempt": entry.attempt,
                "worker": entry.worker if contents else None,
                "started": said(moment(entry.started_ms)),
                "at": said(moment(entry.at_ms)),
                "error": _class_of(entry.detail),
                "message": entry.detail.get("message") if contents else None,
                "traceback": entry.detail.get("traceback") if contents else None,
            }
            for entry in job.record.errors
        ],
        "progress": saved.get("progress"),
        "metadata": saved.get("metadata"),
        "result": job.result() if known else None,
        "edits": job.record.edits,
        "edited": said(moment(job.record.edited_ms)),
        "arguments": {"args": given[0], "kwargs": given[1]} if given is not None else None,
    }


def why(why: Why, address: Address) -> dict[str, Any]:
    """What a job waits for."""
    facts = as_mapping(why)
    return {
        **_said(facts),
        "url": address(why.id),
        "reasons": [_said(reason) for reason in facts["reasons"]],
        "estimate": facts["estimate"] and _said(facts["estimate"]),
    }


def _said(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: said(value) if isinstance(value, datetime) else value for name, value in facts.items()}


def said(at: datetime | None) -> str | None:
    """A moment as text: UTC, in milliseconds, whatever zone and format the host has."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _class_of(detail: Mapping[str, object]) -> str | None:
    name = detail.get("class")
    return None if name is None else str(name)
