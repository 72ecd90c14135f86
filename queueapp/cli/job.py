"""`manage.py ductor job ID`: all that is known of one job."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, pairs, printable_lines
from queueapp.inspection.facts import as_mapping
from queueapp.inspection.jobs import JobView, find_job


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


def as_text(job: JobView, *, payload: bool) -> str:
    """A job for the terminal."""
    facts = as_mapping(job, payload=payload)
    history, waits = facts.pop("history"), facts.pop("waits_s")
    if waits is not None:
        facts["waited_for"] = ", ".join(f"{part} {seconds:g} s" for part, seconds in waits.items())
    lines = [pairs([(name, value) for name, value in facts.items() if value is not None])]
    for error in history:
        what = error["class"] or ("lost with its worker" if error["kind"] == "lost" else error["kind"])
        span = f"{_clock(error['started'])} to {_clock(error['at'])}"
        lines.append(f"attempt {error['attempt']} on {error['worker']}, {span}: {what}")
        detail = error.get("detail") or {}
        if detail.get("message"):
            lines.append(printable_lines(str(detail["message"])))
        if detail.get("traceback"):
            lines.append(printable_lines(str(detail["traceback"])))
    return "\n".join(lines)


def _clock(at: datetime | None) -> str:
    return "?" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
