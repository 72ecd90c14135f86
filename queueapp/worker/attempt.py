"""One attempt at a job, from its lease to its outcome: `run_one`, which every slot calls for every job.

Slot threads call it, and `queueapp.testing` in the thread of a test; `arun_one` is the same on an event loop. Neither
talks about leases with the store: what they return is the I/O thread's to report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any

from asgiref.sync import sync_to_async

from queueapp import extensions
from queueapp.codec import decode_arguments, encode_result
from queueapp.compat import task_finished, task_started
from queueapp.conf import settings
from queueapp.errors import TimeLimitExceeded, UnknownTask, UnknownWrapper, WaitsForChildren
from queueapp.producer.backoff import from_options
from queueapp.producer.options import read
from queueapp.producer.task import DuctorTask, find, unchecked
from queueapp.producer.tenancy import belonging_to, entered
from queueapp.repeats import Repeats
from queueapp.store.records import Completed, Failed, Returned
from queueapp.worker.announce import Announcement, is_heard
from queueapp.worker.context import JobContext, save_given
from queueapp.worker.faults import Faults
from queueapp.worker.limits import Limits, awithin, within
from queueapp.worker.outcome import failed, traceback_text, unknown_task
from queueapp.worker.slots import Held, Outcome
from queueapp.worker.tidying import close_stale_connections, close_stale_connections_since

logger = logging.getLogger(__name__)

unknown = Repeats()
"""Unknown tasks: while a deploy goes on, all jobs of a new one come by, again and again."""


def run_one(
    held: Held,
    faults: Faults,
    watch: Callable[[BaseException], None] | None = None,
    limits: Limits | None = None,
) -> Outcome:
    """The life of a job in a worker, from lease to outcome. Runs in a slot's thread and never raises.

    1. The task is found by its name. If it is not known here, or a package that the job belongs to is not
       (`extensions`), the job goes back unrun, each time for longer.
    2. Its arguments are read. Database connections that went stale since the last job are closed. The tenant is
       entered, and `TENANT_CONTEXT` with it, so that what the body enqueues stays with the tenant. `task_started` is
       sent.
    3. The body runs: a function as it is, an `async def` in an event loop of its own, where it can be cancelled.
    4. What it returned is written as JSON; `task_finished` is sent; the job is completed.
    5. Whatever was raised on the way, SystemExit included, is a failure: its traceback is kept without locals, the
       task's backoff says whether and when to try again, and unless it does `task_finished` is sent from the `except`.
    6. Database connections that went stale meanwhile are closed. The outcome rides in the next `cycle` call.

    Returns None when nothing is to be reported: the lease runs out (`Faults`), or is over because the body has added
    children, for which its job waits from then on. A host's tests
    (`queueapp.testing`) run jobs in their own thread: `watch` gets what was raised, their connections are left alone.
    """
    run = _Run.of(held)
    if isinstance(run, Returned):
        return run
    outcome: Outcome
    with belonging_to(held.job.tenant):  # also for receivers of `task_finished`, also where TENANT_CONTEXT failed
        try:
            announcement = run.read()
            if watch is None:
                # Before the tenant is entered: what the host sets on a connection must not go with a stale one.
                close_stale_connections_since()
            if run.task.metadata:
                save_given(held, run.task)
            with entered(held.job.tenant):
                announcement.started()
                faults.before_body()
                outcome = run.completed(within(limits, held, run.task, faults.body(run.body, run.task.func)))
            run.announce_end()
            run.tell_wrapper()
        except WaitsForChildren:
            outcome = None  # the store ended this attempt, in the script that added them
        except UnknownWrapper as error:
            outcome = _unrun(held, error)
        except BaseException as error:
            outcome = run.failed(error)
            run.announce_failure(error, outcome)
            run.tell_wrapper(outcome)
            if watch is not None:
                watch(error)
    if watch is None:
        close_stale_connections()
    return None if faults.drops_outcome() else outcome


async def arun_one(held: Held, faults: Faults, limits: Limits | None = None) -> Outcome:
    """`run_one` for an `async def` body, on the event loop that it shares with others: the same steps in one order.

    What may block is done elsewhere: signals with receivers of the host's in the job's own thread for synchronous code
    (`berths`), whose connections are tidied there.
    """
    run = _Run.of(held)
    if isinstance(run, Returned):
        return run
    outcome: Outcome
    with belonging_to(held.job.tenant):
        try:
            announcement = run.read()
            if run.task.metadata:
                await asyncio.to_thread(save_given, held, run.task)
            with entered(held.job.tenant):
                if is_heard(task_started):
                    await sync_to_async(announcement.started)()
                else:
                    announcement.started()
                faults.before_body()
                body = faults.body(run.body, run.task.func)
                outcome = run.completed(await awithin(limits, held, run.task, body))
            await _finished(run.announce_end)
            if run.is_wrapped:
                await _to_its_end(run.tell_wrapper)
        except WaitsForChildren:
            outcome = None
        except UnknownWrapper as error:
            outcome = _unrun(held, error)
        except BaseException as error:
            outcome = run.failed(error)
            await _finished(partial(run.announce_failure, error, outcome))
            if run.is_wrapped:
                await _to_its_end(partial(run.tell_wrapper, outcome))
    return None if faults.drops_outcome() else outcome


def run_overdue(held: Held) -> Outcome:
    """Says of a body that has not ended within its hard time limit that it failed. Runs in a slot's thread."""
    assert held.overdue is not None
    run = _Run.of(held)
    if isinstance(run, Returned):
        return run
    with belonging_to(held.job.tenant):
        try:
            run.read()
            raise TimeLimitExceeded(held.overdue.timeout_s)
        except BaseException as error:
            outcome = run.failed(error, where=held.overdue.where)
            run.announce_failure(error, outcome)
            run.tell_wrapper(outcome)
    close_stale_connections()
    return outcome


class _Run:
    """What is known of one run on its way to its outcome."""

    def __init__(self, held: Held, task: DuctorTask) -> None:
        self.held = held
        self.task = task
        self._started = monotonic()
        self._announcement: Announcement | None = None
        self._args: list[object] = []
        self._kwargs: dict[str, object] = {}
        self._wrapper: extensions.Wrapper | None = None
        self._facts: object = None
        self._result: bytes | None = None
        self._text = ""

    @classmethod
    def of(cls, held: Held) -> _Run | Returned:
        """A task that is not known here is given back."""
        try:
            return cls(held, find(held.job.task))
        except UnknownTask as error:
            return _unrun(held, error)

    def read(self) -> Announcement:
        """Reads what the job came with. Raises UnknownWrapper."""
        self._args, self._kwargs, options = decode_arguments(self.held.job.payload)
        wrapped = options.pop(extensions.OPTION, None)
        if options or self.task.metadata:
            self.task = _as_enqueued(self.task, options)
            self.task.get_backend()  # raises for one that is not configured here
        self._announcement = Announcement(self.task, self.held, self._args, self._kwargs)
        if wrapped is not None:
            name, self._facts = wrapped
            self._wrapper = extensions.wrapper_of(name)
        return self._announcement

    def body(self) -> Any:
        """Calls the task's function, within what surrounds it: its value, or what to await for it."""
        if self._wrapper is None:
            return self.task.func(*self._arguments(), **self._kwargs)
        around = self._wrapper.aaround if iscoroutinefunction(self.task.func) else self._wrapper.around
        return around(self._facts, lambda: self.task.func(*self._arguments(), **self._kwargs), self.held.local)

    def completed(self, value: object) -> Completed:
        """The outcome of a body that returned, with its result as the store keeps it."""
        job, task = self.held.job, self.task
        self._result = encode_result(
            value, max_bytes=settings.max_result_bytes, typed=task.typed, closed=task.sensitive is True
        )
        run_ms = self._since_ms()
        return Completed(id=job.id, attempts=job.attempts, run_ms=run_ms, result=self._result, cost=self.held.cost)

    def announce_end(self) -> None:
        """The body returned; told once the tenant has been left. Not where the job runs elsewhere, or was given up."""
        announcement = self._announcement
        assert announcement is not None
        if self.held.lost:
            return
        if self.held.cancelled:
            announcement.cancelled()
        else:
            announcement.succeeded(self._result)

    def failed(self, error: BaseException, where: str = "") -> Failed:
        """The outcome of whatever was raised. `where`: the stack of a body that still runs."""
        task, job, held = self.task, self.held.job, self.held
        self._text = where + traceback_text(error, messages=task.sensitive is not True)
        outcome = failed(task, job, error, self._text, self._since_ms(), held.cost, last=held.cancelled)
        _log_failure(held, outcome, error)
        return outcome

    def announce_failure(self, error: BaseException, outcome: Failed) -> None:
        """To be called inside `except`, see `Announcement.failed`."""
        announcement = self._announcement
        if announcement is None or self.held.lost:
            return
        if self.held.cancelled and isinstance(error, asyncio.CancelledError):
            announcement.cancelled()
        else:
            announcement.failed(error, self._text, final=outcome.retry_ms is None)

    @property
    def is_wrapped(self) -> bool:
        return self._wrapper is not None

    def tell_wrapper(self, failure: Failed | None = None) -> None:
        """That the job will not complete, if so; None: its body returned. Never raises: who is told may ask, too."""
        if self._wrapper is None or self.held.lost:
            return
        try:
            if self.held.cancelled:
                self._wrapper.ended(self._facts, "cancelled", "")
            elif failure is not None and failure.retry_ms is None:
                self._wrapper.ended(self._facts, "failed", self._text)
        except Exception:
            facts = {"job_id": self.held.public_id, "task": self.held.job.task}
            logger.exception("The end of a job could not be told to the package that it belongs to", extra=facts)

    def _arguments(self) -> list[object]:
        if not self.task.takes_context:
            return self._args
        assert self._announcement is not None
        return [JobContext(task_result=self._announcement.result, held=self.held), *self._args]

    def _since_ms(self) -> int:
        run_s = self.held.overdue.timeout_s if self.held.overdue is not None else monotonic() - self._started
        return round(run_s * 1000)


def _unrun(held: Held, error: UnknownTask | UnknownWrapper) -> Returned:
    """A job that only another process can run."""
    number = unknown.due(held.job.task)
    facts = {"job_id": held.public_id, "task": held.job.task, "times": number or 1}
    level = logging.WARNING if number else logging.DEBUG
    logger.log(level, "Unknown task, given back unrun: %s", error, extra=facts)
    return unknown_task(held.job)


async def _finished(announce: Callable[[], None]) -> None:
    """Sends `task_finished` from the event loop."""
    if is_heard(task_finished):
        await _to_its_end(announce)
    else:
        announce()


async def _to_its_end(tell: Callable[[], None]) -> None:
    """From the event loop, in another thread: it may block. A cancel that comes too late for the body is no reason to
    stop here, and changes nothing of how it ended."""
    telling = asyncio.ensure_future(sync_to_async(tell)())
    while not telling.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(telling)
    telling.result()


def _as_enqueued(task: DuctorTask, options: Mapping[str, Any]) -> DuctorTask:
    """The task with what `.using()` gave this one job beyond the fields of its row."""
    metadata = options.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("The payload is none that Ductor writes: its metadata is no mapping.")
    changes: dict[str, object] = {"metadata": metadata}
    if "typed" in options:
        changes["typed"] = options["typed"]
    if "backoff" in options:
        changes["backoff"] = from_options(options["backoff"])
    if "backend" in options:
        changes["backend"] = options["backend"]
    for name in ("timeout", "soft_timeout"):
        if name in options:
            changes[name] = read(name, options[name])
    return unchecked(task, **changes)


def _log_failure(held: Held, outcome: Failed, error: BaseException) -> None:
    if held.lost or held.cancelled:
        facts = {"task": held.job.task, "job_id": held.public_id, "error": type(error).__name__}
        logger.info("Task stopped, its job was %s", "cancelled" if held.cancelled else "taken away", extra=facts)
        return
    again = "for good" if outcome.retry_ms is None else f"trying again in {outcome.retry_ms / 1000:g} s"
    level = logging.ERROR if outcome.retry_ms is None else logging.WARNING
    facts = {"task": held.job.task, "job_id": held.public_id, "error": type(error).__name__}
    logger.log(level, "Task failed, %s", again, extra=facts)
