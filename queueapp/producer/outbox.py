"""The outbox: jobs whose transaction has committed while the store could not take them, kept as rows until it can.

`client.send_late` keeps them (`keep`), schedulers send them (`relaying`), a handle asks about its own (`refresh`), and
whoever shows how things stand counts them (`waiting`, `refused`). A row stands in the database whose transaction it
belongs to, where that has our table, else in that of `DUCTOR["DATABASE"]`.

What is enqueued while rows wait goes straight to the store and may overtake them.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, fields, replace
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from django.core.signals import setting_changed
from django.db import Error as DatabaseError
from django.db import connections, router, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from queueapp.compat import TaskResultDoesNotExist, TaskResultStatus
from queueapp.conf import settings
from queueapp.errors import DuctorError, IdempotencyConflict, StoreError, StoreUnavailable, Upgrading
from queueapp.moments import now_ms
from queueapp.names import LANE_FORM, POOL_FORM
from queueapp.patterns import TEXT_MAX_BYTES
from queueapp.policies.protocol import PRIORITY_MAX, PRIORITY_MIN
from queueapp.producer.concurrency import LIMIT_MAX
from queueapp.producer.once import PERIOD_MAX_S
from queueapp.producer.results import DuctorResult
from queueapp.repeats import Repeats
from queueapp.states import Outcome, State
from queueapp.store import shards
from queueapp.store.records import KEYS_MAX, DebounceUse, KeyUse, NewJob, SingletonMode, SingletonUse

if TYPE_CHECKING:
    from queueapp.models import OutboxEntry
    from queueapp.producer.preparation import Prepared

logger = logging.getLogger(__name__)

VERSION = 1
"""Of the form in which a row holds its job."""
KINDS: dict[str, tuple[type, ...]] = {
    "payload": (bytes,),
    "cost": (int, float),
    "debounce": (NoneType, DebounceUse),
    "singleton": (NoneType, SingletonUse),
}
"""Types of a job's fields that are not those of their defaults, nor text."""
KEY_DIGEST_FORM = re.compile(r"[A-Za-z0-9_-]{22}")
DIGEST_FORM = re.compile(r"[A-Za-z0-9_-]{0,64}")
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
        extra={"jobs": [_public_id(prepared) for prepared, _ in chunk]},
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


def entry_of(
    prepared: Prepared, *, error: str = "", due: datetime | None = None, claim: str = "", tries: int = 0
) -> OutboxEntry:
    """The row that keeps a job. `due` and `claim`: whose it is to send, and until when nobody else does."""
    from queueapp.models import OutboxEntry

    job, at_ms = prepared.late(), now_ms()
    return OutboxEntry(
        job_id=_public_id(prepared),
        pool=prepared.pool,
        tenant=job.tenant,
        task=job.task[:512],
        job={"version": VERSION, "backend": prepared.task.backend, "kept_ms": at_ms, "job": held(job)},
        payload=job.payload,
        error=error,
        due=due or timezone.now(),
        claim=claim,
        tries=tries,
    )


def held(job: NewJob) -> dict[str, Any]:
    """All of a job but its arguments, as JSON has it."""
    found = {field.name: getattr(job, field.name) for field in fields(job) if field.name != "payload"}
    once = {name: use and asdict(use) for name, use in (("debounce", job.debounce), ("singleton", job.singleton))}
    return {**found, **once, "keys": [asdict(key) for key in job.keys]}


def job_of(entry: OutboxEntry) -> NewJob:
    """The job of a row as it is to be sent now.

    `due_ms` and `deadline_ms` are moments and stay. `expires_after_ms` counts from the commit and `delay_ms` from the
    call, so what has passed since is taken off; a job that has expired meanwhile is sent all the same, so that its
    result says so. Clocks of two machines are compared here, so that a delay is never longer than it was, counted from
    now. The time for which an idempotency key stands is not cut: it begins when the store knows the key, and two rows
    with one key must still meet there.
    """
    if entry.job["version"] > VERSION:
        raise ValueError(f"version {entry.job['version']} of a row")
    given = dict(entry.job["job"])
    keys = tuple(KeyUse(**key) for key in given.pop("keys", ()))
    window, single = given.pop("debounce", None), given.pop("singleton", None)
    job = NewJob(
        **given,
        keys=keys,
        debounce=window and DebounceUse(**window),
        singleton=single and SingletonUse(**single),
        payload=bytes(entry.payload),
    )
    _check(entry, job)
    passed_ms = max(0, now_ms() - entry.job["kept_ms"])
    if job.delay_ms:
        job = replace(job, delay_ms=max(0, job.delay_ms - passed_ms))
    if not job.expires_after_ms:
        return job
    left_ms = job.expires_after_ms - passed_ms
    if left_ms > 0:
        return replace(job, expires_after_ms=left_ms)
    # Due long after it expires, so that no worker can have it in between.
    return replace(job, expires_after_ms=1, due_ms=now_ms() + 86_400_000, delay_ms=0)


def _check(entry: OutboxEntry, job: NewJob) -> None:
    """Raises ValueError for a job that no enqueue makes: the store trusts what it is sent."""
    for field in fields(job):
        value = getattr(job, field.name)
        kind = str if field.default is MISSING else type(field.default)
        if type(value) not in KINDS.get(field.name, (kind,)):
            raise ValueError(f"{field.name} is of the type {type(value).__name__}")
        least, most = (PRIORITY_MIN, PRIORITY_MAX) if field.name == "priority" else (0, 2**53)
        if isinstance(value, (int, float)) and not least <= value <= most:
            raise ValueError(f"{field.name} is out of range")
    job.task.encode()
    if not (LANE_FORM.fullmatch(job.tenant) and LANE_FORM.fullmatch(job.lane) and POOL_FORM.fullmatch(entry.pool)):
        raise ValueError("its tenant, lane or pool has no name that Ductor gives")
    if job.tier not in ("start", "continue") or not (DIGEST_FORM.fullmatch(job.fingerprint + job.idempotency)):
        raise ValueError("its tier or one of its digests is none")
    _check_keys(job.keys)
    _check_once(job)
    if entry.job_id != shards.keys(entry.pool).public_id(job.id):
        raise ValueError("its id is not of its pool")


def _check_keys(keys: Sequence[KeyUse]) -> None:
    digests = [key.digest for key in keys]
    if len(keys) > KEYS_MAX or digests != sorted(set(digests)):
        raise ValueError("its concurrency keys are no set of keys")
    for key in keys:
        if not (KEY_DIGEST_FORM.fullmatch(key.digest) and KEY_DIGEST_FORM.fullmatch(key.pattern)):
            raise ValueError("a digest of a concurrency key is none")
        if type(key.limit) is not int or not 1 <= key.limit <= LIMIT_MAX:
            raise ValueError("the limit of a concurrency key is out of range")
        if not key.text.isprintable() or not 1 <= len(key.text.encode()) <= TEXT_MAX_BYTES:
            raise ValueError("the text of a concurrency key is none")


def _check_once(job: NewJob) -> None:
    for use in (job.debounce, job.singleton):
        if use is not None and not KEY_DIGEST_FORM.fullmatch(use.digest):
            raise ValueError("the digest of a debounce or a singleton is none")
    if job.debounce is not None:
        for duration in (job.debounce.period_ms, job.debounce.most_ms):
            if type(duration) is not int or not 0 <= duration <= PERIOD_MAX_S * 1000:
                raise ValueError("a duration of a debounce is out of range")
    if job.singleton is not None and job.singleton.mode not in get_args(SingletonMode):
        raise ValueError("the mode of a singleton is none")


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


def _public_id(prepared: Prepared) -> str:
    return shards.keys(prepared.pool).public_id(prepared.job.id)


def _on_setting_changed(*, setting: str, **_: object) -> None:
    if setting in {"DUCTOR", "DATABASES", "DATABASE_ROUTERS"}:
        forget()


setting_changed.connect(_on_setting_changed, dispatch_uid="queueapp.producer.outbox")
