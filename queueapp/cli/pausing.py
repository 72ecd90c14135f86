"""`manage.py ductor pause POOL` and `resume POOL`: a pool, a tenant of it, or one lane of a tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queueapp import sync
from queueapp.cli.console import Console
from queueapp.inspection.pools import all_pools, require

TEXTS = {"pause": "nothing more of it starts", "resume": "it goes on where it stopped"}


def add_parser(verbs: Any) -> None:
    for verb, text in TEXTS.items():
        parser = verbs.add_parser(verb, help=f"a pool, a tenant or a lane: {text}")
        parser.add_argument("pool", metavar="POOL", help="which pool")
        parser.add_argument("--tenant", default="", help="only this tenant")
        parser.add_argument("--lane", default="", help="only this lane of the tenant")


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    pool, tenant, lane = options["pool"], options["tenant"], options["lane"]
    require([pool], all_pools())
    verb = sync.pause if options["verb"] == "pause" else sync.resume
    found = verb(pool, tenant=tenant, lane=lane, by=console.user)
    what = f"lane {lane} of {tenant} in {pool}" if lane else f"{tenant} in {pool}" if tenant else f"the pool {pool}"
    word = "paused" if found.paused else "at work"
    text = f"{what[0].upper()}{what[1:]} is {word}{'' if found.changed else ' already'}."
    if not found.in_force:
        text += " It is saved, and the store did not take it yet: a scheduler brings it over, or `ductor sync`."
    elif found.paused and found.changed:
        text += f" What runs goes on; `ductor resume {pool}{_options(tenant, lane)}` lets the rest go on."
    return text


def _options(tenant: str, lane: str) -> str:
    return (f" --tenant {tenant}" if tenant else "") + (f" --lane {lane}" if lane else "")
