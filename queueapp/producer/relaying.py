"""The relay: sends what the outbox keeps. Called by every scheduler (`duties/relay.py`), leader or not.

A job that is sent is the one that was enqueued, id included; so sending one twice is harmless, and several schedulers
need no lock: a conditional UPDATE says who sends a row, and a claim runs out by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db import Error as DatabaseError
from django.db import connections, transaction
from django.db.models import F
from django.utils import timezone

from queueapp import metrics
from queueapp.compat import task_enqueued
from queueapp.errors import IdempotencyConflict, StoreError
from queueapp.moments import now_ms
from queueapp.producer.entries import job_of, tree_of
from queueapp.producer.kept_trees import TENANTS, TREE, KeptTree
from queueapp.producer.outbox import is_away, repeats, rows, served
from queueapp.producer.results import DEFERRED, DuctorResult, result_from_record
from queueapp.producer.sending import Answer, send_each
from queueapp.signals import enqueue_failed
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.ids import LENGTH, new_id
from queueapp.store.records import Enqueued, NewJob
from queueapp.store.views import JobRecord

if TYPE_CHECKING:
    from queueapp.models import OutboxEntry

logger = logging.getLogger(__name__)

FRONT_DOOR = {
    "throttled": "The job is above the rate of its tenant, its lane or a key; it is sent when it may come.",
    "backlog_full": "As many jobs of the tenant, or the pool, wait as may; the job is sent when there is room.",
}
"""Outcome of a job that keeps its row until it may come → what the row says meanwhile."""

PASS_ROWS = 200
CLAIM_S = 60.0
"""How long the rows of a pass belong to it. One that was cut off leaves them to the others after that."""
PAUSE_MAX_S = 30.0
REASON_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What one pass did, by number of rows."""

    sent: int = 0
    refused: int = 0
    put_off: int = 0
    more: bool = False
    """A database may have further rows that are due."""

    @property
    def found(self) -> int:
        return self.sent + self.refused + self.put_off


def relay(limit: int = PASS_ROWS) -> Relayed:
    """Send what is due, at most `limit` rows of each database. Any number of processes may do so at once.

    Raises DatabaseError, after all databases had their turn, when one of them could not be used.
    """
    passes: list[Relayed] = []
    fault: DatabaseError | None = None
    for alias in served():
        try:
            passes.append(_relay(alias, limit))
        except DatabaseError as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return Relayed(
        sent=sum(each.sent for each in passes),
        refused=sum(each.refused for each in passes),
        put_off=sum(each.put_off for each in passes),
        more=any(each.more for each in passes),
    )


def _relay(alias: str, limit: int) -> Relayed:
    claim = new_id()
    entries = _claim(alias, claim, limit)
    if not entries:
        return Relayed()
    relayed = send_claimed(alias, claim, entries)
    if relayed.sent or relayed.refused:
        facts = {"sent": relayed.sent, "refused": relayed.refused, "put_off": relayed.put_off}
        logger.info("The outbox was relayed", extra={"database": alias, **facts})
    return replace(relayed, more=len(entries) == limit and relayed.sent > 0)


def send_claimed(alias: str, claim: str, entries: Sequence[OutboxEntry]) -> Relayed:
    """Send rows that `claim` has; those that the store takes are deleted. Also for who wrote them with a claim."""
    _follow_renamed_pools(entries)
    answers = _send(entries)
    sent = [entry for entry in entries if _taken(answers[entry.pk])]
    rows(alias).filter(pk__in=[entry.pk for entry in sent]).delete()
    refused = put_off = 0
    later: dict[tuple[int, str], list[int]] = {}
    for entry in entries:
        answer = answers[entry.pk]
        if isinstance(answer, StoreError):
            later.setdefault((entry.tries, str(answer)), []).append(entry.pk)
            put_off += 1
        elif answer.outcome == "conflict":
            _refuse(alias, entry, answer)
            refused += 1
        elif answer.outcome in FRONT_DOOR:
            wait = timedelta(milliseconds=answer.wait_ms)
            rows(alias).filter(pk=entry.pk, claim=claim).update(
                due=timezone.now() + wait, error=FRONT_DOOR[answer.outcome], claim=""
            )
            put_off += 1
        elif answer.outcome in {"enqueued", "parked"}:
            _announce(entry)
    for (tries, error), keys in later.items():
        due = timezone.now() + timedelta(seconds=min(PAUSE_MAX_S, 2.0 ** min(tries - 1, 10)))
        rows(alias).filter(pk__in=keys, claim=claim).update(due=due, error=error, claim="")
        if number := repeats.due(("put off", error), len(keys)):
            logger.warning("Jobs stay in the outbox: %s", error, extra={"database": alias, "put_off": number})
    return Relayed(sent=len(sent), refused=refused, put_off=put_off)


def send_trees_with(tenant: str) -> int:
    """Sends now what the outboxes keep of other tenants' trees in which this one has jobs; how many rows are left.

    Those that the store refused for good go. Raises DatabaseError.
    """
    left = 0
    for alias in served():
        claim, keys = new_id(), shared_trees(alias, tenant)
        if not keys:
            continue
        kept = rows(alias).filter(pk__in=keys)
        kept.filter(state=kept.model.State.REFUSED).delete()
        kept.update(claim=claim, due=timezone.now() + timedelta(seconds=CLAIM_S), tries=F("tries") + 1)
        for key in keys:  # a tree may be large
            send_claimed(alias, claim, list(kept.filter(pk=key)))
        left += len(shared_trees(alias, tenant))
    return left


def shared_trees(alias: str, tenant: str) -> list[int]:
    """The rows of a database that keep other tenants' trees in which this one has jobs."""
    found = rows(alias).filter(job__has_key=TREE).exclude(tenant=tenant).values_list("pk", f"job__{TENANTS}")
    return [key for key, tenants in found.iterator() if tenant in tenants]


def _claim(alias: str, claim: str, limit: int) -> list[OutboxEntry]:
    """The rows that this pass has won, in the order in which they were kept."""
    from queueapp.models import OutboxEntry

    now = timezone.now()
    due = rows(alias).filter(state=OutboxEntry.State.WAITING, due__lte=now)
    keys = list(due.order_by("pk").values_list("pk", flat=True)[:limit])
    if not keys:
        return []
    # Who decides is this UPDATE: of two passes that read the same keys, the second finds the rows no longer due.
    with transaction.atomic(using=alias):
        if connections[alias].features.has_select_for_update_skip_locked:
            # Rows that another pass is claiming just now are left to it, instead of both waiting for each other.
            locked = due.filter(pk__in=keys).order_by("pk").select_for_update(skip_locked=True)
            keys = list(locked.values_list("pk", flat=True))
        due.filter(pk__in=keys).update(claim=claim, due=now + timedelta(seconds=CLAIM_S), tries=F("tries") + 1)
    return list(rows(alias).filter(pk__in=keys, claim=claim).order_by("pk"))


def _follow_renamed_pools(entries: Sequence[OutboxEntry]) -> None:
    """A pool may have another name since its row was written, in whichever database; its code, in the id, stays.

    A row whose id never was one of its pool is left as it is: `job_of` refuses it.
    """
    codes = {entry.job_id.partition(".")[0] for entry in entries}
    with suppress(StoreError):  # each send meets it again, and answers with it
        names = shards.pools_of(codes)
        for entry in entries:
            code = entry.job_id.partition(".")[0]
            if shards.keys(entry.pool).code == code:
                entry.pool = names.get(code, entry.pool)


def _send(entries: Sequence[OutboxEntry]) -> dict[int, Answer]:
    """An answer for each row, by its key. What is wrong with one row costs no other its turn."""
    answers: dict[int, Answer] = {}
    pools: dict[str, list[tuple[int, NewJob]]] = {}
    trees: list[tuple[int, str, KeptTree]] = []
    for entry in entries:
        try:
            if (tree := tree_of(entry)) is not None:
                trees.append((entry.pk, entry.pool, tree))
            else:
                pools.setdefault(entry.pool, []).append((entry.pk, job_of(entry)))
        except Exception as error:
            # As `repr` spells it, so that it can be kept in any database.
            reason = repr(error)[:REASON_MAX]
            answers[entry.pk] = StoreError(
                f"The row cannot be read by this release: {reason}. Update the scheduler, or delete the row."
            )
    gone: StoreError | None = None
    for pool, jobs in pools.items():
        # All pools are in one store: where it is away for one, the others need not wait for it, too.
        found: Sequence[Answer] = [gone] * len(jobs) if gone else _send_pool(pool, [job for _, job in jobs])
        answers.update({key: answer for (key, _), answer in zip(jobs, found, strict=True)})
        gone = gone or next((answer for answer in found if isinstance(answer, StoreError) and is_away(answer)), None)
    for key, pool, tree in trees:
        answer = gone or _send_tree(pool, tree)
        gone = answer if isinstance(answer, StoreError) and is_away(answer) else None
        answers[key] = answer
    return answers


def _send_tree(pool: str, tree: KeptTree) -> Answer:
    """All of it or nothing; what other pools shall run stands in the store by this, for `duties.families`."""
    try:
        planted = shards.store(pool).enqueue_flow(tree.nodes, tree.away)
    except StoreError as error:
        return error
    except Exception as error:
        logger.exception("A tree of the outbox was not sent", extra={"pool": pool})
        return StoreError(f"Sending failed: {error!r}")
    return Enqueued(outcome=planted.outcome, id=planted.id, wait_ms=planted.wait_ms)


def _send_pool(pool: str, jobs: Sequence[NewJob]) -> Sequence[Answer]:
    try:
        answers: Sequence[Answer] = send_each([(pool, job) for job in jobs])
    except Exception as error:
        logger.exception("A pass of the outbox failed", extra={"pool": pool})
        answers = [StoreError(f"Sending failed: {error!r}")] * len(jobs)
    if len(jobs) > 1 and any(type(answer) is StoreError for answer in answers):
        # A fault of which nothing is known: perhaps one job's, so each is sent alone.
        return [_send_pool(pool, [job])[0] for job in jobs]
    return answers


def _taken(answer: Answer) -> bool:
    return isinstance(answer, Enqueued) and answer.outcome not in {"conflict", *FRONT_DOOR}


def _refuse(alias: str, entry: OutboxEntry, answer: Enqueued) -> None:
    from queueapp.models import OutboxEntry as Entries

    other = shards.keys(entry.pool).public_id(answer.id)
    error = IdempotencyConflict(
        f"The idempotency key of this job already stands for job {other}, which has other arguments."
    )
    rows(alias).filter(pk=entry.pk).update(state=Entries.State.REFUSED, error=str(error), claim="")
    facts = {"job_id": entry.job_id, "task": entry.task, "tenant": entry.tenant, "code": error.code}
    logger.error("A job of the outbox was refused: %s", error, extra=facts)
    metrics.enqueue_failed(entry.pool, error.code)
    try:
        handle = _handle(entry)
        handle._set(state=DEFERRED, outcome=DEFERRED, enqueued_at=None, send_error=error)
        sender = _sender(handle)
    except Exception:
        # The row says what became of it; the rows behind it must not wait for receivers of a signal.
        logger.exception("A refused job of the outbox was not announced", extra=facts)
        return
    enqueue_failed.send_robust(sender=sender, task_result=handle, error=error, payload=bytes(entry.payload), kept=False)


def _announce(entry: OutboxEntry) -> None:
    """Send `task_enqueued`, of every job of a tree. The row is gone already, so what is wrong here is only told."""
    try:
        for handle in _handles(entry):
            task_enqueued.send_robust(sender=_sender(handle), task_result=handle)
    except Exception:
        logger.exception("A job of the outbox was sent, but not announced", extra={"job_id": entry.job_id})


def _handles(entry: OutboxEntry) -> Iterator[DuctorResult]:
    if (tree := tree_of(entry)) is None:
        yield _handle(entry)
        return
    nodes = list(tree.all_nodes(entry.job_id[:-LENGTH]))
    names = shards.pools_of({public_id.partition(".")[0] for public_id, _ in nodes})
    for public_id, node in nodes:
        pool = names.get(public_id.partition(".")[0], entry.pool)
        yield _handle_of(node.job, pool, None, State.WAITING if node.waits else None)


def _handle(entry: OutboxEntry) -> DuctorResult:
    """The job as its sender would have held it."""
    return _handle_of(job_of(entry), entry.pool, entry.job["backend"])


def _handle_of(job: NewJob, pool: str, backend: str | None, state: State | None = None) -> DuctorResult:
    at_ms = now_ms()
    due_ms = at_ms + job.delay_ms if job.delay_ms else job.due_ms
    record = JobRecord(
        id=job.id,
        state=state or (State.SCHEDULED if due_ms > at_ms else State.PENDING),
        task=job.task,
        tenant=job.tenant,
        lane=job.lane,
        priority=job.priority,
        submitted_ms=at_ms,
        due_ms=due_ms,
        deadline_ms=job.deadline_ms,
        payload=job.payload,
    )
    handle = result_from_record(record, pool, backend)
    handle._set(outcome="enqueued")
    return handle


def _sender(handle: DuctorResult) -> type:
    return type(handle.task.get_backend())


def forget_refused(before: datetime, most: int) -> int:
    """Removes rows of all databases whose jobs the store refused for good before this moment, at most `most` in each.

    Answers the largest number that went from one. Raises DatabaseError.
    """
    from queueapp.models import OutboxEntry

    largest = 0
    for alias in served():
        old = rows(alias).filter(state=OutboxEntry.State.REFUSED, updated__lt=before)
        ids = list(old.order_by("id").values_list("id", flat=True)[:most])
        if ids:
            rows(alias).filter(id__in=ids).delete()
        largest = max(largest, len(ids))
    return largest
