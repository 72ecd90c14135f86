"""Sending jobs: from a task with arguments to the store's answer. Called by the backend, and by `bulk` in parts.

What can be refused without the store is refused by `preparation.prepare`. Then the job goes to its pool's store: at
once, or after commit (`transactions`). The asynchronous half uses the store's asynchronous client and never a thread;
it differs from the synchronous one in `await` alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, Protocol

from queueapp import metrics
from queueapp.compat import Task, task_enqueued
from queueapp.errors import BacklogFull, DuctorError, IdempotencyConflict, StoreError, Throttled
from queueapp.moments import moment
from queueapp.producer import matching, outbox, rows, transactions
from queueapp.producer.preparation import Prepared, prepare
from queueapp.producer.results import DuctorResult, result_from_record
from queueapp.producer.sending import Answer, asend_each, send_each
from queueapp.producer.tenancy import settle
from queueapp.signals import enqueue_failed
from queueapp.store import calls, shards
from queueapp.store.ids import made_ms
from queueapp.store.records import Enqueued, NewJob
from queueapp.store.views import JobRecord

logger = logging.getLogger(__name__)


Failure = tuple[Prepared, DuctorResult, DuctorError]
"""A job that its store did not take after commit, its handle, and why."""


def submit(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DuctorResult:
    """Enqueue one job, at once or after commit; the handle carries its id either way.

    Raises InvalidOption and its kin, UnserialisableArgument, PayloadTooLarge, IdempotencyConflict, Throttled,
    BacklogFull, StoreUnavailable, StoreMisconfigured. What the store refuses after commit is logged at ERROR and sent
    as `enqueue_failed`.
    """
    prepared = prepare(task, args, kwargs)
    rows.require_pool(prepared.pool)
    rows.require_tenant(prepared.job.tenant)
    if deferred := defer([prepared]):
        return deferred[0]
    answer = matching.send(prepared) or send_each([(prepared.pool, prepared.job)])[0]
    accepted = check(prepared, answer)
    if accepted.outcome in STAND_INS:
        return standing_in([Replay(prepared, accepted)])[0]
    result = prepared.result(accepted)
    announce(prepared, result)
    return result


async def asubmit(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> DuctorResult:
    """See `submit`."""
    if getattr(task, "tenant", None) is None:
        await settle()
    prepared = prepare(task, args, kwargs)
    await rows.arequire_pool(prepared.pool)
    await rows.arequire_tenant(prepared.job.tenant)
    if deferred := defer([prepared]):
        return deferred[0]
    answer = await matching.asend(prepared) or (await asend_each([(prepared.pool, prepared.job)]))[0]
    accepted = check(prepared, answer)
    if accepted.outcome in STAND_INS:
        return (await astanding_in([Replay(prepared, accepted)]))[0]
    result = prepared.result(accepted)
    await aannounce(prepared, result)
    return result


# -- the store's answers -----------------------------------------------------------------------------------------


def check(prepared: Prepared, answer: Answer) -> Enqueued:
    """The answer of a job that was accepted or exists already; raises what the store refused."""
    if isinstance(answer, StoreError):
        raise answer
    if answer.outcome == "conflict":
        raise IdempotencyConflict(
            f"The idempotency key {prepared.task.idempotency_key!r} of tenant {prepared.job.tenant!r} stands for job "
            f"{shards.keys(prepared.pool).public_id(answer.id)}, which has other arguments. Use another key for other "
            "work; a key is free again after IDEMPOTENCY_TTL."
        )
    if answer.outcome not in ("enqueued", "exists"):
        metrics.front_door(prepared.pool, answer.outcome)
    if answer.outcome == "throttled":
        raise Throttled(
            f"{prepared.task.module_path} of tenant {prepared.job.tenant!r} came above a rate of the tenant, the lane "
            f"or a key: one more is accepted in {answer.wait_ms / 1000:g} s. Call again then, or have such jobs wait "
            'with on_throttle="park".',
            retry_after=answer.wait_ms / 1000,
        )
    if answer.outcome == "backlog_full":
        raise BacklogFull(
            f"Tenant {prepared.job.tenant!r}, or the pool {prepared.pool!r}, has as many waiting jobs as its "
            f"backlog_limit allows; at the pace at which they start there is room in about {answer.wait_ms / 1000:g} "
            "s.",
            retry_after=answer.wait_ms / 1000,
        )
    return answer


STAND_INS = frozenset({"exists", "debounced", "skipped"})
"""Outcomes of a job for which another one stands."""


class Replay(NamedTuple):
    """A job for which another one stands, by its idempotency key, its debounce or its singleton; and the store's
    answer, which names that one.
    """

    prepared: Prepared
    answer: Enqueued


def standing_in(replays: Sequence[Replay]) -> list[DuctorResult]:
    """The results of the jobs that stand for those, in order.

    What a singleton skipped has the arguments of the job that is there, all others have those of this call.
    The store is asked once for as many jobs of a pool as are sent at once. Of a job that is gone by then, or cannot be
    read just now, the result says what is known without.
    """
    records: dict[str, JobRecord | None] = {}
    for pool, ids in _read_together(replays):
        with suppress(StoreError):
            records.update(zip(ids, shards.reads(pool).jobs(ids), strict=True))
    return [_stood_for(replay, records.get(replay.answer.id)) for replay in replays]


async def astanding_in(replays: Sequence[Replay]) -> list[DuctorResult]:
    """See `standing_in`."""
    records: dict[str, JobRecord | None] = {}
    for pool, ids in _read_together(replays):
        with suppress(StoreError):
            records.update(zip(ids, await shards.async_store(pool).read_jobs(ids), strict=True))
    return [_stood_for(replay, records.get(replay.answer.id)) for replay in replays]


def _read_together(replays: Sequence[Replay]) -> Iterator[tuple[str, list[str]]]:
    """Pools, and ids of jobs that are read in one round trip."""
    pools: dict[str, dict[str, NewJob]] = {}
    for prepared, answer in replays:
        pools.setdefault(prepared.pool, {})[answer.id] = prepared.job
    for pool, jobs in pools.items():
        ids = iter(jobs)
        # What is there has the same arguments, so that it is as large as what was sent now.
        for batch in calls.batches(list(jobs.values())):
            yield pool, list(islice(ids, len(batch)))


def _stood_for(replay: Replay, record: JobRecord | None) -> DuctorResult:
    prepared, answer = replay
    if record is None:
        return prepared.result(answer)
    result = result_from_record(record, prepared.pool, prepared.task.backend)
    result._set(outcome=answer.outcome)
    if answer.outcome != "skipped":
        result._set(args=list(prepared.args), kwargs=dict(prepared.kwargs))
    return result


class Watcher(Protocol):
    """Follows every accepted job. A host's tests have one (`queueapp.testing`), nobody else does."""

    def accepted(self, prepared: Prepared, result: DuctorResult) -> None: ...

    async def aaccepted(self, prepared: Prepared, result: DuctorResult) -> None: ...


watcher: Watcher | None = None


def announce(prepared: Prepared, result: DuctorResult) -> None:
    """Send `task_enqueued`, once per accepted job. A receiver that raises is logged by Django and changes nothing."""
    task_enqueued.send_robust(sender=prepared.sender, task_result=result)
    if watcher is not None:
        watcher.accepted(prepared, result)


async def aannounce(prepared: Prepared, result: DuctorResult) -> None:
    """See `announce`. Only where asynchronous receivers wait to be awaited does Django take a thread for the others."""
    # The last part of an entry says whether the receiver is asynchronous, in every Django from 5.2 on.
    if any(entry[-1] for entry in task_enqueued.receivers):
        await task_enqueued.asend_robust(sender=prepared.sender, task_result=result)
    else:
        task_enqueued.send_robust(sender=prepared.sender, task_result=result)
    if watcher is not None:
        await watcher.aaccepted(prepared, result)


# -- after commit ------------------------------------------------------------------------------------------------


def defer(batch: Sequence[Prepared]) -> list[DuctorResult]:
    """Handles of jobs that go out after commit; none when they are to be sent now.

    All share the options `on_commit` and `database`.
    """
    handles: list[DuctorResult] = []
    task = batch[0].task
    if transactions.defer(lambda aliases: send_late(batch, handles, aliases), task.on_commit, task.database):
        handles += [prepared.deferred() for prepared in batch]
    return handles


def send_late(batch: Sequence[Prepared], handles: Sequence[DuctorResult], aliases: Sequence[str]) -> None:
    """Send what waited for the commits of `aliases`, and fill the handles. Never raises: the caller is gone.

    A handle whose idempotency key stands for an earlier job becomes that job's, id included. Jobs that the store could
    not take are kept in the outbox (`ON_COMMIT_FAILURE`).
    """
    waiting = list(zip(batch, handles, strict=True))
    if away := outbox.away():
        # The store was not there a moment ago: these are kept unasked, and only what cannot be kept asks again.
        failures = keep([(prepared, handle, away) for prepared, handle in waiting], aliases)
        waiting = [(prepared, handle) for prepared, handle, _ in failures]
    failed: list[Failure] = []
    for (prepared, handle), answer in zip(waiting, _try_send([prepared for prepared, _ in waiting]), strict=True):
        try:
            accepted = check(prepared, answer)
        except DuctorError as error:
            failed.append((prepared, handle, error))
        else:
            handle._set(
                id=shards.keys(prepared.pool).public_id(accepted.id),
                state=prepared.first_state(accepted),
                outcome=accepted.outcome,
                enqueued_at=moment(made_ms(accepted.id)),
            )
            if accepted.outcome not in STAND_INS:
                announce(prepared, handle)
    for prepared, handle, fault in keep(failed, aliases):
        failed_late(prepared, handle, fault, kept=False)


def _try_send(batch: Sequence[Prepared]) -> Sequence[Answer]:
    try:
        return send_each([(prepared.pool, prepared.late()) for prepared in batch])
    except Exception as error:
        jobs = [shards.keys(prepared.pool).public_id(prepared.job.id) for prepared in batch]
        logger.exception("Sending after commit failed", extra={"jobs": jobs})
        return [StoreError(f"Sending after commit failed: {error!r}")] * len(batch)


def keep(failures: Sequence[Failure], aliases: Sequence[str]) -> list[Failure]:
    """Give failed sends to the outbox; those that it did not keep."""
    kept = outbox.keep([(prepared, error) for prepared, _, error in failures], aliases)
    left = []
    taken: Counter[tuple[str, str]] = Counter()
    for prepared, handle, error in failures:
        if alias := kept.get(prepared.job.id):
            handle._set(outbox=alias)
            failed_late(prepared, handle, error, kept=True)
            taken[error.code, str(error)] += 1
        else:
            left.append((prepared, handle, error))
    for (code, reason), number in taken.items():
        # Not each of them: a busy site commits thousands while the store is away, and the rows say which.
        if number := outbox.repeats.due(("kept", code), number):
            facts = {"jobs": number, "code": code}
            logger.error("The outbox keeps jobs that the store did not accept after commit: %s", reason, extra=facts)
    return left


def failed_late(prepared: Prepared, handle: DuctorResult, error: DuctorError, *, kept: bool) -> None:
    handle._set(send_error=error)
    facts = {"job_id": handle.id, "task": prepared.job.task, "tenant": prepared.job.tenant, "code": error.code}
    # What is kept is told for all together (`keep`); what is lost, each.
    logger.log(logging.DEBUG if kept else logging.ERROR, "A job was not accepted after commit: %s", error, extra=facts)
    metrics.enqueue_failed(prepared.pool, error.code)
    enqueue_failed.send_robust(
        sender=prepared.sender, task_result=handle, error=error, payload=prepared.job.payload, kept=kept
    )
