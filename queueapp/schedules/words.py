"""What is said of a schedule whose job cannot be made, or that cannot be read: kept in its note, logged and shown.

Texts of our own only. The text of another exception may hold what nobody is to see (the address of a database with its
password, when a module of the host cannot be imported), so of such a one only the class is told.
"""

from __future__ import annotations

from collections.abc import Callable

from queueapp.compat import InvalidTask
from queueapp.errors import DuctorError
from queueapp.firings import read_cron, read_zone
from queueapp.models import Schedule

NOTE_MAX = 500


def why(error: Exception) -> str:
    """Why the job of a schedule was refused."""
    if isinstance(error, (DuctorError, InvalidTask)):
        return f"{error}"[:NOTE_MAX]
    return f"{type(error).__name__} was raised while its job was made"


def unreadable(schedule: Schedule, error: Exception) -> str:
    """Why nobody can say when it fires: what is wrong with its cron and its zone, else the class of the error."""
    reads: tuple[tuple[str, Callable[[object], object], str], ...] = ()
    if schedule.cron:
        reads = (("cron", read_cron, schedule.cron), ("zone", read_zone, schedule.zone_name))
    for name, read, value in reads:
        try:
            read(value)
        except ValueError as fault:
            return f"{name} is {value!r}: it must be {fault}"[:NOTE_MAX]
    return f"it cannot be read: {type(error).__name__}; check its cron or interval, its start and its end"
