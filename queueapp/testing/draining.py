"""`drain()`: runs what waits, in the calling thread and on its database connections, and raises what the tasks raised.

It is a worker of one slot without threads: it leases with the worker's own `Line`, runs `worker.attempt.run_one`, and
reports to the store, so that attempts, retries, dead letters and results become what they would become in earnest. The
store is whichever is active: that of `throwaway_store()`, or the memory of `recorded()` and `immediate()`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from queueapp.errors import DuctorError, StoreError
from queueapp.names import SYSTEM_TENANT
from queueapp.outage import Outage
from queueapp.producer import deaths
from queueapp.producer.backoff import Retry
from queueapp.producer.results import DuctorResult, result_from_record
from queueapp.store import families, shards
from queueapp.store.ids import new_id
from queueapp.store.records import Failed
from queueapp.store.store import Store
from queueapp.sync import delivery
from queueapp.testing import deferred
from queueapp.testing.memory import MemoryShard
from queueapp.testing.running import LEASE_MS, run
from queueapp.worker.line import Line
from queueapp.worker.slots import Held

logger = logging.getLogger(__name__)

MAX_JOBS = 1000
"""So many runs are taken for a task that enqueues itself for ever, unless the test says how many it wants."""


class DrainLimit(DuctorError, AssertionError):
    """So many jobs ran and there were still more; a task that enqueues itself goes on for ever."""

    code = "drain_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What a drain did. `results` has one entry for each run, in order: a job that was tried twice is there twice.

    Wake-ups of flows have run, too, and are in neither list nor counts.
    """

    results: Sequence[DuctorResult]
    succeeded: int
    failed: int
    """Runs that raised, whether or not another attempt follows."""

    def __len__(self) -> int:
        return len(self.results)


def drain(
    pool: str | None = None,
    *,
    max_jobs: int | None = None,
    raise_on_failure: bool = True,
    include_scheduled: bool = False,
    until: datetime | None = None,
) -> Drained:
    """Run everything that can run now, in one pool or in all, until nothing is left or `max_jobs` have run.

    What these jobs enqueue runs, too. With `raise_on_failure` the first exception of a body is raised as it is, once
    the store has its outcome; a `Retry` only when no attempt is left. Jobs that are due later, attempts after a backoff
    included, run with `until=` up to that moment, or all with `include_scheduled=True`, in the order of their time and
    without waiting for it. Without `max_jobs` more than 1,000 runs raise DrainLimit.
    """
    worker = f"drain-{new_id()}"
    horizon_ms = _horizon_ms(include_scheduled, until)
    lines: dict[str, Line] = {}
    results: list[DuctorResult] = []
    in_force: list[delivery.Delivery] = []
    failures = ran = 0
    try:
        while True:
            deferred.send()
            if shards.stand_in is None:
                # Weights and pauses that the test saved come into force, too, where there is a store for them.
                in_force += delivery.deliver_now(except_for=in_force)
            for name in [pool] if pool is not None else sorted(shards.pools()):
                if name not in lines:
                    lines[name] = Line(name, shards.store(name), worker, lease_ms=LEASE_MS, outage=NoOutage(logger))
            held = _lease(lines)
            if held is None:
                if relay(list(lines)):
                    continue
                if horizon_ms and _promote_next(lines, worker, horizon_ms):
                    continue
                break
            if ran >= MAX_JOBS if max_jobs is None else len(results) >= max_jobs:
                held.line.give_up(held)
                if max_jobs is not None:
                    break
                raise DrainLimit(
                    f"{MAX_JOBS} jobs have run and {held.job.task} is next: does a task enqueue itself? Say "
                    "drain(max_jobs=...) for how many are wanted."
                )
            error = _run(held)
            ran += 1
            result = _result(held)
            if held.job.tenant != SYSTEM_TENANT:
                results.append(result)
                failures += error is not None
            if error is not None and raise_on_failure and (result.is_finished or not isinstance(error, Retry)):
                raise error
    finally:
        for line in lines.values():
            with suppress(StoreError):  # which has been raised already
                line.flush()
                line.forget()
    return Drained(results=tuple(results), succeeded=len(results) - failures, failed=failures)


class NoOutage(Outage):
    """A worker waits for a store that is away; a test is told."""

    def failed(self, who: str, error: Exception) -> float:
        raise error


async def adrain(pool: str | None = None, **options: Any) -> Drained:
    """`drain` for asynchronous tests; bodies run in the thread of the test's synchronous half."""
    return await sync_to_async(drain)(pool, **options)


def relay(pools: Sequence[str]) -> bool:
    """What schedulers do for parents and children: whether any pool had something to say to another, or of parents that
    died of a child.
    """
    relayed = 0
    for pool in pools:
        cursor, store = "", shards.store(pool)
        while True:
            done = families.share(pool, store, cursor, deaths.announce)
            relayed, cursor = relayed + done.relayed, done.cursor
            if done.fault is not None:
                raise done.fault
            if not cursor:
                break
    return relayed > 0


def _lease(lines: dict[str, Line]) -> Held | None:
    """The next job, from the pool that was asked longest ago."""
    for line in sorted(lines.values(), key=lambda line: line.asked_at):
        for held in line.exchange(1, 1):
            return held
    return None


def _run(held: Held) -> BaseException | None:
    line = held.line
    try:
        outcome, error = run(held)
    except BaseException:
        line.give_up(held)
        raise
    line.held.pop(held.job.id, None)
    if outcome is not None:
        line.finished.append(outcome)
    line.exchange(0, 0)
    if isinstance(outcome, Failed) and error is None:
        raise AssertionError(f"{held.job.task} failed without an exception: {outcome!r}")
    return error


def _result(held: Held) -> DuctorResult:
    record = shards.reads(held.line.pool).job(held.job.id)
    if record is None:
        raise AssertionError(f"Job {held.public_id} is gone right after its run.")
    return result_from_record(record, held.line.pool)


def _horizon_ms(include_scheduled: bool, until: datetime | None) -> int:
    """Up to which moment jobs that are due later run; 0 = none of them."""
    if until is not None:
        moment = until if timezone.is_aware(until) else timezone.make_aware(until)
        return round(moment.timestamp() * 1000)
    return 2**53 if include_scheduled else 0


def _promote_next(lines: dict[str, Line], worker: str, horizon_ms: int) -> bool:
    """Make runnable what is due next in all pools, as if its time had come; False when nothing is within reach."""
    due = [moment for name in lines if (moment := _next_due_ms(name, worker)) is not None]
    at_ms = min(due, default=horizon_ms + 1)
    if at_ms > horizon_ms:
        return False
    for name in lines:
        _promote(name, at_ms)
    return True


def _next_due_ms(pool: str, worker: str) -> int | None:
    store = shards.store(pool)
    if isinstance(store, MemoryShard):
        return store.next_due_ms()
    look = store.check_and_lease(f"{worker}-look-{new_id()}", 1, want=0, begin=0, lease_ms=LEASE_MS)
    return None if look.next_due_ms < 0 else look.now_ms + look.next_due_ms


def _promote(pool: str, at_ms: int) -> None:
    store = shards.store(pool)
    if isinstance(store, MemoryShard):
        store.promote(at_ms)
    else:
        Store(store.client, store.keys, clock_ms=lambda: at_ms).promote_due()
