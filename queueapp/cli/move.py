"""`manage.py ductor move --from A --to B`: waiting jobs go on in another pool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli import bulk
from queueapp.cli.command import names
from queueapp.cli.console import Console
from queueapp.inspection.bulk import move_many
from queueapp.inspection.pools import all_pools, require
from queueapp.inspection.selection import WAITING, Selection


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("move", help="waiting jobs go on in another pool, under ids that the old ones lead to")
    parser.add_argument("--from", dest="source", required=True, metavar="POOL", help="where they wait")
    parser.add_argument("--to", dest="target", required=True, metavar="POOL", help="where they go on")
    parser.add_argument(
        "--state",
        type=names,
        default=[],
        metavar="STATE[,STATE]",
        help=f"only in these: {', '.join(state.value for state in WAITING)} (default: all of them)",
    )
    parser.add_argument("--tenant", default="", help="only of this tenant")
    parser.add_argument("--lane", default="", help="only of this lane")
    parser.add_argument("--task", default="", help="only of this task (its dotted name)")
    bulk.asking_options(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    source, target = options["source"], options["target"]
    require([source, target], all_pools())
    if source == target:
        raise CommandError(f"--from and --to are one pool, {source!r}.")
    known = {state.value: state for state in WAITING}
    for name in options["state"]:
        if name not in known:
            raise CommandError(f"{name!r} is no state in which jobs wait; there are {', '.join(known)}.")
    selection = Selection(
        pool=source,
        states=tuple(known[name] for name in options["state"]) or WAITING,
        tenant=options["tenant"],
        lane=options["lane"],
        tasks=(options["task"],) if options["task"] else (),
    )
    verb = bulk.Verb(name="move", what="job", do=partial(move_many, to=target))
    return bulk.act(verb, [selection], options, console)
