"""A database, a queue and wake-ups around the coordinator, in memory, that lose and repeat whatever may be.

What carries out the commands here is the model of the runtime: each does to the rows what the runtime does in SQL. The
world notes what must never happen: a step handed over twice in one try, a body that runs after its end was recorded.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from flows.coordinator import tick
from flows.definition import UNDO, Definition
from flows.inputs import job_key, timer_key
from flows.operations import send_event, start
from flows.snapshot import (
    ENDED_RUNS,
    ITEMS_PER_PAGE,
    ITEMS_PER_TICK,
    NOTHING,
    Command,
    Decision,
    Ending,
    Enqueue,
    Event,
    Finish,
    Inquire,
    IssueItems,
    ItemReport,
    ListItems,
    Recount,
    Report,
    Run,
    SetTimer,
    Snapshot,
    StepRun,
    Timer,
    Wake,
    Withdraw,
)
from flows.values import Json

Body = Callable[[str, int | None, int], tuple[Ending, Json]]
"""(step, index of the item, attempt) → how it ends and what it returns."""
Sizes = Callable[[str], int]


@dataclass(slots=True)
class Item:
    attempt: int = 1
    state: str = "waiting"
    ending: Ending | None = None
    counted: bool = False


@dataclass(slots=True)
class Job:
    step: str
    attempt: int
    index: int | None = None
    ending: Ending | None = None


@dataclass(eq=False)
class World:
    definition: Definition
    body: Body
    sizes: Sizes = lambda step: 3
    seed: int = 0
    losses: float = 0.0
    """How likely a wake-up is lost, and how likely it comes twice."""
    now_ms: int = 1_000
    gone: set[str] = field(default_factory=set)
    input: dict[str, Json] = field(default_factory=dict)
    sends: bool = False
    """Each event that a step may wait for is sent once, at some moment."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.steps: dict[str, StepRun] = {}
        self.items: dict[str, list[Item]] = {}
        self.events: list[Event] = []
        self.outbox: list[Command] = []
        self.jobs: dict[str, Job] = {}
        self.timers: dict[str, tuple[int, Timer]] = {}
        self.wakes: list[Timer | None] = []
        self.seen_timers: set[str] = set()
        self.handed_over: Counter[tuple[str, int]] = Counter()
        self.recorded: Counter[tuple[str, int | None]] = Counter()
        self.ran: list[tuple[str, int | None, int]] = []
        self.finished: list[Finish] = []
        self.slow: list[Decision] = []
        """What coordinators have decided that are slow to write."""
        waits = [step for step in self.definition.steps if step.kind == "event" and self.sends]
        self.unsent = [Event(id=f"e-{step.name}", name=step.target, payload=step.name) for step in waits]
        self.run, first = start(
            self.definition, run_id="r1", input=self.input, tenant="acme", now_ms=self.now_ms, gone=self.gone
        )
        assert self.apply(first)

    # -- the database ----------------------------------------------------------------------------------------------

    def snapshot(self, fired: Timer | None = None) -> Snapshot:
        shown: dict[str, tuple[ItemReport, ...]] = {}
        room, more = ITEMS_PER_TICK, False
        for name, items in self.items.items():
            row = self.steps[name]
            if row.state != "running":
                continue
            found = []
            for index in range(len(items)):
                item = items[index]
                if item.ending is None or item.counted:
                    continue
                if room == 0:
                    more = True
                    break
                room -= 1
                found.append(ItemReport(index=index, attempt=item.attempt, ending=item.ending))
            if found:
                shown[name] = tuple(found)
        return Snapshot(
            run=self.run, steps=dict(self.steps), items=shown, more=more, events=tuple(self.events), fired=fired
        )

    def apply(self, decision: Decision) -> bool:
        """In one transaction, if nobody wrote meanwhile."""
        changes = decision.changes
        if changes is not None:
            if changes.run is not None:
                if changes.version != self.run.version:
                    return False
                self.run = replace(changes.run, version=self.run.version + 1)
            for row in changes.steps:
                before = self.steps.get(row.step)
                if before is not None and before.attempt == row.attempt:
                    row = replace(row, report=before.report)  # not the coordinator's column
                self.steps[row.step] = row
            for counted in changes.counted:
                for index in counted.ended:
                    assert not self.items[counted.step][index].counted
                    self.items[counted.step][index].counted = True
                for index in counted.again:
                    item = self.items[counted.step][index]
                    self.items[counted.step][index] = Item(attempt=item.attempt + 1)
            self.events = [event for event in self.events if event.id not in changes.taken]
            self.events += [event for event in changes.sent if event not in self.events]
        self.outbox += decision.commands
        return True

    # -- the coordinator -------------------------------------------------------------------------------------------

    def tick(self, fired: Timer | None = None) -> Decision:
        """One tick, as whoever was woken makes it. What it wrote, it does not write again."""
        before = self.snapshot(fired)
        decision = tick(self.definition, before, self.now_ms, self.gone)
        assert self.apply(decision)
        if not any(isinstance(command, Wake) for command in decision.commands):
            assert tick(self.definition, self.snapshot(fired), self.now_ms, self.gone) == NOTHING
        if decision:
            assert not self.apply(decision), "another tick that saw the same cannot write, too"
            self._look(decision)
        return decision

    def _write_late(self) -> None:
        """Steps may have been reported meanwhile; if another coordinator wrote, this one begins anew."""
        decision = self.slow.pop(self.chance.randrange(len(self.slow)))
        if not decision:
            return
        if self.apply(decision):
            self._look(decision)
        else:
            self.tick()

    def _look(self, decision: Decision) -> None:
        for command in decision.commands:
            if isinstance(command, Enqueue):
                self.handed_over[command.step, command.attempt] += 1
                assert self.handed_over[command.step, command.attempt] == 1
                assert not self.recorded[command.step, None], f"{command.step} had completed"
                self._look_at_fan_in(command.step)

    def _look_at_fan_in(self, step: str) -> None:
        for first in self.definition.before.get(step, ()):
            row = self.steps[first]
            assert row.state in ("completed", "skipped", "failed"), f"{step} started before {first} had ended"
            if row.total is not None and row.state == "completed":
                assert row.completed + row.failed == row.total

    # -- the runtime: what carries out commands --------------------------------------------------------------------

    def carry_out(self, command: Command) -> None:
        if isinstance(command, Enqueue):
            row = self.steps[command.step]
            if (row.state, row.attempt, row.report) == ("running", command.attempt, None):
                self.jobs.setdefault(self._key(command), Job(command.step, command.attempt))
        elif isinstance(command, ListItems):
            self._list(command)
        elif isinstance(command, IssueItems):
            self._issue(command)
        elif isinstance(command, Recount):
            self._recount(command)
        elif isinstance(command, Inquire):
            self._inquire(command)
        elif isinstance(command, Withdraw):
            self._withdraw(command)
        elif isinstance(command, SetTimer):
            key = timer_key(self.run.id, command.reason, command.requeues)
            if key not in self.seen_timers:
                self.seen_timers.add(key)
                self.timers[key] = command.at_ms, Timer(reason=command.reason, requeues=command.requeues)
        elif isinstance(command, Finish):
            self.finished.append(command)
        else:
            self.wake()

    def _key(self, command: Enqueue | Inquire) -> str:
        return job_key(self.run.id, command.step, command.attempt)

    def wake(self, timer: Timer | None = None) -> None:
        if self.chance.random() >= self.losses:
            self.wakes.append(timer)
        if self.chance.random() < self.losses:
            self.wakes.append(timer)

    def _write(self, row: StepRun) -> None:
        self.steps[row.step] = row
        self.run = replace(self.run, version=self.run.version + 1)
        self.wake()

    def _list(self, command: ListItems) -> None:
        row = self.steps[command.step]
        size = self._size(command.step)
        if command.start != row.listed:
            return
        rows = self.items.setdefault(command.step, [])
        rows += [Item() for _ in range(min(ITEMS_PER_PAGE, size - command.start))]
        self._write(replace(row, listed=len(rows), total=size if len(rows) == size else None))

    def _size(self, step: str) -> int:
        return self.steps[step.removeprefix(UNDO)].completed if step.startswith(UNDO) else self.sizes(step)

    def _issue(self, command: IssueItems) -> None:
        row = self.steps[command.step]
        if row.state != "running" or row.attempt != command.attempt:
            return
        items = self.items[command.step]
        there = sum(item.state != "waiting" for item in items)
        for index, item in enumerate(items):
            if there >= row.issued:
                break
            if item.state == "waiting":
                there += 1
                item.state = "issued"
                assert not self.recorded[command.step, index], f"item {index} of {command.step} had completed"
                key = job_key(self.run.id, command.step, item.attempt, index)
                self.jobs.setdefault(key, Job(command.step, item.attempt, index))

    def _recount(self, command: Recount) -> None:
        row = self.steps[command.step]
        if row.attempt != command.attempt or row.recounted == command.attempt:
            return
        items = self.items[command.step]
        for index, item in enumerate(items):
            if item.ending == "completed":
                item.counted = True
            else:
                items[index] = Item(attempt=item.attempt + (item.state != "waiting"))
        done = sum(item.counted for item in items)
        self._write(replace(row, completed=done, failed=0, issued=done, recounted=command.attempt))

    def _inquire(self, command: Inquire) -> None:
        """What has no job was lost; what has ended, and was not heard of, is heard of now."""
        row = self.steps[command.step]
        if row.state != "running" or row.attempt != command.attempt:
            return
        if command.step not in self.items and self._key(command) not in self.jobs:
            self.report(Job(command.step, command.attempt), "lost", None)
        for index, item in enumerate(self.items.get(command.step, ())):
            key = job_key(self.run.id, command.step, item.attempt, index)
            if item.state == "issued" and item.ending is None and key not in self.jobs:
                item.ending = "lost"
        self.wake()

    def _withdraw(self, command: Withdraw) -> None:
        if self.steps[command.step].attempt != command.attempt:
            return
        for job in self.jobs.values():
            if job.step == command.step and job.ending is None and (command.all or self.chance.random() < 0.5):
                job.ending = "cancelled"
                self.report(job, "cancelled", None)

    # -- the queue -------------------------------------------------------------------------------------------------

    def pending(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.ending is None]

    def work(self, job: Job) -> None:
        """A body runs to its end, and its end is recorded if it may be."""
        ending, output = self.body(job.step, job.index, job.attempt)
        self.ran.append((job.step, job.index, job.attempt))
        job.ending = ending
        if ending == "lost":
            del self.jobs[job_key(self.run.id, job.step, job.attempt, job.index)]
            return
        self.report(job, ending, output)

    def report(self, job: Job, ending: Ending, output: Json) -> None:
        """Put beside the row once for each try, whatever state the row is in."""
        if job.index is not None:
            item = self.items[job.step][job.index]
            if (item.attempt, item.state, item.ending) == (job.attempt, "issued", None):
                item.ending = ending
                self._record(job, ending)
        else:
            row = self.steps[job.step]
            if row.attempt == job.attempt and row.report is None:
                made = Report(attempt=job.attempt, ending=ending, output=output, error="boom")
                self.steps[job.step] = replace(row, report=made)
                self._record(job, ending)
        self.wake()

    def _record(self, job: Job, ending: Ending) -> None:
        if ending == "completed":
            self.recorded[job.step, job.index] += 1
            assert self.recorded[job.step, job.index] == 1, "one outcome, once"

    def lose_jobs(self) -> None:
        """The store is lost with all that was in it, timers too."""
        self.jobs.clear()
        self.timers.clear()
        self.seen_timers.clear()

    # -- time ------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Something that can happen does. False when nothing can but the passing of time."""
        choices: list[Callable[[], object]] = []
        if self.outbox:
            choices.append(self._relay)
        if pending := self.pending():
            choices.append(lambda: self.work(self.chance.choice(pending)))
        if self.wakes:
            choices.append(lambda: self.tick(self.wakes.pop(self.chance.randrange(len(self.wakes)))))
            choices.append(lambda: self.slow.append(tick(self.definition, self.snapshot(), self.now_ms, self.gone)))
        if self.slow:
            choices.append(self._write_late)
        if self.unsent and self.run.state not in ENDED_RUNS:
            choices.append(lambda: self.apply(send_event(self.snapshot(), self.unsent.pop())))
        if not choices:
            return False
        self.chance.choice(choices)()
        return True

    def _relay(self) -> None:
        """A command may be carried out, and the relay die before it says so."""
        command = self.outbox[0]
        if self.chance.random() >= self.losses or isinstance(command, Finish):
            self.outbox.pop(0)
        self.carry_out(command)

    def pass_time(self) -> None:
        """To the next timer, or to the moment at which the sweep would look."""
        at = min([moment for moment, _ in self.timers.values()] + [self.run.watch_ms])
        self.now_ms = max(self.now_ms, at)
        for key, (moment, timer) in [*self.timers.items()]:
            if moment <= self.now_ms:
                del self.timers[key]
                self.wake(timer)
        if self.run.watch_ms <= self.now_ms:
            self.wakes.append(None)

    def finish(self, most: int = 4_000) -> Run:
        """Until the run has ended and nothing is under way any more."""
        for _ in range(most):
            if not self.step():
                if self.run.state in ENDED_RUNS:
                    return self.run
                self.pass_time()
        raise AssertionError(f"the run has not ended: {self.run}, {self.steps}")

    def states(self) -> dict[str, str]:
        return {step.name: self.steps.get(step.name, StepRun(step="")).state for step in self.definition.steps}
