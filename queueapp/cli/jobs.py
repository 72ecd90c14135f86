"""`manage.py ductor jobs POOL`: the jobs of a pool in one state, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from queueapp.cli.command import whole
from queueapp.cli.console import Console, json_option
from queueapp.cli.table import as_json, table
from queueapp.inspection.facts import as_mapping
from queueapp.inspection.jobs import MAX_COUNT, STATES, JobPage, JobView, list_jobs
from queueapp.inspection.pools import all_pools, require


@dataclass(frozen=True, slots=True)
class Column:
    """What a state has to tell beside the job itself."""

    title: str
    value: Callable[[JobView], object]


def _span(value: timedelta | None) -> str | None:
    return None if value is None else f"{value.total_seconds():.1f} s"


WAITS = (Column("waits", lambda view: _span(view.wait)),)
DUE = (Column("due", lambda view: view.due_at),)
COLUMNS: dict[str, tuple[Column, ...]] = {
    "ingress": WAITS,
    "pending": WAITS,
    "ready": WAITS,
    "scheduled": DUE,
    "backlog": DUE,
    "active": (
        Column("worker", lambda view: view.record.worker),
        Column("runs", lambda view: _span(view.duration)),
    ),
    "waiting": (),
    "moving": (),
    "dead": (Column("reason", lambda view: view.record.reason), Column("died", lambda view: view.ended_at)),
    "ended": (
        Column("outcome", lambda view: view.state),
        Column("ran", lambda view: _span(view.duration)),
        Column("ended", lambda view: view.ended_at),
    ),
}


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("jobs", help="the jobs of a pool in one state")
    parser.add_argument("pool", nargs="?", default="default", metavar="POOL", help="whose jobs (default: default)")
    parser.add_argument("--state", choices=STATES, default="active", help="in which state (default: active)")
    parser.add_argument("--tenant", default="", help="only of this tenant")
    parser.add_argument("--task", default="", help="only of this task (its dotted name)")
    parser.add_argument("--cursor", default="", help="go on where the page before stopped, as it says")
    parser.add_argument(
        "--count", type=whole(1, MAX_COUNT), default=50, metavar="N", help="show N at most (default: 50)"
    )
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    require([options["pool"]], all_pools())
    page = list_jobs(
        options["pool"],
        options["state"],
        tenant=options["tenant"],
        task=options["task"],
        cursor=options["cursor"],
        count=options["count"],
    )
    if options["json"]:
        return as_json(
            {
                "pool": page.pool,
                "state": page.state,
                "total": page.total,
                "exact": page.exact,
                "next_cursor": page.next_cursor,
                "jobs": [as_mapping(each, payload=False) for each in page.jobs],
            }
        )
    return _text(page)


def _text(page: JobPage) -> str:
    columns = COLUMNS[page.state]
    shown = table(
        ("id", "tenant", "lane", "task", *(column.title for column in columns)),
        [
            (
                view.id,
                view.record.tenant,
                view.record.lane,
                view.record.task,
                *(column.value(view) for column in columns),
            )
            for view in page.jobs
        ],
    )
    bound = f"at least {page.total}" if page.at_least else f"up to {page.total} that were looked through"
    total = page.total if page.exact else bound
    if page.next_cursor is not None:
        return f"{shown}\n{len(page.jobs)} of {total}; go on with --cursor={page.next_cursor}".lstrip("\n")
    if not page.jobs and page.total:
        return f"None of the {total} {page.state} jobs is shown: what is paused or full does not run next."
    return shown or f"No {page.state} jobs."
