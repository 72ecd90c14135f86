"""`manage.py ductor cancel`: these jobs, or all that match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli import acting
from queueapp.cli.command import names, whole
from queueapp.cli.console import Console
from queueapp.inspection.bulk import cancel_many
from queueapp.inspection.selection import NOT_ENDED, Selection

VERB = acting.Verb(name="cancel", what="job", do=cancel_many)


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("cancel", help="waiting jobs do not run, running ones are told to stop")
    parser.add_argument("ids", nargs="*", metavar="ID", help="these, as result.id has them")
    parser.add_argument("--pool", default="", help="only of this pool (default: every pool)")
    parser.add_argument(
        "--state",
        type=names,
        default=[],
        metavar="STATE[,STATE]",
        help=f"only in these: {', '.join(state.value for state in NOT_ENDED)} (default: all of them)",
    )
    parser.add_argument("--tenant", default="", help="only of this tenant; without other conditions at once")
    parser.add_argument("--lane", default="", help="only of this lane")
    parser.add_argument("--task", default="", help="only of this task (its dotted name)")
    parser.add_argument("--all", dest="everything", action="store_true", help="all of the pool, or of every pool")
    parser.add_argument(
        "--as-of", type=whole(0, 10**14), default=0, metavar="MS", help="only what was submitted by then (default: now)"
    )
    acting.asking_options(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    if options["ids"]:
        return acting.act_on_ids(VERB, options, console)
    conditions = {name: options[name] for name in ("tenant", "lane")}
    tasks = (options["task"],) if options["task"] else ()
    if not (options["everything"] or options["state"] or tasks or any(conditions.values())):
        raise CommandError("Say which: ids, or --tenant, --lane, --task, --state, or --all.")
    states = acting.states(options["state"], NOT_ENDED, "that can be cancelled")
    selections = [
        Selection(pool=pool, states=states, tasks=tasks, as_of_ms=options["as_of"], **conditions)
        for pool in acting.pools(options["pool"])
    ]
    return acting.act(VERB, selections, options, console)
