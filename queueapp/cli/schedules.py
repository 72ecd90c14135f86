"""`manage.py ductor schedules list|next|fire|on|off`: which schedules there are, when they fire, and by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.command import whole
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, table
from queueapp.models import Schedule
from queueapp.schedules import acts
from queueapp.schedules.words import unreadable


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("schedules", help="when tasks are enqueued again and again")
    kinds = parser.add_subparsers(dest="action", required=True, metavar="list | next | fire | on | off")

    listed = kinds.add_parser("list", help="all of them, the next to fire first")
    json_option(listed)

    following = kinds.add_parser("next", help="the next firings of one")
    following.add_argument("name", metavar="NAME", help="which one")
    following.add_argument("--count", type=whole(1, 1000), default=5, metavar="N", help="so many (default: 5)")
    json_option(following)

    fire = kinds.add_parser("fire", help="one more firing, now")
    fire.add_argument("name", metavar="NAME", help="which one")

    for verb, text in (("on", "turn them on; nothing is made up for"), ("off", "turn them off")):
        act = kinds.add_parser(verb, help=text)
        act.add_argument("names", nargs="+", metavar="NAME", help="which ones")


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    match options["action"]:
        case "list":
            return _listing(json=options["json"])
        case "next":
            return _next(_find([options["name"]])[0], options["count"], json=options["json"])
        case "fire":
            schedule = _find([options["name"]])[0]
            return f"Fired: job {acts.fire(schedule, by=console.user).id}."
    on = options["action"] == "on"
    found = _find(options["names"])
    told = f"{len(acts.switch(found, on=on, by=console.user))} turned {'on' if on else 'off'}."
    gone = [row.name for row in found if on and row.source == Schedule.Source.GONE]
    return f"{told} No longer declared in code, and so off: {', '.join(gone)}." if gone else told


def _find(names: Sequence[str]) -> list[Schedule]:
    rows = {row.name: row for row in Schedule.objects.filter(name__in=names)}
    for name in names:
        if name not in rows:
            known = list(Schedule.objects.values_list("name", flat=True)[:20])
            raise CommandError(f"No schedule is called {name!r}; there are: {', '.join(known) or 'none'}.")
    return [rows[name] for name in dict.fromkeys(names)]


def _listing(*, json: bool) -> str:
    rows = sorted(Schedule.objects.all(), key=lambda row: (row.next_ms is None, row.next_ms or 0, row.name))
    if json:
        return as_json([facts(row) for row in rows])
    shown = [
        (row.name, row.when, row.task, row.next_at or state(row), row.last_at, row.outcome, row.note) for row in rows
    ]
    return table(("name", "when", "task", "next", "last", "outcome", "note"), shown) or "No schedules."


def state(row: Schedule) -> str:
    """Why a schedule has no next firing."""
    if row.source == Schedule.Source.GONE:
        return "no longer in code"
    return "over" if row.enabled else "off"


def facts(row: Schedule) -> dict[str, Any]:
    """All that is known of a schedule but its arguments, which may be secret."""
    return {
        "name": row.name,
        "task": row.task,
        "tenant": row.tenant or None,
        "pool": row.pool or None,
        "cron": row.cron or None,
        "every_seconds": row.every_seconds,
        "zone": row.zone_name if row.cron else None,
        "catch_up": row.catch_up,
        "overlap": row.overlap,
        "enabled": row.enabled,
        "source": row.source,
        "next_at": row.next_at,
        "last_at": row.last_at,
        "fired_at": row.fired_at,
        "last_job": row.last_job or None,
        "outcome": row.outcome or None,
        "note": row.note or None,
    }


def _next(row: Schedule, count: int, *, json: bool) -> str:
    try:
        found = [at.astimezone(row.rule_zone) for at in row.upcoming(count)]
    except (ValueError, OSError, LookupError, OverflowError) as error:  # as SQL wrote it
        raise CommandError(f"{row.name}: {unreadable(row, error)}.") from None
    if json:
        return as_json(found)
    lines = [at.strftime("%a %Y-%m-%d %H:%M:%S %z") for at in found]
    if not row.enabled:
        lines.append("It is off: these are when it would fire.")
    return "\n".join(lines) or "It fires no more."
