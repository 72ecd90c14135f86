"""The worker's loop, and `run_one`, the life of a job: read that first.

A worker is one I/O thread, which runs `Worker.run`, and the threads that it hands work to: slots run bodies, the
parker waits for wake tokens. The I/O thread alone talks about leases with the store. Everybody else only puts into
its mailbox: slots the chunks that are through, the parker that it woke up, signal handlers that it is time to stop.
Bodies are at the slots' mercy, never at the store's: while it is away they run on, and their outcomes wait in their
line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from inspect import iscoroutinefunction
from queue import Empty, SimpleQueue
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
from queueapp.store.records import Completed, Failed
from queueapp.sync.installation import Ownership
from queueapp.worker.announce import Announcement
from queueapp.worker.context import JobContext, save_given
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.meter import Meter
from queueapp.worker.outcome import failed, traceback_text, unknown_task
from queueapp.worker.parker import Parker, block_s
from queueapp.worker.placement import Placement
from queueapp.worker.slots import LOOKAHEAD_MS, TICK_S, Chunk, Held, Outcome, Slots

logger = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_CUT_SHORT = 4
"""Bodies still ran when the grace was over and were given back, or outcomes were not heard: those jobs run again."""


def run_one(held: Held, faults: Faults, watch: Callable[[BaseException], None] | None = None) -> Outcome:
    """The life of a job in a worker, from lease to outcome. Runs in a slot's thread and never raises.

    1. The task is found by its name. If it is not known here, the job goes back unrun, each time for longer.
    2. Its arguments are read. Database connections that went stale since the last job are closed. The tenant is
       entered, and `TENANT_CONTEXT` with it, so that what the body enqueues stays with the tenant. `task_started` is
       sent.
    3. The body runs: a function as it is, an `async def` in an event loop of its own.
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
        logger.warning("Unknown task, given back unrun: %s", error, extra={"job_id": held.public_id, "task": job.task})
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
            announcement.succeeded(decode_result(result))
        except BaseException as error:
            text = traceback_text(error, messages=task.sensitive is not True)
            outcome = failed(task, job, error, text, _since_ms(started), held.cost)
            _log_failure(held, outcome, error)
            if announcement is not None:
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
        return async_to_sync(task.func)(*args, **kwargs)
    return task.func(*args, **kwargs)


def _written(task: DuctorTask, value: object) -> bytes | None:
    """The result as the store keeps it."""
    return encode_result(value, max_bytes=settings.max_result_bytes, typed=task.typed, closed=task.sensitive is True)


def _log_failure(held: Held, outcome: Failed, error: BaseException) -> None:
    again = "for good" if outcome.retry_ms is None else f"trying again in {outcome.retry_ms / 1000:g} s"
    level = logging.ERROR if outcome.retry_ms is None else logging.WARNING
    facts = {"task": held.job.task, "job_id": held.public_id, "error": type(error).__name__}
    logger.log(level, "Task failed, %s", again, extra=facts)


def _since_ms(started: float) -> int:
    return round((monotonic() - started) * 1000)


class Stage(IntEnum):
    """How far a worker has got. It never goes back."""

    WORKING = 0
    DRAINING = 1
    """Leases nothing more; what runs may end within the grace."""
    LEAVING = 2
    """Gives back whatever it still holds, and ends."""


UNHEARD_S = 0.5
"""Nobody waits for the wake tokens of a pool while another has work: so often it is asked without one."""
WOKEN = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How one worker process works."""

    slots: int = 4
    grace_ms: int = 25_000
    batch: bool = False
    """End when nothing is runnable and nothing runs; jobs due later do not count."""
    max_tasks: int | None = None
    """End after so many jobs."""
    faults: Faults = field(default_factory=Faults)


class Worker:
    """One process's worker over the pools of `lines`. `run` is the I/O thread; `stop` may be called from anywhere."""

    def __init__(
        self,
        lines: Sequence[Line],
        options: WorkerOptions,
        parker: Callable[[Callable[[], None]], Parker],
        *,
        ownership: Ownership | None = None,
        clock: Callable[[], float] = monotonic,
        run: Callable[[Held, Faults], Outcome] = run_one,
    ) -> None:
        self._lines = list(lines)
        self._options = options
        self._ownership = ownership
        self._clock = clock
        self._mail: SimpleQueue[object] = SimpleQueue()
        self._parker = parker(lambda: self._mail.put(WOKEN))
        self._slots = Slots(options.slots, lambda held: run(held, options.faults), self._mail.put)
        self._stage = Stage.WORKING
        self._grace_ends = float("inf")
        self._left = options.max_tasks
        self._placement = Placement(self._slots)
        self._meter = Meter([line.meter for line in self._lines], self._slots, clock())
        self.turned_at = clock()
        """When the I/O thread last got on, on the monotonic clock: probes of health read it."""
        self.ran = 0
        """Jobs whose outcome a slot has delivered."""

    # -- from other threads and from signal handlers ---------------------------------------------------------------

    def stop(self, *, now: bool = False) -> None:
        """Ask the worker to end: gracefully, or giving back at once what it holds. A second request means at once."""
        self._mail.put(Stage.LEAVING if now else Stage.DRAINING)

    @property
    def unready(self) -> str:
        """Why this worker takes no work just now; "" when it does. For probes."""
        if self._stage is not Stage.WORKING:
            return "it is stopping"
        if self._barred:
            return "the namespace belongs to another installation"
        away = [line.pool for line in self._lines if line.away or not line.registered]
        return f"the store has not heard of it in {', '.join(away)}" if away else ""

    # -- the I/O thread --------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Works until told to stop, or until `batch` or `max_tasks` say that it is over. Returns the exit code."""
        self._slots.start()
        self._parker.start()
        try:
            while not self._over():
                self._listen()
                self._turn()
                self._collect()
                self._tend()
                self._talk()
                self._park()
        finally:
            code = self._leave()
        return code

    def _listen(self) -> None:
        """Waits for mail, or until something is due by time; takes all that has come."""
        wait_s = self._wait_s()
        try:
            message = self._mail.get(timeout=wait_s) if wait_s > 0 else self._mail.get_nowait()
            while True:
                if type(message) is Chunk:
                    self._slots.through(message)
                    self._take_done(message)
                elif message is WOKEN:
                    for line in self._lines:
                        line.took_token()
                elif isinstance(message, Stage):
                    self._stop(message)
                message = self._mail.get_nowait()
        except Empty:
            return

    def _wait_s(self) -> float:
        now = self._clock()
        room = self._room(now)
        moments = [line.next_at(room) for line in self._lines]
        if self._placement.waiting or self._slots.has_unbegun() or self._slots.begun_unreported():
            moments.append(now + TICK_S)
        moments += [self._grace_ends, self._meter.next_at]
        if self._ownership is not None:
            moments.append(self._ownership.next_at)
        return min(moments) - now

    def _turn(self) -> None:
        """Once a second at least, so that probes see it and what runs is counted."""
        now = self.turned_at = self._clock()
        if now >= self._meter.next_at:
            self._meter.flush(now)

    def _collect(self) -> None:
        """Takes outcomes also of chunks that are not through: none waits for a slow job behind it."""
        for chunk in self._slots.outstanding.values():
            if chunk.done:
                self._take_done(chunk)

    def _take_done(self, chunk: Chunk) -> None:
        done = chunk.done
        while done:
            held, outcome, run_ms = done.popleft()
            line, job = held.line, held.job
            line.meter.ran(held, run_ms)
            if line.held.pop(job.id, None) is None:
                continue  # given back meanwhile; its fence would refuse the outcome
            if isinstance(outcome, (Completed, Failed)):
                self.ran += 1
                line.finished.append(outcome)
                line.meter.ended(job, run_ms)
                line.ran(run_ms)
                self._placement.learn(job.task, run_ms)
            elif outcome is not None:
                line.returned.append(outcome)

    def _tend(self) -> None:
        """What is stuck behind a slow job moves to a free slot, or goes back so that others can run it."""
        for held in self._placement.tend(self._clock()):
            self._give_up(held)
            held.line.ran(LOOKAHEAD_MS)  # the estimate was too low: look less far ahead

    def _talk(self) -> None:
        """One round over the pools: say what there is to say, and offer free slots first to who waited longest."""
        if self._ownership is not None:
            self._ownership.look()
        now = self._clock()
        for line in sorted(self._lines, key=lambda line: line.asked_at):
            if now < line.away_until:
                continue
            if self._options.batch and line.settled and not line.empty:
                line.woken()
            if not self._parker.parked and now - line.asked_at >= UNHEARD_S:
                line.woken()
            room = self._room(now)
            announced = self._placement.announced(line)
            self.turned_at = self._clock()
            if announced or self._placement.slow_unreported(line, now) or line.wants_call(room, now):
                unreported = [held for held in self._slots.begun_unreported() if held.line is line]
                begin = max(0, self._slots.idle - len(announced) - self._promised())
                self._place(line, line.exchange(room, min(begin, room), [*announced, *unreported]))
                self._placement.begin(announced, self._clock())
            if line.returned and self._clock() >= line.away_until:
                line.give_back()

    @property
    def _barred(self) -> bool:
        """The namespace belongs to another installation: what runs here ends as usual, nothing more is leased."""
        return self._ownership is not None and self._ownership.barred

    def _room(self, now: float) -> int:
        """How many jobs may be asked for. What an unanswered call asked for, and what waits here, is taken off."""
        if self._stage is not Stage.WORKING or self._barred:
            return 0
        # While means differ between pools the slowest decides: slots are shared.
        means = [line.mean_ms for line in self._lines if line.mean_ms is not None]
        room = self._slots.room(max(means) if means else None, now) - self._promised() - self._placement.waiting
        if self._left is not None:
            room = min(room, self._left)
        return max(0, room)

    def _promised(self) -> int:
        return sum(line.promised for line in self._lines)

    def _place(self, line: Line, jobs: Sequence[Held]) -> None:
        """Hands leased jobs over. What a late reply brings to a stopping worker goes back."""
        if self._left is not None:
            self._left -= len(jobs)
        if self._stage is Stage.WORKING:
            self._placement.place(line, jobs, self._clock())
        else:
            for held in jobs:
                self._give_up(held)

    def _give_up(self, held: Held) -> None:
        held.line.give_up(held)
        if self._left is not None:
            self._left += 1

    def _park(self) -> None:
        """Sends the parker to wait when slots are free and no pool that can be reached has anything for them."""
        now = self._clock()
        reached = [line for line in self._lines if not line.away]
        if self._parker.parked or not self._room(now) or not reached or any(line.hungry for line in reached):
            return
        due_s = min(line.due_at for line in reached) - now
        heartbeat_s = min(line.heartbeat.next_at for line in reached) - now
        self._parker.park(block_s(due_s, heartbeat_s))

    # -- the end ---------------------------------------------------------------------------------------------------

    def _stop(self, wanted: Stage) -> None:
        if self._stage is Stage.WORKING:
            self._stage = wanted
            self._grace_ends = self._clock() + self._options.grace_ms / 1000
            for held in self._placement.take_unbegun():
                self._give_up(held)
            running = sum(len(line.held) for line in self._lines)
            logger.info("Stopping; waiting for running jobs", extra={"running": running})
        else:
            self._stage = Stage.LEAVING

    def _over(self) -> bool:
        if self._stage is Stage.DRAINING and self._clock() >= self._grace_ends:
            self._stage = Stage.LEAVING
        if self._stage is Stage.LEAVING:
            return True
        if self._slots.outstanding or not all(line.settled for line in self._lines):
            return False
        if self._stage is Stage.DRAINING or self._left == 0:
            return True
        return self._options.batch and (self._barred or all(line.empty for line in self._lines))

    def _leave(self) -> int:
        """Gives back what is still held, says good-bye. The store gets one try; what it misses, leases settle."""
        self._stage = Stage.LEAVING
        self._parker.close()
        self._collect()
        abandoned = [held for line in self._lines for held in line.held.values()]
        for held in abandoned:
            held.line.give_up(held)
            held.lost = True
        for line in self._lines:
            line.flush()
            if not line.away:
                line.forget()
        self._meter.flush(self._clock())
        unsaid = sum(line.unsaid for line in self._lines)
        if abandoned or unsaid:
            logger.warning(
                "Stopped before everything had ended: %d running jobs given back, %d outcomes not reported",
                len(abandoned),
                unsaid,
                extra={"given_back": len(abandoned), "unsaid": unsaid},
            )
        self._slots.close(timeout_s=0.0 if abandoned else 1.0)
        return EXIT_CUT_SHORT if abandoned or unsaid else EXIT_DONE
