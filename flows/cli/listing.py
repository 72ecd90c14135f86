"""`manage.py ductor flows`: the runs of flows, the newest first, a page at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Q

from flows import models
from flows.cli.showing import span
from flows.facts import run_facts
from queueapp.cli.command import ExampleFormatter, whole
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, table

COUNT_MAX = 1_000
HEADER = ("run", "flow", "tenant", "state", "started", "took", "by step")
EXAMPLES = """examples:
  {command}
  {command} --state failed --flow import_upload
  {command} --tenant acme --count 10 --json
"""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("flows", help="runs of flows, the newest first", formatter_class=ExampleFormatter)
    parser.epilog = EXAMPLES.replace("{command}", parser.prog)
    parser.add_argument("--state", choices=models.Run.State.values, help="only in this state")
    parser.add_argument("--flow", default="", metavar="NAME", help="only of this flow")
    parser.add_argument("--tenant", default="", help="only of this tenant")
    parser.add_argument("--cursor", default="", help="go on where the page before stopped, as it says")
    parser.add_argument(
        "--count", type=whole(1, COUNT_MAX), default=50, metavar="N", help="show N at most (default: 50)"
    )
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    found = models.Run.objects.defer("input", "output")
    for name in ("state", "flow", "tenant"):
        if options[name]:
            found = found.filter(**{name: options[name]})
    if options["cursor"]:
        found = found.filter(_after(options["cursor"]))
    rows = list(found.order_by("-started_ms", "-id")[: options["count"] + 1])
    more = len(rows) > options["count"]
    rows = rows[: options["count"]]
    cursor = f"{rows[-1].started_ms}.{rows[-1].id}" if more else None
    facts = [run_facts(row) for row in rows]
    if options["json"]:
        return as_json({"runs": facts, "next_cursor": cursor})
    shown = [
        (
            each["id"],
            each["flow"],
            each["tenant"],
            each["state"],
            each["started_at"],
            span(each["took_s"]),
            each["cause"] or "",
        )
        for each in facts
    ]
    return (table(HEADER, shown) or "No runs.") + (f"\nThere are more; go on with --cursor={cursor}" if cursor else "")


def _after(cursor: str) -> Q:
    found = re.fullmatch(r"(\d{1,15})\.([\w-]{22})", cursor)
    if found is None:
        raise CommandError(f"--cursor is {cursor!r}: give it as the page before says.")
    started_ms = int(found[1])
    return Q(started_ms__lt=started_ms) | Q(started_ms=started_ms, id__lt=found[2])
