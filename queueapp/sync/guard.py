"""What keeps a pool from being deleted: its jobs, or that nobody can say whether it has any.

The admin asks before it deletes and lists the reasons; whoever deletes through the ORM meets them as a ProtectedError,
a queryset's `delete()` at the first pool that must stay. Plain SQL asks nobody: the jobs then stay in the store, where
the admin's page of the pools still lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import ProtectedError
from django.utils.translation import gettext, ngettext

from queueapp.conf import settings
from queueapp.errors import DuctorError
from queueapp.models import Pool
from queueapp.signals import pool_deleting
from queueapp.sync.delivery import overview


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Why a pool must stay: the jobs that would go with it, and what to do about them."""

    jobs: str
    remedy: str
    away: bool = False
    """Nobody could be asked; asking about another pool would take as long again."""


def connect() -> None:
    """Listen to deletions. Called once, by the app's `ready()`."""
    pool_deleting.connect(_on_deleting, sender=Pool, dispatch_uid="queueapp.sync.guard")


def kept(pool: Pool) -> Kept | None:
    """Why `pool` must not be deleted; None when nothing speaks against it. Takes a second at most."""
    try:
        known = overview(pool.name)
    except DuctorError as error:
        return Kept(
            jobs=gettext("Jobs of the pool “%(pool)s”, if there are any") % {"pool": pool.name},
            remedy=gettext(
                "A pool is not deleted while nobody can say whether it has jobs. %(reason)s Try again later."
            )
            % {"reason": str(error)},
            away=True,
        )
    # Waiting includes what is scheduled; what has ended is kept for its result only and needs no pool.
    jobs = known.waiting + known.active + known.dead
    if not jobs:
        return None
    counts = {"jobs": jobs, "waiting": known.waiting, "active": known.active, "dead": known.dead}
    return Kept(
        jobs=ngettext(
            "%(jobs)d job (%(waiting)d waiting, %(active)d running, %(dead)d dead) of the pool “%(pool)s”",
            "%(jobs)d jobs (%(waiting)d waiting, %(active)d running, %(dead)d dead) of the pool “%(pool)s”",
            jobs,
        )
        % {"pool": pool.name, **counts},
        remedy=ngettext(
            "The pool “%(pool)s” still has %(jobs)d job: let it end, cancel or discard it first.",
            "The pool “%(pool)s” still has %(jobs)d jobs: let them end, cancel or discard them first.",
            jobs,
        )
        % {"pool": pool.name, "jobs": jobs},
    )


def _on_deleting(*, instance: Pool, using: str, **_: Any) -> None:
    # A copy of the row in another database stands for no jobs.
    if using == settings.database and (reason := kept(instance)) is not None:
        raise ProtectedError(reason.remedy, {instance})
