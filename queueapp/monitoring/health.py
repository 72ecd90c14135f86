"""Whether a process is well, and whether it can do its work: what /healthz and /readyz answer.

Well: its loop turns. A process that is not may be started anew. Ready: store and database answer, and it has made
itself known; a process that is not need not be started anew, it waits by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Protocol

from django.db import Error as DatabaseError
from django.db import OperationalError, connections

from queueapp.conf import DEFAULT_POOL, settings
from queueapp.errors import DuctorError
from queueapp.store.safety import check_scripts

DATABASE_S = 2.0
"""How long a probe waits for the database."""
_asking = threading.Lock()
STUCK_S = 60.0
"""A loop may wait this long inside one turn: for a store that does not answer, twice, with a new connection."""


class Vital(Protocol):
    """A worker or a scheduler. `turned_at` is on the monotonic clock."""

    @property
    def turned_at(self) -> float: ...

    @property
    def unready(self) -> str: ...


class Vitals:
    """The health of one process. It is well while it starts: waiting for a database is no illness."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.parts: list[Vital] = []
        """The worker, the scheduler: added when each begins."""
        self._clock = clock

    def ailing(self) -> str:
        """What is wrong with the process; "" when nothing."""
        for part in self.parts:
            still_s = self._clock() - part.turned_at
            if still_s > STUCK_S:
                return f"the loop of this {type(part).__name__.lower()} has not turned for {still_s:.0f} s"
        return ""

    def unready(self) -> str:
        """Why it cannot do its work just now; "" when it can."""
        if not self.parts:
            return "starting: waiting for the database or the store"
        for part in self.parts:
            if part.unready:
                return f"{type(part).__name__.lower()}: {part.unready}"
        return outside()


def outside() -> str:
    """What is wrong with store or database, without their addresses; "" when both answer."""
    return _store() or ("the database does not answer" if database_fault() else "")


def _store() -> str:
    try:
        # Not PING: a replica, or a user without the right, answers that and refuses every job.
        check_scripts(DEFAULT_POOL)  # always there, and all pools are in one store
    except DuctorError:
        return "the store does not answer"
    return ""


def database_fault() -> DatabaseError | None:
    """Why the database cannot be asked; None when it answers, within `DATABASE_S`.

    Asked in a thread of its own, one at a time: drivers wait for ever for a server that has frozen, and every probe
    would leave one more that waits.
    """
    silent = OperationalError(f"The database does not answer within {DATABASE_S:g} s.")
    if not _asking.acquire(timeout=DATABASE_S):
        return silent
    answers: SimpleQueue[Exception | None] = SimpleQueue()

    def ask() -> None:
        fault: Exception | None = None
        try:
            with connections[settings.database].cursor() as cursor:
                cursor.execute("SELECT 1")
                cursor.fetchone()
        except Exception as error:
            fault = error
        finally:
            with suppress(Exception):
                connections.close_all()
            _asking.release()
            answers.put(fault)

    threading.Thread(target=ask, name="ductor-database", daemon=True).start()
    try:
        fault = answers.get(timeout=DATABASE_S)
    except Empty:
        return silent
    if fault is not None and not isinstance(fault, DatabaseError):
        raise fault
    return fault
