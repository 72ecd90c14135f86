"""One attempt at a job, from its lease to its outcome: `run_one`, which every slot calls for every job.

Slot threads call it, and `queueapp.testing` in the thread of a test. It never talks about leases with the store: what
it returns is the I/O thread's to report.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any

from asgiref.sync import async_to_sync
from django.db import close_old_connections, reset_queries

from queueapp.codec import decode_arguments, decode_result, encode_result
from queueapp.conf import settings
from queueapp.errors import UnknownTask
from queueapp.producer.backoff import from_options
from queueapp.producer.task import DuctorTask, find, unchecked
from queueapp.producer.tenancy import belonging_to, entered
from queueapp.repeats import Repeats
from queueapp.store.records import Completed, Failed
from queueapp.worker.announce import Announcement
from queueapp.worker.context import JobContext, save_given
from queueapp.worker.faults import Faults
from queueapp.worker.outcome import failed, traceback_text, unknown_task
from queueapp.worker.slots import Held, Outcome

logger = logging.getLogger(__name__)

unknown = Repeats()
"""Unknown tasks: while a deploy goes on, all jobs of a new one come by, again and again."""


def run_one(held: Held, faults: Faults, watch: Callable[[BaseException], None] | None = None) -> Outcome:
    """The life of a job in a worker, from lease to outcome. Runs in a slot's thread and never raises.

    1. The task is found by its name. If it is not known here, the job goes back unrun, each time for longer.
    2. Its arguments are read. Database connections that went stale since the last job are closed. The tenant is
       entered, and `TENANT_CONTEXT` with it, so that what the body enqueues stays with the tenant. `task_started` is
       sent.
    3. The body runs: a function as it is, an `async def` in an event loop of its own, where it can be cancelled.
    4. What it returned is written as JSON; `task_finished` is sent; the job is completed.
    5. Whatever was raised on the way, SystemExit included, is a failure: its traceback is kept without locals, the
       task's backoff says whether and when to try again, and unless it does `task_finished` is sent from the `except`.
    6. Database connections that went stale meanwhile are closed. The outcome rides in the next `cycle` call.

    Returns None when nothing is to be reported, so that the lease runs out (`Faults`). A host's tests
    (`queueapp.testing`) run jobs in their own thread: `watch` gets what was raised, their connections are left alone.
    """
    job = held.job
    try:
        task = find(job.task)
    except UnknownTask as error:
        number = unknown.due(job.task)
        facts = {"job_id": held.public_id, "task": job.task, "times": number or 1}
        level = logging.WARNING if number else logging.DEBUG
        logger.log(level, "Unknown task, given back unrun: %s", error, extra=facts)
        return unknown_task(job)
    started = monotonic()
    announcement: Announcement | None = None
    outcome: Outcome
    with belonging_to(job.tenant):  # also for receivers of `task_finished`, also where TENANT_CONTEXT failed
        try:
            args, kwargs, options = decode_arguments(job.payload)
            task = _as_enqueued(task, options) if options or task.metadata else task
            announcement = Announcement(task, held, args, kwargs)
            if watch is None:
                # Before the tenant is entered: what the host sets on a connection must not go with a stale one.
                _close_stale_connections()
            if task.metadata:
                save_given(held, task)
            with entered(job.tenant):
                announcement.started()
                faults.before_body()
                value = _call(task, held, announcement, args, kwargs)
                result = _written(task, value)
            run_ms = _since_ms(started)
            outcome = Completed(id=job.id, attempts=job.attempts, run_ms=run_ms, result=result, cost=held.cost)
            if held.cancelled:
                announcement.cancelled()
            else:
                announcement.succeeded(decode_result(result))
        except BaseException as error:
            text = traceback_text(error, messages=task.sensitive is not True)
            outcome = failed(task, job, error, text, _since_ms(started), held.cost, last=held.cancelled)
            _log_failure(held, outcome, error)
            if announcement is not None and held.cancelled and isinstance(error, asyncio.CancelledError):
                announcement.cancelled()
            elif announcement is not None:
                announcement.failed(error, text, final=outcome.retry_ms is None)
            if watch is not None:
                watch(error)
    if watch is None:
        _close_stale_connections()
    return None if faults.drops_outcome() else outcome


def _close_stale_connections() -> None:
    """As Django does around a request. A connection that cannot even be closed must not cost the outcome."""
    try:
        reset_queries()
        close_old_connections()
    except Exception:
        logger.exception("A stale database connection could not be closed")


def _as_enqueued(task: DuctorTask, options: Mapping[str, Any]) -> DuctorTask:
    """The task with what `.using()` gave this one job beyond the fields of its row."""
    changes: dict[str, object] = {"metadata": options.get("metadata")}
    if "typed" in options:
        changes["typed"] = options["typed"]
    if "backoff" in options:
        changes["backoff"] = from_options(options["backoff"])
    if "backend" in options:
        changes["backend"] = options["backend"]
    return unchecked(task, **changes)


def _call(
    task: DuctorTask, held: Held, announcement: Announcement, args: list[object], kwargs: dict[str, object]
) -> object:
    if task.takes_context:
        args = [JobContext(task_result=announcement.result, held=held), *args]
    if iscoroutinefunction(task.func):
        # As Django calls such a task: what it does on the database comes back to this thread, whose connections are
        # looked after. asyncio.run would send it to one thread that all slots share and nobody tidies.
        return async_to_sync(_interruptible)(held, lambda: task.func(*args, **kwargs))
    return task.func(*args, **kwargs)


async def _interruptible(held: Held, body: Callable[[], Awaitable[object]]) -> object:
    """Awaits a body, in which CancelledError is raised when its job is cancelled: once, so that it may tidy up."""
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None

    def stop() -> None:
        with suppress(RuntimeError):  # the loop has been closed: the body is through
            loop.call_soon_threadsafe(running.cancel)

    held.interrupts = deque([stop])
    if held.cancelled:
        held.interrupt()  # it was told before there was anything to stop
    try:
        return await body()
    finally:
        held.interrupts.clear()


def _written(task: DuctorTask, value: object) -> bytes | None:
    """The result as the store keeps it."""
    return encode_result(value, max_bytes=settings.max_result_bytes, typed=task.typed, closed=task.sensitive is True)


def _log_failure(held: Held, outcome: Failed, error: BaseException) -> None:
    if held.cancelled:
        facts = {"task": held.job.task, "job_id": held.public_id, "error": type(error).__name__}
        logger.info("Task stopped, its job was cancelled", extra=facts)
        return
    again = "for good" if outcome.retry_ms is None else f"trying again in {outcome.retry_ms / 1000:g} s"
    level = logging.ERROR if outcome.retry_ms is None else logging.WARNING
    facts = {"task": held.job.task, "job_id": held.public_id, "error": type(error).__name__}
    logger.log(level, "Task failed, %s", again, extra=facts)


def _since_ms(started: float) -> int:
    return round((monotonic() - started) * 1000)
