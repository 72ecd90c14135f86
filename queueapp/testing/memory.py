"""Shards in memory: what stands in for the store under `recorded()` and `immediate()`, so that no server is needed.

They take jobs, know idempotency keys, debounce and singletons, hand jobs out in the order in which they came, and keep
what became of each. They know neither weights, ceilings nor rates: fairness is for the real store. `shards.stand_in` is
a `Memory` while such a test runs. One lock for all, because a host's threads may enqueue.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from queueapp.errors import WaitTimeout
from queueapp.moments import now_ms
from queueapp.producer.saved import CHECKPOINT
from queueapp.states import Outcome, State
from queueapp.store import shards
from queueapp.store.family_records import Away, Mode, Node, Planted
from queueapp.store.records import (
    Completed,
    Cycle,
    DebounceUse,
    Enqueued,
    Failed,
    Finish,
    LeasedJob,
    NewJob,
    Returned,
    SingletonUse,
    Word,
)
from queueapp.store.views import ErrorRecord, JobRecord
from queueapp.testing.blocking import StoreBlocked
from queueapp.testing.families import MemoryFamilies
from queueapp.testing.rows import Row, Window


class MemoryShard(MemoryFamilies):
    """One pool. It has the methods of the store that producers and workers call, and those that read a job."""

    def __init__(self, pool: str, memory: Memory | None = None) -> None:
        super().__init__()
        self.pool = pool
        memory = memory or Memory()
        self.others = memory.shard
        self._lock = memory.lock
        self._rows: dict[str, Row] = {}
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}
        """(tenant, digest of an idempotency key) → the id of its job, and the fingerprint of the call."""
        self._windows: dict[tuple[str, str], Window] = {}
        """(tenant, digest of a debounce) → what it is waiting with."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise StoreBlocked(
            f"recorded() and immediate() keep jobs in memory, where there is no {name!r}. A test of this needs a real "
            "store: the fixture `ductor`, or queueapp.testing.throwaway_store()."
        )

    # -- for producers ---------------------------------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        with self._lock:
            return [self._take(job) for job in jobs]

    def _take(self, job: NewJob) -> Enqueued:
        key = (job.tenant, job.idempotency)
        if job.id not in self._rows and job.idempotency and key in self._keys:
            first, fingerprint = self._keys[key]
            return Enqueued(outcome="exists" if fingerprint == job.fingerprint else "conflict", id=first)
        if job.id not in self._rows:
            now = now_ms()
            due_ms = now + job.delay_ms if job.delay_ms else job.due_ms
            if job.debounce is not None:
                if (debounced := self._debounce(job, job.debounce, now, due_ms)) is not None:
                    if job.idempotency:
                        self._keys[key] = (debounced.id, job.fingerprint)
                    return debounced
                due_ms = max(due_ms, now + job.debounce.period_ms)
            if job.singleton is not None and (skipped := self._skip(job, job.singleton, now)) is not None:
                return skipped
            if job.debounce is not None:
                self._windows[job.tenant, job.debounce.digest] = Window(id=job.id, first_ms=now)
            if job.idempotency:
                self._keys[key] = (job.id, job.fingerprint)
            state = State.SCHEDULED if due_ms > now else State.PENDING
            self._rows[job.id] = Row(job=job, state=state, submitted_ms=now, due_ms=due_ms)
        return Enqueued(outcome="enqueued", id=job.id)

    def _debounce(self, job: NewJob, use: DebounceUse, now: int, due_ms: int) -> Enqueued | None:
        """A job of the same window that waits takes over the arguments; None when there is none."""
        window = self._windows.get((job.tenant, use.digest))
        row = self._rows.get(window.id) if window is not None else None
        if window is None or row is None or not row.waits or row.attempts:
            return None
        row.job = replace(row.job, payload=job.payload)
        if row.state is State.SCHEDULED:
            latest = window.first_ms + use.most_ms if use.most_ms else now + use.period_ms
            row.due_ms = max(due_ms, min(now + use.period_ms, latest))
        return Enqueued(outcome="debounced", id=window.id)

    def _skip(self, job: NewJob, use: SingletonUse, now: int) -> Enqueued | None:
        """Another job has the singleton and stands for this one; None when this one is to be."""
        held = [row for row in self._rows.values() if row.job.singleton and row.job.singleton.digest == use.digest]
        waiting = [row for row in held if row.waits]
        running = [row for row in held if row.state is State.ACTIVE]
        if use.mode == "skip" or (use.mode == "next" and waiting):
            return next((Enqueued(outcome="skipped", id=row.job.id) for row in waiting + running), None)
        for row in waiting:
            row.end(Outcome.REPLACED, now)
        for row in running if use.mode == "replace" else ():
            row.cancelling_ms = row.cancelling_ms or now
        return None

    def cancel(self, ids: Sequence[str]) -> list[str]:
        with self._lock:
            return [self._cancel(self._rows.get(job_id)) for job_id in ids]

    def _cancel(self, row: Row | None) -> str:
        if row is None:
            return "gone"
        if row.waits or row.state is State.WAITING:
            row.end(Outcome.CANCELLED, now_ms())
            self.cancel_children(row)
            self._tell(row)
            return "cancelled"
        if row.state is not State.ACTIVE:
            return "already"
        row.cancelling_ms = row.cancelling_ms or now_ms()
        return "stopping"

    def await_result(self, job_id: str, waiter: str) -> bool:
        row = self._rows.get(job_id)
        if row is not None and (row.waits or row.state is State.WAITING):
            raise WaitTimeout(
                f"Job {job_id} does not run while you wait: recorded() runs nothing, immediate() nothing that is due "
                "later. Run it with queueapp.testing.drain()."
            )
        return True

    # -- for readers -----------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> JobRecord | None:
        with self._lock:
            row = self._rows.get(job_id)
            return row.record() if row is not None else None

    def jobs(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return [self.job(job_id) for job_id in ids]

    def checkpoint(self, job_id: str) -> bytes | None:
        row = self._rows.get(job_id)
        return row.checkpoint if row is not None else None

    # -- for workers -----------------------------------------------------------------------------------------------

    def lease(self, job_id: str, worker: str) -> LeasedJob | None:
        """This job, whenever it is due; None when it does not wait any more."""
        with self._lock:
            row = self._rows.get(job_id)
            return row.lease(worker) if row is not None and row.waits else None

    def cycle(
        self,
        worker: str,
        seq: int,
        *,
        want: int,
        begin: int,
        lease_ms: int,
        finished: Sequence[Finish] = (),
        extend: Sequence[tuple[str, int]] = (),
        begun: Sequence[tuple[str, int]] = (),
    ) -> Cycle:
        with self._lock:
            words = [self.finish(finish) for finish in finished]
            runnable = self._runnable(now_ms())
            leased = [row.lease(worker) for row in runnable[:want]]
            due = self.next_due_ms()
            return Cycle(
                jobs=leased,
                runnable=len(runnable) > want,
                next_due_ms=-1 if due is None else max(0, due - now_ms()),
                now_ms=now_ms(),
                finished=words,
                lost=[],
                cancelled=[
                    row.job.id
                    for row in self._rows.values()
                    if row.cancelling_ms and row.state is State.ACTIVE and row.worker == worker
                ],
            )

    def finish(self, finish: Finish) -> Word:
        """What a run reports, as the store takes it."""
        with self._lock:
            row = self._rows[finish.id]
            if row.state is not State.ACTIVE or row.attempts != finish.attempts:
                return "stale"
            row.charged = max(1.0, finish.cost or row.job.cost or finish.run_ms)
            if row.cancelling_ms:
                if isinstance(finish, Failed):
                    self._note(row, finish)
                row.end(Outcome.CANCELLED, now_ms())
                self._tell(row)
                return "cancelled"
            if isinstance(finish, Completed):
                row.result = finish.result
                row.end(Outcome.COMPLETED, now_ms())
                self._tell(row)
                return "done"
            return self._fail(row, finish)

    def _note(self, row: Row, failed: Failed) -> int:
        now, detail = now_ms(), json.loads(failed.error)
        row.errors.append(
            ErrorRecord(
                kind="error",
                attempt=row.attempts,
                worker=row.worker,
                started_ms=row.leased_ms,
                at_ms=now,
                detail=detail,
            )
        )
        return now

    def _fail(self, row: Row, failed: Failed) -> Word:
        now = self._note(row, failed)
        if failed.retry_ms is None or len(row.errors) >= row.job.max_attempts:
            row.state, row.reason, row.ended_ms = State.DEAD, failed.reason, now
            self._tell(row)
            return "dead"
        row.state, row.due_ms = State.SCHEDULED, now + failed.retry_ms
        return "retry"

    def partition_requeue(self, returned: Sequence[Returned]) -> list[Word]:
        with self._lock:
            return [self._give_back(self._rows[job.id]) for job in returned]

    def _give_back(self, row: Row) -> Word:
        row.charged = 0
        if row.cancelling_ms:
            row.end(Outcome.CANCELLED, now_ms())
            self._tell(row)
            return "cancelled"
        row.state = State.PENDING
        return "done"

    def save(self, job_id: str, attempts: int, fields: Mapping[str, bytes]) -> Word:
        with self._lock:
            row = self._rows[job_id]
            if row.state is not State.ACTIVE or row.attempts != attempts:
                return "stale"
            row.data.update({name: value for name, value in fields.items() if name != CHECKPOINT})
            row.checkpoint = fields.get(CHECKPOINT, row.checkpoint)
            return "done"

    def register(self, worker: str, info: Mapping[str, str], ttl_ms: int, channel: str = "") -> bool:
        return bool(channel)

    def forget(self, worker: str) -> int:
        return 0

    def next_due_ms(self) -> int | None:
        """When the next scheduled job is due; None when none is."""
        return min((row.due_ms for row in self._rows.values() if row.state is State.SCHEDULED), default=None)

    def promote(self, at_ms: int) -> None:
        """Make runnable what is due at this moment, which may be still to come; what has expired by then ends."""
        with self._lock:
            for row in self._rows.values():
                expires = row.job.expires_after_ms
                if row.waits and expires and not row.attempts and at_ms > row.submitted_ms + expires:
                    row.end(Outcome.EXPIRED, now_ms())
                    self._tell(row)
                elif row.state is State.SCHEDULED and row.due_ms <= at_ms:
                    row.state = State.PENDING

    def _runnable(self, now: int) -> list[Row]:
        self.promote(now)
        return [row for row in self._rows.values() if row.state is State.PENDING]


class AsyncShard:
    """The same shard for asynchronous callers. Nothing here waits for anything."""

    def __init__(self, shard: MemoryShard) -> None:
        self._shard = shard

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._shard.enqueue(jobs)

    async def enqueue_flow(self, nodes: Sequence[Node], away: Sequence[Away] = (), mode: Mode = "new") -> Planted:
        return self._shard.enqueue_flow(nodes, away, mode)

    async def cancel(self, ids: Sequence[str]) -> list[str]:
        return self._shard.cancel(ids)

    async def await_result(self, job_id: str, waiter: str) -> bool:
        return self._shard.await_result(job_id, waiter)

    async def read_job(self, job_id: str) -> JobRecord | None:
        return self._shard.job(job_id)

    async def read_jobs(self, ids: Sequence[str]) -> list[JobRecord | None]:
        return self._shard.jobs(ids)


class Memory:
    """Every pool's shard, made when first asked for. It is `shards.stand_in` while a test records."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Of all shards: the end of a child in one is the release of a parent in another."""
        self._shards: dict[str, MemoryShard] = {}

    def shard(self, pool: str) -> MemoryShard:
        with self.lock:
            if pool not in self._shards:
                self._shards[pool] = MemoryShard(pool, self)
            return self._shards[pool]

    def take_released(self) -> list[str]:
        """Parents that may run now, each told of once."""
        with self.lock:
            found = [job_id for shard in self._shards.values() for job_id in shard.released]
            for shard in self._shards.values():
                shard.released.clear()
            return found

    # Any: a shard in memory has of a store's methods those that producers, workers and readers of a job call.
    def store(self, pool: str) -> Any:
        return self.shard(pool)

    def async_store(self, pool: str) -> Any:
        return AsyncShard(self.shard(pool))

    def reads(self, pool: str) -> Any:
        return self.shard(pool)

    def pools(self) -> dict[str, str]:
        return {pool: shards.keys(pool).code for pool in self._shards}
