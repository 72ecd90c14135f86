"""`manage.py ductor move --from A --to B`: waiting jobs go on in another pool. With `--back`: those come back that left
A and that no other pool has, as its pool is not known or refuses them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli import acting
from queueapp.cli.command import names
from queueapp.cli.console import Console
from queueapp.inspection.bulk import move_many, take_back_many
from queueapp.inspection.pools import all_pools, require
from queueapp.inspection.selection import WAITING, Selection
from queueapp.states import State


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("move", help="waiting jobs go on in another pool, under ids that the old ones lead to")
    parser.add_argument("--from", dest="source", required=True, metavar="POOL", help="where they wait")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--to", dest="target", default="", metavar="POOL", help="where they go on")
    way.add_argument(
        "--back", action="store_true", help="take back what has left and cannot be brought where it was to go"
    )
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
    acting.asking_options(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    source, target = options["source"], options["target"]
    require([source] if options["back"] else [source, target], all_pools())
    if source == target:
        raise CommandError(f"--from and --to are one pool, {source!r}.")
    if options["back"] and options["state"]:
        raise CommandError("--back and --state exclude each other: what comes back is on its way.")
    waiting = acting.states(options["state"], WAITING, "in which jobs wait")
    selection = Selection(
        pool=source,
        states=(State.MOVING,) if options["back"] else waiting,
        tenant=options["tenant"],
        lane=options["lane"],
        tasks=(options["task"],) if options["task"] else (),
    )
    verb = acting.Verb(name="move", what="job", do=partial(move_many, to=target))
    if options["back"]:
        verb = acting.Verb(name="take back", what="job", do=take_back_many)
    return acting.act(verb, [selection], options, console)
