"""`manage.py ductor adopt`: the namespace of the store is made this database's, whoever had it."""

from __future__ import annotations

from collections.abc import Callable

from queueapp.conf import settings
from queueapp.store import connection, shards
from queueapp.sync.installation import EVERY_S, installation_id, short


def adopt(*, confirm: Callable[[str], bool]) -> str:
    """The text to print. Asks before it takes anything from somebody."""
    ours = installation_id()
    holder = shards.claim(ours)
    name = f"The namespace {settings.namespace!r} at {connection.label()}"
    if holder == ours:
        return f"{name} belongs to this installation ({short(ours)}) already."
    question = (
        f"{name} belongs to installation {short(holder)}; this database is installation {short(ours)}.\n"
        "Taking it over means: workers and schedulers of the other one stop leasing and leading, within "
        f"{EVERY_S:g} seconds; its waiting jobs, dead letters and results become this project's, whose workers run "
        "them on this database; the limits and pools in force become those of this database.\n"
        "Right after a database was set up anew for the same store; wrong when the other one is still in use, or this "
        "one is a copy for tests.\n"
        "Take it over?"
    )
    if not confirm(question):
        return "Nothing was changed."
    shards.take_over(ours)
    return f"{name} belongs to this installation ({short(ours)}) now. Start its workers and schedulers."
