"""Which installation a namespace of the store belongs to: two databases must never work on the same queue.

An installation is a database, known by one random row in it. The first worker or scheduler claims the namespace; one of
another database refuses to lease or to lead there, because it would run jobs whose rows it does not have. A copy of a
database carries the row along and counts as the same installation: give a copy another NAMESPACE before it works.

`claim` stands at the start of worker, scheduler, `ductor sync`, `ductor upgrade` and `ductor fsck --repair`;
`Ownership` keeps looking while a worker or a scheduler runs. Web processes ask nothing of all this: enqueueing goes on.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from time import monotonic

from queueapp.conf import settings
from queueapp.errors import ForeignInstallation, StoreError
from queueapp.models import Installation
from queueapp.store import connection, shards

logger = logging.getLogger(__name__)

ONLY_ROW = 1
"""The key of the only row: of two processes that make it at once, the database lets one."""
EVERY_S = 10.0
SHOWN = 8


def installation_id() -> str:
    """The id of this database; the first call of all makes it."""
    return Installation.objects.get_or_create(pk=ONLY_ROW, defaults={"key": secrets.token_urlsafe(16)})[0].key


def claim() -> str:
    """Make the namespace this installation's unless somebody else has it; this installation's id.

    Raises ForeignInstallation when it belongs to another one, StoreUnavailable when the store cannot be asked.
    """
    ours = installation_id()
    holder = shards.claim(ours)
    if holder != ours:
        raise foreign(holder, ours)
    return ours


def look() -> None:
    """Raises ForeignInstallation when the namespace belongs to another installation. Changes nothing, in no place."""
    holder = shards.owner()
    ours = Installation.objects.filter(pk=ONLY_ROW).values_list("key", flat=True).first()
    if holder and holder != ours:
        raise foreign(holder, ours or "(none yet)")


def foreign(holder: str, ours: str) -> ForeignInstallation:
    """The refusal, with both ids and what to do."""
    return ForeignInstallation(
        f"The namespace {settings.namespace!r} at {connection.label()} belongs to installation {short(holder)}, and "
        f"this database is installation {short(ours)}: its workers and schedulers take no part there. Give one of the "
        'two another DUCTOR["NAMESPACE"]; or, when this one is to take the queue over, run `manage.py ductor adopt`.'
    )


def short(installation: str) -> str:
    """Enough of an id to tell two apart."""
    return f"{installation[:SHOWN]}…" if len(installation) > SHOWN else installation


class Ownership:
    """Whether a running process may still lease or lead. One thread calls `look`; anybody may read `barred`.

    A store that was emptied is claimed again without a word. One that is away says nothing about whose it is: what was
    known last stays so.
    """

    def __init__(self, installation: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._ours = installation
        self._clock = clock
        self.barred = False
        """Another installation has taken the namespace over."""
        self.next_at = clock() + EVERY_S
        """When `look` wants to be called, on the monotonic clock."""

    def look(self) -> None:
        """Looks when it is time. Says so once when the namespace goes to another installation, and when it is back."""
        if self._clock() < self.next_at:
            return
        self.next_at = self._clock() + EVERY_S
        try:
            holder = shards.owner()
            if not holder:
                holder = shards.claim(self._ours)
                shards.record_again()
        except StoreError as error:
            logger.debug("Nobody could say whose the namespace is: %s", error)
            return
        if self.barred == (holder != self._ours):
            return
        self.barred = holder != self._ours
        if self.barred:
            logger.error("Leasing and leading nothing more: %s", foreign(holder, self._ours))
        else:
            logger.warning("The namespace is ours again, going on", extra={"namespace": settings.namespace})
