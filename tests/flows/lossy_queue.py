"""A queue in memory for the real runtime: it loses, repeats and reorders, and its processes die where it hurts.

It stands in for `hand_over`, `standing` and `withdraw` and for the clock; rows are real. What a job runs is what a
worker runs for a step: `StepWrapper` around a body, which may begin the moment it was handed over (SyncMatch), while
others go on. Seeded: a run that has failed fails again.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from flows import commands, dispatch, models, reports, runtime, steps, sweep, tasks, waking
from flows.reports import End
from flows.rows import News, Seen
from flows.snapshot import Command, Ending, Enqueue, Finish
from flows.steps import StepWrapper
from flows.values import Json
from queueapp.errors import DuctorError, StoreUnavailable
from queueapp.producer.handover import Order, Standing

Body = Callable[[models.Run, str, int | None, int], tuple[Ending, Json]]
"""(run, step, index of the item, attempt) → how it ends and what it returns."""
Carry = Callable[..., bool]


class Killed(BaseException):
    """The process is gone: nothing of it goes on, and what it had leased comes back."""


class Broken(Exception):
    """What a body raises."""


@dataclass(slots=True)
class Job:
    facts: Any
    """Of a step; None of a wake-up."""
    args: Sequence[Any] = ()
    due_ms: int = 0
    ending: Ending | None = None
    error: str = ""


@dataclass(eq=False)
class Queue:
    body: Body
    seed: int = 0
    losses: float = 0.0
    """How likely a call is refused, an answer is lost, a job comes twice, or a process dies."""
    now_ms: int = 1_900_000_000_000
    jobs: dict[str, Job] = field(default_factory=dict)
    recorded: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """(run, step, index) → how often it was recorded as completed."""
    ran: list[tuple[str, str, int, int]] = field(default_factory=list)
    """(run, step, index, attempt) of each body that ran to its end."""
    kept: int = 0
    """So many ticks went by what this process had written before."""
    decided: Counter[tuple[str, Command]] = field(default_factory=Counter)
    """(run, command) → how often it was decided on, of those that are decided on once: to begin a step, to end."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.dead = False
        self._begun: dict[str, News] = {}
        """Jobs whose bodies begin in the process that has just handed them over, and what came with them."""
        self._wrapper = StepWrapper()

    # -- what the runtime calls ------------------------------------------------------------------------------------

    def hand_over(self, orders: Sequence[Order]) -> list[DuctorError | None]:
        return [self._take(order) for order in orders]

    def standing(self, pool: str, jobs: Sequence[tuple[str, int]]) -> list[tuple[Standing, str]]:
        self._may_fail()
        found: list[tuple[Standing, str]] = []
        for key, _ in jobs:
            job = self.jobs.get(key)
            if job is None:
                found.append(("gone", ""))
            else:
                how: Any = job.ending or "there"
                found.append((how, job.error))
        return found

    def withdraw(self, pool: str, jobs: Sequence[tuple[str, int]], *, running: bool) -> list[bool]:
        self._may_fail()
        return [self._take_back(key) for key, _ in jobs]

    def _take(self, order: Order) -> DuctorError | None:
        self._may_die()
        away = self._happens()
        if not away or self._happens(0.5):
            due = order.job.task.run_after
            due_ms = 0 if due is None else round(due.timestamp() * 1000)
            facts = order.facts if order.wrapper else None
            if order.key not in self.jobs and order.local is not None and not away and self.chance.random() < 0.5:
                self._begun[order.key] = order.local
            self.jobs.setdefault(order.key, Job(facts, order.job.args, due_ms))
        return StoreUnavailable("The store is away, or its answer is lost.") if away else None

    def _take_back(self, key: str) -> bool:
        job = self.jobs.get(key)
        if job is None or job.ending is not None or self._happens(0.5):
            return False
        job.ending = "cancelled"
        return True

    # -- what happens ----------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Something that can happen does. False when nothing can but the passing of time."""
        if self.work_begun():
            return True
        ready = [key for key, job in self.jobs.items() if job.ending is None and job.due_ms <= self.now_ms]
        if not ready:
            return False
        key = self.chance.choice(ready)
        self.work(key)
        if key in self.jobs and self._happens():
            self.work(key)  # delivered again: its worker is taken for dead
        self.work_begun()
        return True

    def work_begun(self) -> bool:
        """Bodies that have begun where they were handed over go on; whether there were any."""
        found = bool(self._begun)
        while self._begun:
            key, local = self._begun.popitem()
            if key in self.jobs:
                self.work(key, local)
        return found

    def work(self, key: str, local: News | None = None) -> None:
        job = self.jobs[key]
        try:
            if job.facts is None:
                tasks.wake.func(*job.args)
                del self.jobs[key]
            else:
                self._run(job, local)
        except Killed:
            self.dead = False  # another process goes on; the job is still there

    def _run(self, job: Job, local: News | None) -> None:
        run_id, step, attempt, index = job.facts
        run = models.Run.objects.get(pk=run_id)
        ending: Ending = "completed"

        def body() -> Json:
            nonlocal ending
            ending, output = self.body(run, step, None if index < 0 else index, attempt)
            if local is not None and self.chance.random() < 0.3:
                self.step()  # before it ends
            self._may_die()
            self.ran.append((run_id, step, index, attempt))
            if ending != "completed":
                raise Broken("boom")
            return output

        try:
            self._wrapper.around(job.facts, body, local)
        except Broken as error:
            job.error = f"Broken: {error}"
            self._wrapper.ended(job.facts, "failed", job.error)
        job.ending = ending

    def lose_all(self) -> None:
        """The store is lost with all that was in it, timers too."""
        self.jobs.clear()
        self._begun.clear()

    def pass_time(self) -> None:
        """To the next moment at which something is due, or at which the sweep would find something."""
        due = [job.due_ms for job in self.jobs.values() if job.ending is None and job.due_ms > self.now_ms]
        runs = models.Run.objects.filter(state__in=("running", "compensating"))
        watches = [at + sweep.LATE_MS + 1 for at in runs.values_list("watch_ms", flat=True)]
        made = [at + sweep.UNRELAYED_MS + 1 for at in models.FlowCommand.objects.values_list("made_ms", flat=True)]
        self.now_ms = max(self.now_ms + 1_000, min([*due, *watches, *made], default=0))
        try:
            sweep.sweep(self.now_ms)
        except (Killed, StoreUnavailable):
            self.dead = False

    def finish(self, run_id: str, most: int = 1_500) -> models.Run:
        """Until the run has ended and nothing is left to be done."""
        for _ in range(most):
            if not self.step():
                run = models.Run.objects.get(pk=run_id)
                if run.has_ended and not models.FlowCommand.objects.exists():
                    return run
                self.pass_time()
        raise AssertionError(f"the run has not ended: {models.Run.objects.filter(pk=run_id).values()}")

    def carry_out(self, whole: Carry) -> Carry:
        """A process may die before, between or after the commands."""

        def carry_out(seen: Seen, listed: Sequence[Any], *given: Any, **named: Any) -> bool:
            self._may_die()
            if not (self.losses and len(listed) > 1):
                return whole(seen, listed, *given, **named)
            place = self.chance.randrange(len(listed))
            more = whole(seen, listed[:place], *given, **named)
            self._may_die()
            return whole(seen, listed[place:], *given, **named) or more

        return carry_out

    def stored(self, whole: Callable[..., Any]) -> Callable[..., Any]:
        """Notes what was decided."""

        def stored(run_id: str, listed: Sequence[Command], now_ms: int) -> Any:
            self.decided.update((run_id, each) for each in listed if isinstance(each, (Enqueue, Finish)))
            return whole(run_id, listed, now_ms)

        return stored

    def write(self, whole: Callable[[End], bool]) -> Callable[[End], bool]:
        """Notes what was recorded as completed."""

        def write(end: End) -> bool:
            told = whole(end)
            self._note(end if told else None)
            return told

        return write

    def at_once(self, whole: Callable[[End, Seen | None], Any]) -> Callable[[End, Seen | None], Any]:
        """Notes what was recorded so, and looks whether what was kept of a run is what its rows say."""

        def at_once(end: End, seen: Seen | None) -> Any:
            if seen is not None:
                self._compare(seen)
            written = whole(end, seen)
            self._note(end if written is not None else None)
            return written

        return at_once

    def _note(self, end: End | None) -> None:
        if end is not None and end.ending == "completed":
            self.recorded[end.run_id, end.step, end.index] += 1

    def _compare(self, seen: Seen) -> None:
        """Of steps that run somebody may have told the end, and tells it to the run, too."""
        there = runtime._read(seen.row.id)
        if there.snapshot.run.version != seen.snapshot.run.version:
            return
        self.kept += 1
        kept = seen.snapshot.steps
        steps = {
            name: replace(row, report=kept[name].report) if row.state == "running" else row
            for name, row in there.snapshot.steps.items()
        }
        assert (replace(there.snapshot, steps=steps), there.ids) == (seen.snapshot, seen.ids)
        assert there.shown_bytes == seen.shown_bytes
        assert not any(row.report for row in kept.values() if row.state == "running"), "of those it knows no end"

    def _happens(self, factor: float = 1.0) -> bool:
        return self.chance.random() < self.losses * factor

    def _may_fail(self) -> None:
        self._may_die()
        if self._happens():
            raise StoreUnavailable("The store is away.")

    def _may_die(self) -> None:
        if self.dead or self._happens(0.3):
            self.dead = True
            self._begun.clear()
            raise Killed


@contextmanager
def around(queue: Queue) -> Iterator[Queue]:
    """The runtime works on this queue."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (dispatch, waking):
            patch.setattr(module, "hand_over", queue.hand_over)
        patch.setattr(dispatch, "standing", queue.standing)
        patch.setattr(dispatch, "withdraw", queue.withdraw)
        patch.setattr(dispatch, "carry_out", queue.carry_out(dispatch.carry_out))
        patch.setattr(runtime, "stored", queue.stored(commands.stored))
        patch.setattr(reports, "write", queue.write(reports.write))
        patch.setattr(runtime, "_at_once", queue.at_once(runtime._at_once))
        patch.setattr(steps, "NEWS_S", math.inf)
        for clock in (runtime, reports, waking):
            patch.setattr(clock, "now_ms", lambda: queue.now_ms)
        yield queue
