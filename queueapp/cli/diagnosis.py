"""Everything that `manage.py ductor doctor` looks at, in the order in which one thing needs the one before.

Each fact comes from where the processes themselves get it: the server from `store.examination`, the settings from the
system checks, how pools stand from `inspection.overview`. Nothing is changed, and nothing that is printed holds
credentials.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.core import checks
from django.db import Error as DatabaseError
from django.utils import timezone

from queueapp.cli.command import plain
from queueapp.cli.startup import pending_migrations
from queueapp.conf import DEFAULT_POOL, known_pools, settings
from queueapp.errors import StoreError, StoreUnavailable, UnknownTask
from queueapp.extensions import our_labels
from queueapp.inspection.overview import pool_status
from queueapp.inspection.pools import declared_pools
from queueapp.models import OutboxEntry
from queueapp.monitoring.health import database_fault
from queueapp.producer import discovery, outbox
from queueapp.store import connection, examination, shards, upgrades
from queueapp.store.fitness import Remark
from queueapp.store.reads import Reads
from queueapp.store.safety import check_scripts
from queueapp.store.unknown import given_back
from queueapp.sync import installation, seen_pools

STUCK_MINUTES = 5
HEADS = 50
"""Jobs that would run next, whose tasks are looked up."""
DEPLOY = (
    "Deploy the code that has them, or name them in `aliases` of the task that took their place; after "
    "UNKNOWN_TASK_GRACE they are dead letters."
)
SILENCED = frozenset({checks.DEBUG, checks.INFO})


def examine() -> Iterator[Remark]:
    """All remarks. Raises nothing but bugs: what cannot be asked is a remark, too."""
    yield from _settings()
    database = list(_database())
    yield from database
    has_tables = not any(remark.level == "error" for remark in database)
    try:
        with connection.translate_errors():
            yield from examination.of_server(connection.reads(), shards.keys(DEFAULT_POOL))
    except StoreError as error:
        yield Remark(check="store", level="error", text=str(error))
        return
    yield from _namespace(has_tables=has_tables)
    for pool in _pools(has_tables=has_tables):
        try:
            yield from _pool(pool)
        except StoreUnavailable as error:
            yield Remark(check=f"pool {pool}", level="error", text=str(error))
    if has_tables:
        yield from _outbox()


def _settings() -> Iterator[Remark]:
    """The system checks, as `manage.py check --database` runs them."""
    ours = tuple(f"{label}." for label in our_labels())
    found = [
        message
        for message in checks.run_checks(databases=[settings.database], include_deployment_checks=False)
        if str(message.id).startswith(ours) and not message.is_silenced() and message.level not in SILENCED
    ]
    for message in found:
        yield Remark(
            check=str(message.id),
            level="error" if message.is_serious() else "warning",
            text=str(message.msg),
            remedy=str(message.hint or ""),
        )
    if not found:
        yield Remark(check="settings", level="well", text="The system checks find nothing.")


def _database() -> Iterator[Remark]:
    try:
        if (fault := database_fault()) is not None:
            raise fault
        pending = pending_migrations()
    except DatabaseError as error:
        yield Remark(check="database", level="error", text=f"The database cannot be used: {plain(error)}")
        return
    if pending:
        yield Remark(
            check="migrations",
            level="error",
            text=f"{pending[0].upper()}{pending[1:]}.",
            remedy="Run `manage.py migrate`; workers and schedulers wait for it.",
        )
    else:
        yield Remark(check="migrations", level="well", text="All migrations are applied.")


def _namespace(*, has_tables: bool) -> Iterator[Remark]:
    if not has_tables:
        yield Remark(check="namespace", level="unknown", text="Whose the namespace is cannot be told without tables.")
        return
    try:
        installation.look()
    except StoreError as error:
        yield Remark(check="namespace", level="error", text=str(error))
    else:
        yield Remark(
            check="namespace",
            level="well",
            text=f"The namespace {settings.namespace!r} is this installation's, or free.",
        )


def _pools(*, has_tables: bool) -> list[str]:
    try:
        return sorted({*(declared_pools() if has_tables else known_pools()), *seen_pools()})
    except (StoreError, DatabaseError):
        return sorted(known_pools())


def _pool(pool: str) -> Iterator[Remark]:
    check = f"pool {pool}"
    try:
        plan = upgrades.plan(connection.reads(), shards.keys(pool))
        if plan.steps:
            yield Remark(
                check=check,
                level="error",
                text=f"The shard has schema {plan.schema}, which is not this release's.",
                remedy="Run `manage.py ductor upgrade`.",
            )
            return
        check_scripts(pool)
        mark = examination.clock_mark(connection.reads(), shards.keys(pool))
        seen = pool_status(pool)
    except StoreUnavailable:
        raise
    except StoreError as error:
        yield Remark(check=check, level="error", text=str(error))
        return
    if mark is not None:
        yield Remark(check=check, level=mark.level, text=mark.text, remedy=mark.remedy)
    notes = [Remark(check=check, level="warning", text=note) for note in seen.notes]
    if seen.stats.get("quarantined"):
        notes.append(
            Remark(
                check=check,
                level="warning",
                text=f"{seen.stats['quarantined']:,} rows could not be read so far.",
                remedy=f"`manage.py ductor fsck {pool}` names those that are kept.",
            )
        )
    notes += _tasks(pool, live=any(worker.live for worker in seen.workers))
    yield from notes
    if not notes:
        live = sum(worker.live for worker in seen.workers)
        yield Remark(
            check=check, level="well", text=f"{live} worker{'s' * (live != 1)}, leader {seen.leader or 'none'}."
        )


def _tasks(pool: str, *, live: bool) -> list[Remark]:
    """Tasks that nobody knows. Workers know best, once they have met a job; until then this process's code is asked,
    which may be another one than theirs."""
    reads = shards.reads(pool)
    said = given_back(reads)
    found = [
        Remark(
            check=f"pool {pool}",
            level="warning",
            text=f"Workers give jobs of {name} back, because those that have met them do not know this task, since "
            f"{datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC.",
            remedy=DEPLOY,
        )
        for name, since_ms in sorted(said.items())
    ]
    strange = sorted(_unknown_here(reads) - said.keys())
    if strange:
        found.append(
            Remark(
                check=f"pool {pool}",
                level="note" if live else "warning",
                text=f"Jobs that would run next have tasks that this code does not know: {', '.join(strange)}."
                + (" No worker has said so of them yet: theirs may know them." if live else ""),
                remedy=DEPLOY,
            )
        )
    return found


def _unknown_here(reads: Reads) -> set[str]:
    """Of the jobs that would be leased next."""
    heads = [job_id for _, _, job_id in reads.peek(HEADS)]
    unknown = set()
    for name in {job.task for job in reads.letters(heads) if job is not None}:
        try:
            discovery.find(name)
        except UnknownTask:
            unknown.add(name)
    return unknown


def _outbox() -> Iterator[Remark]:
    refused = outbox.refused()
    if refused:
        yield Remark(
            check="outbox",
            level="warning",
            text=f"{refused:,} jobs in the outbox were refused for good.",
            remedy="The admin shows why (outbox entries): send them again, or delete them.",
        )
    since = timezone.now() - timedelta(minutes=STUCK_MINUTES)
    stuck = sum(
        outbox.rows(alias).filter(state=OutboxEntry.State.WAITING, due__lt=since).count() for alias in outbox.served()
    )
    if stuck:
        yield Remark(
            check="outbox",
            level="warning",
            text=f"{stuck:,} jobs wait in the outbox although they were due {STUCK_MINUTES} minutes ago.",
            remedy="A scheduler sends them: is one running (`manage.py scheduler`), and what does its log say?",
        )
    if not refused and not stuck:
        yield Remark(check="outbox", level="well", text="Nothing is stuck in the outbox.")
