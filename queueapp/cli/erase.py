"""`manage.py ductor erase TENANT`: all that is kept of a tenant's work, once its key was typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError

from queueapp.cli.console import Console
from queueapp.errors import StoreError
from queueapp.inspection.erasure import Erasure, erase, extent

GO_ON = "What is gone is gone; say the same again to go on."


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser("erase", help="all that is kept of a tenant's work, in every pool, for good")
    parser.add_argument("tenant", metavar="TENANT", help="its key")
    parser.add_argument("--yes-erase", default="", metavar="TENANT", help="its key once more, in place of the question")
    parser.add_argument("--dry-run", action="store_true", help="only say how much there is")


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end."""
    tenant = options["tenant"]
    there = extent(tenant)
    if options["dry_run"]:
        return f"Would erase {_words(there)}. Nothing was changed.{_left(there)}"
    typed = options["yes_erase"] or console.ask(
        f"Everything that is kept of the work of {tenant!r} will be erased: {_words(there)}. Type its key: ",
        instead="--yes-erase TENANT",
    )
    if typed != tenant:
        raise CommandError(f"{typed!r} is not the key of the tenant. Nothing was changed.")
    done = Erasure()
    with console.bar(there.number, "jobs and rows") as bar:

        def told(so_far: Erasure) -> None:
            nonlocal done
            done = so_far
            bar.at(so_far.number, "")

        try:
            done = erase(tenant, progress=told, by=console.user)
        except KeyboardInterrupt:
            raise CommandError(f"Interrupted: erased {_words(done)}. {GO_ON}") from None
        except (StoreError, DatabaseError) as error:
            raise CommandError(f"{error} Erased so far: {_words(done)}. {GO_ON}") from None
    return (
        f"Erased {_words(done)}. Its settings stay: delete the tenant in the admin, if it is to be forgotten whole."
        f"{_left(done)}"
    )


def _left(found: Erasure) -> str:
    return f" Left: {'; '.join(f'{number:,} {what}' for what, number in found.left.items())}." if found.left else ""


def _words(found: Erasure) -> str:
    parts = [f"{place}: {number:,}" for place, number in found.places.items() if number]
    least = "" if found.exact else "at least "
    return f"{least}{found.number:,} jobs and rows" + (f" ({', '.join(parts)})" if parts else "")
