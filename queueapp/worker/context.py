"""The context that a task with `takes_context=True` receives: Django's, and what a job of Ductor has beyond it.

Made for one run, in the slot's thread, and used there by the body. What it saves goes to the store at once, under the
lease: a run that has lost its lease saves nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from queueapp.codec import decode_result, encode_result
from queueapp.compat import TaskContext
from queueapp.conf import settings
from queueapp.errors import InvalidOption, LeaseLost, StoreError, StoreUnavailable, WaitsForChildren
from queueapp.fencing import Fence
from queueapp.producer import flows
from queueapp.producer.children import Children, read_children
from queueapp.producer.options import COST_MAX
from queueapp.producer.results import DuctorResult
from queueapp.producer.saved import CHECKPOINT, GIVEN, METADATA, PROGRESS, saved_metadata
from queueapp.producer.task import BoundTask, DuctorTask
from queueapp.store import shards
from queueapp.worker.slots import Held

logger = logging.getLogger(__name__)

RECORDED_WITHIN_S = 60.0
"""Longer than whoever enqueued a job asks the store for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(TaskContext):  # type: ignore[misc]  # the stubs do not know that TaskContext is frozen
    """Django's `TaskContext` (`task_result`, `attempt`), and the job's own facts and tools."""

    held: Held
    _saved_is_read: bool = field(default=False, init=False, repr=False)
    _checkpoint: bytes | None = field(default=None, init=False, repr=False)
    _checkpoint_is_read: bool = field(default=False, init=False, repr=False)
    _children: Children | None = field(default=None, init=False, repr=False)

    @property
    def attempt(self) -> int:
        """Which run this is, from 1: runs that failed or were lost count, leases that were given back unrun do not."""
        return self.held.job.errors + self.held.job.crashes + 1

    @property
    def fence(self) -> Fence:
        """A number that grows with every lease of the job. Hand it to whatever must refuse an older run's writes.

        `queueapp.fencing` does so for rows of the host's database.
        """
        return Fence(self.held.job.attempts, job_id=self.held.job.id)

    @property
    def tenant(self) -> str:
        return self.held.job.tenant

    @property
    def lane(self) -> str:
        return self.held.job.lane

    @property
    def is_cancelled(self) -> bool:
        """True once the job was cancelled, its lease is lost or the worker stops waiting: end soon.

        What the body does with it is its own business; its result will not be kept. An `async def` body is also sent
        CancelledError when the job is cancelled.
        """
        return self.held.cancelled or self.held.lost

    def set_cost(self, cost: float) -> None:
        """The true cost of this run, in the pool's unit. Its tenant is charged this, whatever was declared or learnt.

        The last call counts, and it counts for a run that fails, too.
        """
        given: object = cost
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 1 <= given <= COST_MAX:
            raise InvalidOption(f"set_cost({cost!r}): a cost is a number from 1 to {COST_MAX}.")
        self.held.cost = float(given)

    @property
    def metadata(self) -> dict[str, Any]:
        """What the job was given, or what its runs saved since; change it and call `save_metadata`.

        A later run asks the store once for what earlier ones saved, and raises StoreError where it cannot be asked.
        """
        self._read_saved()
        return self._metadata

    def save_metadata(self, metadata: Mapping[str, object] | None = None) -> bool:
        """Keeps `context.metadata` with the job, with the given values put into it first; readers see it at once.

        False when nothing was saved: the lease is gone, or the store is away. Raises UnserialisableArgument and
        ResultTooLarge.
        """
        return save(self.held, METADATA, self._merged(metadata))

    async def asave_metadata(self, metadata: Mapping[str, object] | None = None) -> bool:
        """See `save_metadata`; as for `aset_progress`."""
        await asyncio.to_thread(self._read_saved)
        return await asyncio.to_thread(save, self.held, METADATA, self._merged(metadata))

    @property
    def checkpoint(self) -> Any:
        """Where an earlier run of this job, or this one, said with `save_checkpoint` that it can be gone on from; None.

        As its JSON form, a fresh copy each time. A later run asks the store once, and raises StoreError where it cannot
        be asked.
        """
        if not self._checkpoint_is_read and self.held.job.attempts > 1:
            found = shards.reads(self.held.line.pool).checkpoint(self.held.job.id)
            object.__setattr__(self, "_checkpoint", found)
            object.__setattr__(self, "_checkpoint_is_read", True)
        return decode_result(self._checkpoint)

    def save_checkpoint(self, value: object) -> bool:
        """Keeps a value for the next run of this job, should there be one: after an error, or when this worker is lost.

        It replaces the one before and goes when the job ends; a dead letter keeps it, so that a redrive goes on there.
        Arguments and results fit, up to MAX_RESULT_BYTES. False when nothing was saved: the lease is gone, or the
        store is away. Raises UnserialisableArgument and ResultTooLarge.
        """
        encoded = self._encoded(CHECKPOINT, value)
        return self._kept(encoded, save(self.held, CHECKPOINT, encoded))

    async def asave_checkpoint(self, value: object) -> bool:
        """See `save_checkpoint`; as for `aset_progress`."""
        encoded = self._encoded(CHECKPOINT, value)
        return self._kept(encoded, await asyncio.to_thread(save, self.held, CHECKPOINT, encoded))

    def _kept(self, checkpoint: bytes, saved: bool) -> bool:
        if saved:
            object.__setattr__(self, "_checkpoint", checkpoint)
            object.__setattr__(self, "_checkpoint_is_read", True)
        return saved

    def set_progress(self, done: float, total: float | None = None, message: str = "") -> bool:
        """Shows how far the job is. False when nothing was saved: the lease is gone, or the store is away."""
        return save(self.held, PROGRESS, self._encoded(PROGRESS, _progress(done, total, message)))

    async def aset_progress(self, done: float, total: float | None = None, message: str = "") -> bool:
        """See `set_progress`; for `async def` bodies, which share an event loop.

        The blocking method holds up all of them until the store has answered.
        """
        encoded = self._encoded(PROGRESS, _progress(done, total, message))
        return await asyncio.to_thread(save, self.held, PROGRESS, encoded)

    @property
    def children(self) -> Children:
        """What became of the jobs for which this one waited, in the order in which they were named; empty for a job
        that waited for none. Asks the store once, and raises StoreError where it cannot be asked.
        """
        if self._children is None:
            object.__setattr__(self, "_children", read_children(self.held.line.pool, self.held.job.id))
        assert self._children is not None
        return self._children

    def add_children(self, children: Sequence[flows.Tree | BoundTask]) -> NoReturn:
        """Adds children to this job, which waits for them from then on, and runs again when all of them have ended.

        This run is over with that: the body ends here, by WaitsForChildren, without an error and without a result. The
        next one finds them in `context.children`; with none at all it comes at once. Jobs as `enqueue_flow` takes them.
        Sent at once, also inside a transaction, as the run ends here. Raises LeaseLost when the job is not this run's
        any more, StoreError, and what `enqueue` raises for a job that cannot be one.
        """
        self._spawn(children)
        raise WaitsForChildren

    async def aadd_children(self, children: Sequence[flows.Tree | BoundTask]) -> NoReturn:
        """See `add_children`; as for `aset_progress`."""
        await asyncio.to_thread(self._spawn, children)
        raise WaitsForChildren

    def _spawn(self, children: Sequence[flows.Tree | BoundTask]) -> None:
        held, job = self.held, self.held.job
        if not _is_recorded(held):
            raise StoreUnavailable("The store has not confirmed this run yet, so that it can add no children.")
        pool = held.line.pool
        planned = flows.plan_children(pool, job.id, children)
        word = shards.store(pool).add_children(
            job.id, planned.nodes, planned.away, attempts=job.attempts, cost=held.cost
        )
        if word in ("stale", "gone"):
            raise LeaseLost(f"The run of job {held.public_id} has lost its lease; no children were added.")
        held.lost = True  # nothing that this run comes to later is its job's
        if word == "done":
            planned.settle(pool)

    @property
    def _metadata(self) -> dict[str, Any]:
        assert isinstance(self.task_result, DuctorResult)
        return self.task_result.metadata

    def _read_saved(self) -> None:
        job = self.held.job
        if self._saved_is_read or job.attempts == 1:
            return
        record = shards.reads(self.held.line.pool).job(job.id)
        saved = saved_metadata(record.data) if record is not None else None
        if saved is not None:
            self._metadata.clear()
            self._metadata.update(saved)
        object.__setattr__(self, "_saved_is_read", True)

    def _merged(self, metadata: Mapping[str, object] | None) -> bytes:
        self.metadata.update(metadata or {})
        return self._encoded(METADATA, self.metadata)

    def _encoded(self, name: str, value: object) -> bytes:
        task = self.task_result.task
        return (
            encode_result(
                value,
                max_bytes=settings.max_result_bytes,
                typed=name == CHECKPOINT and getattr(task, "typed", False),
                closed=getattr(task, "sensitive", False) is True,
                name=name,
            )
            or b"null"
        )


def save_given(held: Held, task: DuctorTask) -> None:
    """Keeps with its data the metadata that a job came with, because it ends without the payload that holds it.

    One call, for such jobs only and at each run: the same value under a name of its own, whatever earlier runs saved.
    """
    save(held, GIVEN, encode_result(task.metadata, closed=task.sensitive is True, name=METADATA) or b"{}")


def save(held: Held, name: str, encoded: bytes) -> bool:
    """Whether it was saved, under the lease. What a job tells of itself must not make it fail."""
    job = held.job
    if not _is_recorded(held):
        return False
    try:
        return held.line.store.save(job.id, job.attempts, {name: encoded}) == "done"
    except StoreError as error:
        logger.warning("Not saved: %s", error, extra={"job_id": held.public_id, "field": name})
        return False


def _is_recorded(held: Held) -> bool:
    """Whether the store has answered about a body that began before it was asked (`match`): until then nothing can be
    saved. Waited for, but not on an event loop, which may be what brings the answer."""
    if held.recorded is None or held.recorded.is_set():
        return True
    if asyncio._get_running_loop() is not None:
        return False
    return held.recorded.wait(RECORDED_WITHIN_S)


def _progress(done: float, total: float | None, message: str) -> dict[str, object]:
    return {"done": done, "total": total, "message": message}
