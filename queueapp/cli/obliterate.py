"""`manage.py ductor obliterate POOL`: removes every job of a pool, once its name was typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.console import Console
from queueapp.errors import DuctorError, StoreError
from queueapp.inspection.draining import left
from queueapp.inspection.obliteration import Obliteration, obliterate
from queueapp.inspection.pools import all_pools, require


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("obliterate", help="remove every job of a pool, in whatever state, for good")
    parser.add_argument("pool", metavar="POOL", help="which pool")
    parser.add_argument("--yes-delete", default="", metavar="POOL", help="its name once more, in place of the question")
    parser.add_argument(
        "--force", action="store_true", help="also while jobs run: their bodies go on, what they say is refused"
    )


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    pool = options["pool"]
    require([pool], all_pools())
    typed = options["yes_delete"] or console.ask(
        f"Every job of the pool {pool!r} will be removed: {_what(pool)}, dead letters and results. Type its name: ",
        instead="--yes-delete POOL",
    )
    if typed != pool:
        raise CommandError(f"{typed!r} is not the name of the pool. Nothing was changed.")
    shown = console.progress("keys removed")
    seen = Obliteration(jobs=0, keys=0, done=False)

    def told(so_far: Obliteration) -> None:
        nonlocal seen
        shown.add(so_far.keys - seen.keys)
        seen = so_far

    try:
        done = obliterate(pool, force=options["force"], progress=told, by=console.user)
    except KeyboardInterrupt:
        raise CommandError(f"Interrupted: {_half_gone(seen)}") from None
    except StoreError as error:
        if not seen.keys:
            raise
        raise CommandError(f"{error} {_half_gone(seen)}") from None
    return f"The pool {pool} is empty: {done.jobs:,} jobs are gone. What is configured stays."


def _half_gone(seen: Obliteration) -> str:
    return (
        f"{seen.jobs:,} jobs are gone, others may be left, and nobody can use the pool until it is empty; say the same "
        "again to go on."
    )


def _what(pool: str) -> str:
    try:
        found = left(pool)
    except DuctorError:  # in the middle of an obliteration that was interrupted
        return "all that is left"
    return f"{found.waiting:,} that wait, {found.running:,} that run"
