"""What a caller holds of a job: django.tasks' `TaskResult`, with Ductor's exact state and with waiting.

Built from a job that was just sent, from the store's record of it, or for a body that is about to run. A handle is
frozen for its holder; `refresh()`, `wait()` and the send after commit fill it, in the thread that calls them.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from queueapp.codec import decode_arguments, decode_result
from queueapp.compat import GenericResult, Task, TaskError, TaskResult, TaskResultStatus
from queueapp.conf import default_alias
from queueapp.errors import DuctorError, NotSentYet, UnknownTask
from queueapp.moments import moment
from queueapp.producer import waiting
from queueapp.producer.saved import PROGRESS, saved_metadata
from queueapp.producer.task import DuctorTask, R, find, unchecked
from queueapp.states import Outcome as Ending
from queueapp.states import State
from queueapp.store import shards, transit
from queueapp.store.following import next_id
from queueapp.store.ids import LENGTH, made_ms
from queueapp.store.records import LeasedJob
from queueapp.store.views import ErrorRecord, JobRecord

DEFERRED = "deferred"
"""The state of a job that is sent when its transaction commits."""

STATUSES: dict[State, TaskResultStatus] = {
    State.INGRESS: TaskResultStatus.READY,
    State.PENDING: TaskResultStatus.READY,
    State.READY: TaskResultStatus.READY,
    State.SCHEDULED: TaskResultStatus.READY,
    State.BACKLOG: TaskResultStatus.READY,
    State.WAITING: TaskResultStatus.READY,
    State.MOVING: TaskResultStatus.READY,
    State.ACTIVE: TaskResultStatus.RUNNING,
    State.DEAD: TaskResultStatus.FAILED,
}
ENDINGS: dict[Ending | None, str] = {
    Ending.CANCELLED: "queueapp.errors.JobCancelled",
    Ending.EXPIRED: "queueapp.errors.JobExpired",
    Ending.DISCARDED: "queueapp.errors.JobDiscarded",
    Ending.REPLACED: "queueapp.errors.JobReplaced",
}
"""How a job ended without success → the class of its TaskError."""

_REFRESHED = (
    "errors",
    "_return_value",
    "finished_at",
    "started_at",
    "last_attempted_at",
    "status",
    "enqueued_at",
    "worker_ids",
    "state",
    "outcome",
    "reason",
    "metadata",
    "cancelling",
    "moved_to",
    "progress",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuctorResult(GenericResult[..., R]):  # type: ignore[misc]  # the stubs do not know that TaskResult is frozen
    """A job as its caller sees it. `status` is django.tasks' word, `state` and `outcome` are Ductor's."""

    state: str = State.PENDING.value
    """One of `State`; deferred until the transaction around the call has committed."""
    outcome: str = ""
    """What enqueueing gave (`store.records.Entry`, or deferred), and in the end one of `states.Outcome`."""
    reason: str = ""
    """Why a dead letter died: error, worker_lost, unknown_task, or what an operator gave."""
    send_error: DuctorError | None = None
    """Why the job was not accepted after commit; unless the outbox keeps it, it does not exist."""
    outbox: str = ""
    """The database whose outbox keeps the job until a scheduler can send it; "" in every other case."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """What the option `metadata` gave, or what the body saved since. A job that ended without running has none."""
    moved_to: str = ""
    """The id under which it goes on since it was moved to another pool, to which this one leads; else ""."""
    cancelling: bool = False
    """It runs, and was told to stop: `state` is active still, and in the end its outcome will be cancelled."""
    progress: dict[str, Any] | None = None
    """What the body told last with `set_progress`: `done`, `total` and `message`; None when it told nothing."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: object) -> type[DuctorResult]:
            return cls  # for annotations that are looked at

    def __post_init__(self) -> None:
        """Nothing: arguments come from a payload, in JSON's own types already or as `typed` keeps them."""

    def refresh(self) -> None:
        """Read the job anew; does nothing before it is sent. TaskResultDoesNotExist: retention has removed it.

        Where the outbox keeps the job, this looks whether the store has it by now.
        """
        if self.outbox:
            _outbox().refresh(self)
        elif self.state != DEFERRED:
            self._take(self.task.get_backend().get_result(self.id))

    async def arefresh(self) -> None:
        """See `refresh`."""
        if self.outbox:
            await _outbox().arefresh(self)
        elif self.state != DEFERRED:
            self._take(await self.task.get_backend().aget_result(self.id))

    def wait(self, timeout: float | timedelta | None = None) -> DuctorResult[R]:
        """Block until the job has ended or is a dead letter; returns this handle, refreshed.

        Raises WaitTimeout after `timeout` seconds (None waits for ever), NotSentYet at once for a job that its
        transaction has not sent or that is still in the outbox, TaskResultDoesNotExist when retention removed the job
        meanwhile.
        """
        if not self.is_finished:
            if self.outbox:
                self.refresh()
            self._require_sent()
            deadline = waiting.Deadline(timeout)
            waiting.wait(self.task.queue_name, self.id[-LENGTH:], deadline)
            self.refresh()
            self._wait_there(deadline)
        return self

    def _wait_there(self, deadline: waiting.Deadline) -> None:
        """Wait on where it is now, should it have been moved to another pool."""
        while not self.is_finished:
            place = shards.locate(self.moved_to)
            if place is None:
                return
            waiting.wait(*place, deadline)
            self.refresh()

    async def await_(self, timeout: float | timedelta | None = None) -> DuctorResult[R]:
        """`wait` without blocking the event loop."""
        if not self.is_finished:
            if self.outbox:
                await self.arefresh()
            self._require_sent()
            deadline = waiting.Deadline(timeout)
            await waiting.await_(self.task.queue_name, self.id[-LENGTH:], deadline)
            await self.arefresh()
            await self._await_there(deadline)
        return self

    async def _await_there(self, deadline: waiting.Deadline) -> None:
        """See `_wait_there`."""
        while not self.is_finished:
            place = await asyncio.to_thread(shards.locate, self.moved_to)
            if place is None:
                return
            await waiting.await_(*place, deadline)
            await self.arefresh()

    def cancel(self) -> bool:
        """Cancel the job, and refresh this handle. True: it is, or will be, cancelled. False: that came too late.

        A job that waits has ended when this returns. One that runs is told to stop (`cancelling`); it ends as cancelled
        when its body is through, whatever that returns, or when its worker is lost. One on its way to another pool is
        cancelled there; while that pool refuses to answer (`state` is moving still), this can only be promised, and is
        not true of one that had come there and ended before. Too late it is for one that has ended, for a dead letter,
        and for one that nobody knows any more. A job that the outbox keeps is taken out of it. Raises NotSentYet for
        one that its transaction has not sent: what sends it cannot be called off but by a rollback.
        """
        if self.outbox:
            if _outbox().withdraw(self):
                return True
            self.refresh()
        self._require_sent()
        for _ in range(2):  # it may have been moved to another pool since this handle was read
            place = shards.locate(self.moved_to or self.id)
            word = transit.cancel(place[0], [place[1]])[0] if place is not None else "gone"
            if word != "gone":
                self.refresh()
            if word != "already" or self.is_finished:
                break
        return self._is_cancelled(word)

    async def acancel(self) -> bool:
        """See `cancel`."""
        if self.outbox:
            if await _outbox().awithdraw(self):
                return True
            await self.arefresh()
        self._require_sent()
        for _ in range(2):
            place = await asyncio.to_thread(shards.locate, self.moved_to or self.id)
            word = (await shards.async_store(place[0]).cancel([place[1]]))[0] if place is not None else "gone"
            if place is not None and word in ("moving", "moved"):
                word = (await asyncio.to_thread(transit.cancel, place[0], [place[1]]))[0]
            if word != "gone":
                await self.arefresh()
            if word != "already" or self.is_finished:
                break
        return self._is_cancelled(word)

    def _is_cancelled(self, word: str) -> bool:
        return word in {"cancelled", "stopping", "moving"} or (word == "already" and self.outcome == Ending.CANCELLED)

    def _require_sent(self) -> None:
        if self.outbox:
            raise NotSentYet(
                f"Job {self.id} waits in the outbox of the database {self.outbox!r}, because of: {self.send_error} "
                "A scheduler sends it as soon as the store takes it; does one run? refresh() looks again."
            ) from self.send_error
        if self.send_error is not None:
            raise NotSentYet(f"Job {self.id} was not accepted after commit: {self.send_error}") from self.send_error
        if self.state == DEFERRED:
            raise NotSentYet(
                f"Job {self.id} is sent when the transaction commits and cannot end before. Wait after the atomic "
                "block, or enqueue with .using(on_commit=False). After a rollback it is never sent."
            )

    def _take(self, newer: TaskResult) -> None:
        for name in _REFRESHED:
            if hasattr(newer, name):
                object.__setattr__(self, name, getattr(newer, name))

    def _set(self, **values: object) -> None:
        # Frozen for its holders; the producer fills it, as django.tasks' own backends do.
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _outbox() -> Any:
    """The outbox, which makes results and so cannot be imported above."""
    from queueapp.producer import outbox

    return outbox


def sent_result(
    task: Task, public_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, state: str, outcome: str
) -> DuctorResult:
    """The handle of a job that was just sent, or will be after commit."""
    return DuctorResult(
        task=task,
        id=public_id,
        status=TaskResultStatus.READY,
        enqueued_at=None if state == DEFERRED else moment(made_ms(public_id[-LENGTH:])),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        worker_ids=[],
        state=state,
        outcome=outcome,
        metadata=_given_metadata(task),
    )


def _given_metadata(task: Task) -> dict[str, Any]:
    """A copy, deep because whoever holds the result may change it."""
    given = getattr(task, "metadata", None)
    return copy.deepcopy(dict(given)) if given else {}


def result_from_record(record: JobRecord, pool: str, alias: str | None = None, *, asked: str = "") -> DuctorResult:
    """The result of a job as the store has it. An ended job has no arguments any more; `args` is then empty.

    `asked`: the id that its caller knows, where that may be the one before it was moved to this pool.
    """
    args, kwargs, options = decode_arguments(record.payload) if record.payload else ([], {}, {})
    saved = saved_metadata(record.data)
    backend = alias or options.get("backend") or default_alias() or "default"
    errors = [_task_error(error) for error in record.errors if error.kind in ("error", "child")]
    public_id = shards.keys(pool).public_id(record.id)
    status = STATUSES.get(record.state)
    if record.outcome is Ending.MOVED:
        status = TaskResultStatus.READY  # where it is now `refresh` finds out
    elif status is None:
        status = TaskResultStatus.SUCCESSFUL if record.outcome is Ending.COMPLETED else TaskResultStatus.FAILED
    result = DuctorResult(
        task=_task_of(record, pool, backend),
        id=asked or public_id,
        status=status,
        enqueued_at=moment(record.submitted_ms),
        started_at=moment(record.first_leased_ms),
        finished_at=moment(record.ended_ms),
        last_attempted_at=moment(record.leased_ms),
        args=args,
        kwargs=kwargs,
        backend=backend,
        errors=[*errors, *_why_failed(record, status)],
        worker_ids=_worker_ids(record),
        state=record.state.value,
        outcome=record.outcome.value if record.outcome else "",
        reason=record.reason,
        metadata=options.get("metadata", {}) if saved is None else saved,
        cancelling=record.cancelling,
        moved_to=next_id(record) or (public_id if asked not in ("", public_id) else ""),
        progress=decode_result(record.data.get(PROGRESS)),
    )
    if status is TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", decode_result(record.result))
    return result


def running_result(
    task: DuctorTask, job: LeasedJob, pool: str, worker: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> DuctorResult:
    """The result of a leased job whose body is about to run: what its context and `task_started` carry."""
    earlier = job.errors + job.crashes
    return DuctorResult(
        task=unchecked(task, queue_name=pool, priority=job.priority),
        id=shards.keys(pool).public_id(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=moment(job.submitted_ms),
        started_at=moment(job.leased_ms),
        finished_at=None,
        last_attempted_at=moment(job.leased_ms),
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        # django.tasks counts attempts by these; who held the earlier leases does not travel with this one.
        worker_ids=[""] * earlier + [worker],
        state=State.ACTIVE.value,
        metadata=_given_metadata(task),
    )


def _task_error(error: ErrorRecord) -> TaskError:
    return TaskError(
        exception_class_path=str(error.detail.get("class", "builtins.Exception")),
        traceback=str(error.detail.get("traceback", error.detail.get("message", ""))),
    )


def _why_failed(record: JobRecord, status: TaskResultStatus) -> list[TaskError]:
    """One more TaskError where no exception of the task says why: its class does."""
    if status is not TaskResultStatus.FAILED:
        return []
    if record.state is State.DEAD:
        told = {"error": "error", "child_failed": "child"}.get(record.reason)
        if any(error.kind == told for error in record.errors):
            return []
        text = f"The job is a dead letter: {record.reason or 'budget spent'} ({record.crashes} lost workers)."
        return [TaskError(exception_class_path="queueapp.errors.JobDead", traceback=text)]
    path = ENDINGS.get(record.outcome, "queueapp.errors.JobDead")
    return [TaskError(exception_class_path=path, traceback=f"The job ended as {record.outcome or 'unknown'}.")]


def _worker_ids(record: JobRecord) -> list[str]:
    workers = [error.worker for error in record.errors if error.kind != "child"]
    if record.state is State.ACTIVE or record.outcome is Ending.COMPLETED or _was_stopped(record):
        workers.append(record.worker)
    return workers


def _was_stopped(record: JobRecord) -> bool:
    """A run was cancelled, and left no record of an error."""
    return record.cancelling_ms > 0 and not any(error.attempt == record.attempts for error in record.errors)


def _task_of(record: JobRecord, pool: str, backend: str) -> DuctorTask:
    """The record's task with its pool and priority. An unknown one is stood in for, so that its jobs can be read."""
    try:
        known = find(record.task)
    except UnknownTask as error:
        return unchecked(
            func=_stand_in(record.task, str(error)), queue_name=pool, priority=record.priority, backend=backend
        )
    run_after = moment(record.due_ms) if record.state is State.SCHEDULED else None
    # With tenant and lane, so that a tool that enqueues `result.task` anew, as monitors do, loses neither.
    return unchecked(
        known,
        queue_name=pool,
        priority=record.priority,
        backend=backend,
        run_after=run_after,
        tenant=record.tenant,
        lane=record.lane,
    )


def _stand_in(name: str, message: str) -> Any:
    def unknown_task(*_: object, **__: object) -> None:
        raise UnknownTask(message)

    unknown_task.__module__, _, unknown_task.__qualname__ = name.rpartition(".")
    unknown_task.__name__ = unknown_task.__qualname__
    return unknown_task
