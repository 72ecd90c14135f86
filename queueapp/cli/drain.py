"""`manage.py ductor drain POOL`: lets what runs end, and says when nothing does any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.command import number
from queueapp.cli.console import Console
from queueapp.inspection.draining import Left, drain
from queueapp.inspection.pools import all_pools, require


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("drain", help="pause a pool and wait until nothing runs")
    parser.add_argument("pool", metavar="POOL", help="which pool")
    parser.add_argument(
        "--until-empty", action="store_true", help="leave it at work until nothing waits either, and pause it then"
    )
    parser.add_argument(
        "--timeout", type=number(0, 1e9), metavar="SECONDS", help="give up after so long, with exit code 1"
    )


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    pool, until_empty = options["pool"], options["until_empty"]
    require([pool], all_pools())
    said, paused = "", not until_empty

    def told(found: Left) -> None:
        nonlocal said, paused
        paused = found.paused
        if (line := _line(found, until_empty)) != said:
            said = line
            console.note(line)

    try:
        found = drain(pool, until_empty=until_empty, timeout_s=options["timeout"], progress=told, by=console.user)
    except KeyboardInterrupt:
        raise CommandError(f"Interrupted while {pool} was not drained. {_state(pool, paused)}") from None
    if not found.drained:
        raise CommandError(f"{_line(found, until_empty)} after {options['timeout']:g} s. {_state(pool, found.paused)}")
    waiting = f"{found.waiting:,} wait" if found.waiting else "nothing waits"
    return f"The pool {pool} is paused; nothing runs, {waiting}. `ductor resume {pool}` lets it go on."


def _state(pool: str, paused: bool) -> str:
    return f"It stays paused; `ductor resume {pool}` lets it go on." if paused else "It is at work."


def _line(found: Left, until_empty: bool) -> str:
    jobs = ", ".join(f"{job.record.task} {job.id} on {job.record.worker}" for job in found.jobs)
    more = f" and {found.running - len(found.jobs):,} more" if found.running > len(found.jobs) else ""
    waiting = f", {found.waiting:,} wait" if until_empty else ""
    return f"{found.running:,} run{waiting}" + (f": {jobs}{more}" if jobs else "")
