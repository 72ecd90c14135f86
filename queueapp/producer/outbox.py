"""The outbox: jobs whose transaction has committed while the store could not take them, kept as rows until it can.

`client.send_late` keeps them (`keep`), schedulers send them (`relaying`), a handle asks about its own (`refresh`), and
whoever shows how things stand counts them (`waiting`, `refused`). A row stands in the database whose transaction it
belongs to, where that has our table, else in that of `DUCTOR["DATABASE"]`.

What is enqueued while rows wait goes straight to the store and may overtake them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed
from django.db import Error as DatabaseError
from django.db import connections, router, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from queueapp.compat import TaskResultDoesNotExist, TaskResultStatus
from queueapp.conf import settings
from queueapp.errors import DuctorError, IdempotencyConflict, StoreError, StoreUnavailable, Upgrading
from queueapp.producer.entries import entry_of, public_id
from queueapp.producer.results import DuctorResult
from queueapp.repeats import Repeats
from queueapp.states import Outcome, State

if TYPE_CHECKING:
    from queueapp.models import OutboxEntry
    from queueapp.producer.preparation import Prepared

logger = logging.getLogger(__name__)

CHUNK_ROWS = 200
CHUNK_BYTES = 4_000_000
QUIET_S = 3.0
"""After a send that found no store, later commits of this process go to the outbox unasked for so long: many commits
in a row must not each wait for a store that does not answer."""
SERVED_S = 30.0
"""How long it is remembered which databases have our table."""


class _Memory:
    """What this process met lately. No lock: each use is one step, and forgetting too much only costs a question."""

    away_until: float = 0.0
    away: StoreError | None = None
    served_until: float = 0.0
    served: tuple[str, ...] = ()


_memory = _Memory()
repeats = Repeats()
"""What the log was told lately of jobs that the store did not take, by what happened to them and why."""


# -- keeping -----------------------------------------------------------------------------------------------------


def is_away(error: object) -> bool:
    """Whether an answer says that the whole store cannot be used now, not a pool of it alone."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, Upgrading)


def away() -> StoreError | None:
    """What the last send met when that is less than `QUIET_S` ago; None: the store is worth asking."""
    return _memory.away if time.monotonic() < _memory.away_until else None


def keep(failed: Sequence[tuple[Prepared, DuctorError]], aliases: Sequence[str]) -> dict[str, str]:
    """Keep jobs that the store could not take; the id of each kept one → the database that has it.

    `aliases` are the databases whose transactions they waited for. Never raises: what cannot be written is logged.
    """
    lasting = [(prepared, error) for prepared, error in failed if isinstance(error, StoreError)]
    if settings.on_commit_failure != "outbox" or not lasting:
        return {}
    for _, error in lasting:
        if is_away(error) and away() is None:
            _memory.away, _memory.away_until = error, time.monotonic() + QUIET_S
    kept: dict[str, str] = {}
    for chunk in _chunks(lasting):
        if alias := _write(chunk, aliases):
            kept.update({prepared.job.id: alias for prepared, _ in chunk})
    return kept


def _write(chunk: Sequence[tuple[Prepared, DuctorError]], aliases: Sequence[str]) -> str | None:
    fault: Exception | None = None
    for alias in _homes(aliases):
        try:
            # A savepoint where a block is open (that of a TestCase): a row that cannot be written must not break it.
            with transaction.atomic(using=alias):
                rows(alias).bulk_create([entry_of(prepared, error=str(error)) for prepared, error in chunk])
        except Exception as error:
            fault = error
        else:
            return alias
    logger.error(
        "Jobs could not be kept in the outbox: %s",
        fault,
        extra={"jobs": [public_id(prepared) for prepared, _ in chunk]},
    )
    return None


def _homes(aliases: Sequence[str]) -> Iterator[str]:
    """Where to write, best first."""
    for alias in sorted(aliases, key=lambda alias: alias != settings.database):
        usable = alias == settings.database
        with suppress(Exception):  # one that cannot be asked is left out: there is that of the settings
            usable = usable or _has_table(alias)
        if usable:
            yield alias
    if settings.database not in aliases:
        yield settings.database


def _chunks(
    failed: Sequence[tuple[Prepared, DuctorError]],
) -> Iterator[Sequence[tuple[Prepared, DuctorError]]]:
    first = size = 0
    for position, (prepared, _) in enumerate(failed):
        size += len(prepared.job.payload)
        if position > first and (position - first >= CHUNK_ROWS or size > CHUNK_BYTES):
            yield failed[first:position]
            first, size = position, len(prepared.job.payload)
    yield failed[first:]


# -- asking ------------------------------------------------------------------------------------------------------


def waiting() -> int:
    """How many jobs wait in the outboxes of all databases. Raises DatabaseError."""
    from queueapp.models import OutboxEntry

    return sum(rows(alias).filter(state=OutboxEntry.State.WAITING).count() for alias in served())


def refused() -> int:
    """How many rows stay because the store refused their jobs for good. Raises DatabaseError."""
    from queueapp.models import OutboxEntry

    return sum(rows(alias).filter(state=OutboxEntry.State.REFUSED).count() for alias in served())


def refresh(handle: DuctorResult) -> None:
    """Bring a handle that is kept here up to date: whether the store has its job by now, or has refused it.

    Raises TaskResultDoesNotExist when neither knows it any more, and what the store or the database raises.
    """
    for _ in range(2):  # the relay may carry it over between the two questions
        try:
            return _arrived(handle, handle.task.get_backend().get_result(handle.id))
        except TaskResultDoesNotExist:
            entry = rows(handle.outbox).filter(job_id=handle.id).first()
            if entry is not None:
                return _still_here(handle, entry)
    raise _lost(handle)


async def arefresh(handle: DuctorResult) -> None:
    """See `refresh`."""
    for _ in range(2):
        try:
            return _arrived(handle, await handle.task.get_backend().aget_result(handle.id))
        except TaskResultDoesNotExist:
            entry = await rows(handle.outbox).filter(job_id=handle.id).afirst()
            if entry is not None:
                return _still_here(handle, entry)
    raise _lost(handle)


def withdraw(handle: DuctorResult) -> bool:
    """Take a job out of the outbox again, so that it is never sent; False: it waits there no more, or is being sent."""
    gone, _ = _waiting_row(handle).delete()
    return _withdrawn(handle, gone)


async def awithdraw(handle: DuctorResult) -> bool:
    """See `withdraw`."""
    gone, _ = await _waiting_row(handle).adelete()
    return _withdrawn(handle, gone)


def _waiting_row(handle: DuctorResult) -> QuerySet[OutboxEntry]:
    """Its row, but while somebody is sending it: the job would be in the store a moment later."""
    return unclaimed(rows(handle.outbox).filter(job_id=handle.id))


def unclaimed(found: QuerySet[OutboxEntry]) -> QuerySet[OutboxEntry]:
    """Those of the rows that wait and that nobody is sending."""
    return found.filter(Q(claim="") | Q(due__lte=timezone.now()), state=found.model.State.WAITING)


def _withdrawn(handle: DuctorResult, gone: int) -> bool:
    if gone:
        handle._set(
            outbox="",
            send_error=None,
            state=State.ENDED.value,
            outcome=Outcome.CANCELLED.value,
            status=TaskResultStatus.FAILED,
        )
    return gone > 0


def _arrived(handle: DuctorResult, found: Any) -> None:
    handle._take(found)
    handle._set(outbox="", send_error=None)


def _still_here(handle: DuctorResult, entry: OutboxEntry) -> None:
    if entry.state == entry.State.REFUSED:
        handle._set(outbox="", send_error=IdempotencyConflict(entry.error))


def _lost(handle: DuctorResult) -> TaskResultDoesNotExist:
    return TaskResultDoesNotExist(
        f"Job {handle.id} is neither in the outbox nor in the store: an earlier job stands for its idempotency key, or "
        "retention or somebody removed it."
    )


# -- where -------------------------------------------------------------------------------------------------------


def served() -> tuple[str, ...]:
    """The aliases of the databases that have our table. One that cannot be asked now is left out, and told."""
    now = time.monotonic()
    if now >= _memory.served_until:
        found = []
        for alias in connections:
            try:
                if _has_table(alias):
                    found.append(alias)
            except DatabaseError as error:
                if alias == settings.database:
                    raise
                logger.warning("A database cannot be asked for its outbox: %s", error, extra={"database": alias})
        _memory.served, _memory.served_until = tuple(found), now + SERVED_S
    return _memory.served


def forget() -> None:
    """Look everything up anew."""
    _memory.away_until = _memory.served_until = 0.0
    repeats.forget()


def _has_table(alias: str) -> bool:
    from queueapp.models import OutboxEntry

    if not router.allow_migrate_model(alias, OutboxEntry):
        return False
    connection = connections[alias]
    return OutboxEntry._meta.db_table in connection.introspection.table_names()


def rows(alias: str) -> QuerySet[OutboxEntry]:
    """All rows of one database."""
    # Imported late: tasks modules, which import the producer, are loaded before the apps' models may be.
    from queueapp.models import OutboxEntry

    return OutboxEntry.objects.using(alias)


def _on_setting_changed(*, setting: str, **_: object) -> None:
    if setting in {"DUCTOR", "DATABASES", "DATABASE_ROUTERS"}:
        forget()


setting_changed.connect(_on_setting_changed, dispatch_uid="queueapp.producer.outbox")
