"""`manage.py ductor job ID`: all that is known of one job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, pairs, printable_lines
from queueapp.inspection.jobs import JobView, find_job
from queueapp.producer.results import moment


def add_parser(verbs: Any, name: str = "job", text: str = "all that is known of one job") -> None:
    parser = verbs.add_parser(name, help=text)
    parser.add_argument("id", metavar="ID", help="as result.id has it, such as 3gk2xw.0.0123456789abcdefghijkl")
    parser.add_argument(
        "--payload", action="store_true", help="also arguments, result and tracebacks, with MASK applied"
    )
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    return job(options["id"], json=options["json"], payload=options["payload"])


def job(public_id: str, *, json: bool, payload: bool) -> str:
    """The text to print. `payload` adds arguments and result, masked."""
    found = find_job(public_id)
    if found is None:
        raise CommandError(
            f"No job {public_id!r}: either the id is wrong (it looks like abc123.0.<22 characters>), "
            "or the job ended and retention has removed it."
        )
    return as_json(as_mapping(found, payload=payload)) if json else as_text(found, payload=payload)


def as_mapping(job: JobView, *, payload: bool) -> dict[str, Any]:
    """A job for `--json`."""
    record = job.record
    facts: dict[str, Any] = {
        "id": job.id,
        "pool": job.pool,
        "state": record.state.value,
        "outcome": record.outcome.value if record.outcome else None,
        "reason": record.reason or None,
        "group": job.group or None,
        "task": record.task,
        "tenant": record.tenant,
        "lane": record.lane,
        "priority": record.priority,
        "leases": record.attempts,
        "errors": record.error_count,
        "max_attempts": record.max_attempts or None,
        "crashes": record.crashes,
        "worker": record.worker or None,
        "submitted_at": job.submitted_at,
        "leased_at": job.leased_at,
        "due_at": job.due_at,
        "ended_at": job.ended_at,
        "waited_s": _seconds(job.wait),
        "ran_s": _seconds(job.duration),
        "history": [
            {
                "kind": error.kind,
                "attempt": error.attempt,
                "worker": error.worker,
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


def as_text(job: JobView, *, payload: bool) -> str:
    """A job for the terminal."""
    facts = as_mapping(job, payload=payload)
    history = facts.pop("history")
    lines = [pairs([(name, value) for name, value in facts.items() if value is not None])]
    for error in history:
        what = error["class"] or ("lost with its worker" if error["kind"] == "lost" else error["kind"])
        lines.append(f"attempt {error['attempt']} on {error['worker']}: {what}")
        detail = error.get("detail") or {}
        if detail.get("message"):
            lines.append(printable_lines(str(detail["message"])))
        if detail.get("traceback"):
            lines.append(printable_lines(str(detail["traceback"])))
    return "\n".join(lines)


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()
