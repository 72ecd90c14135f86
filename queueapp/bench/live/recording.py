"""From what the store tells of a pool's jobs to a trace: which arrived, how long they ran, what is left out and why.

A job belongs to the recording that was enqueued while it went on. What has ended tells who sent it, when, and how long
it ran, but neither its priority nor its deadline: those are told while it waits or runs. A job that nobody has seen by
then is recorded without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

from queueapp.bench.workloads import Job
from queueapp.inspection.jobs import JobView
from queueapp.names import TENANT_FORM
from queueapp.states import State
from queueapp.store.views import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A job that is done with. Moments are milliseconds on the store's clock."""

    left_out: str
    """Why it is in no trace: how it ended, or whose it is; "" = it is in one."""
    arrived_ms: int
    """When it might have run first."""
    service_us: int
    """0 = it did not run to an end of its own."""
    tenant: str
    lane: str
    cost: float
    priority: int
    deadline_ms: int
    seen: bool
    """Its priority and deadline are known."""


class Recording:
    """What is known of the jobs of one pool since `begin_ms` on the store's clock."""

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.end_ms: int | None = None
        """The last millisecond whose arrivals belong to it; None while it goes on."""
        self.done = 0
        """How many jobs of the recording are done with, in whatever way."""
        self._told: dict[str, tuple[int, int]] = {}
        """Id → priority and deadline of a job that waits or runs."""
        self._found: dict[str, Recorded] = {}

    def knows(self, job_id: str) -> bool:
        """Its priority and deadline need not be asked again."""
        return job_id in self._told

    def saw(self, record: JobRecord) -> None:
        """A job that waits or runs."""
        if record.state not in (State.ENDED, State.MOVING):
            self._told[record.id] = record.priority, record.deadline_ms

    def ended(self, record: JobRecord) -> None:
        """A job that has ended, or is dead. What is told later of the same one stands: a dead letter may run again."""
        told = self._told.pop(record.id, None)
        if record.submitted_ms < self.begin_ms or (self.end_ms is not None and record.submitted_ms > self.end_ms):
            return
        if record.state is State.DEAD:
            told = record.priority, record.deadline_ms
        priority, deadline_ms = told or (0, 0)
        self.done += record.id not in self._found
        self._found[record.id] = Recorded(
            left_out=_left_out(record),
            arrived_ms=record.submitted_ms + (record.waits.schedule_ms if record.waits else 0),
            service_us=_service_us(record),
            tenant=record.tenant,
            lane=record.lane,
            cost=0.0 if record.learnt else record.charged,
            priority=priority,
            deadline_ms=deadline_ms,
            seen=told is not None,
        )

    def jobs(self, *, anonymous: bool = False) -> list[Job]:
        """The trace, in order of arrival."""
        found = [(one.arrived_ms, job_id, one) for job_id, one in self._found.items() if not one.left_out]
        found.sort(key=lambda each: each[:2])  # ids of one sender grow, so that its jobs keep their order
        tenants, lanes = _Names("t", anonymous), _Names("l", anonymous, {"main": "main"})
        return [
            Job(
                number=number,
                at_us=self._us(one.arrived_ms),
                tenant=tenants[one.tenant],
                service_us=one.service_us,
                lane=lanes[one.lane],
                priority=one.priority,
                # One that was over before the recording began is over, and 0 would be none.
                deadline_us=max(1, self._us(one.deadline_ms)) if one.deadline_ms else 0,
                cost=one.cost,
            )
            for number, (_, _, one) in enumerate(found, start=1)
        ]

    def left_out(self) -> Mapping[str, int]:
        """How many jobs of the recording are in no trace, by the reason."""
        return Counter(one.left_out for one in self._found.values() if one.left_out)

    def unseen(self) -> int:
        """How many jobs of the trace have neither priority nor deadline because nobody saw them before they ended."""
        return sum(not one.seen and not one.left_out for one in self._found.values())

    def _us(self, moment_ms: int) -> int:
        return (moment_ms - self.begin_ms) * 1000


class _Names(dict[str, str]):
    """What names are called in the trace: as they are, or a letter and a number in the order in which they came."""

    def __init__(self, letter: str, anonymous: bool, kept: Mapping[str, str] | None = None) -> None:
        super().__init__(kept or {})
        self._letter = letter
        self._anonymous = anonymous
        self._numbers = count(1)

    def __missing__(self, name: str) -> str:
        called = self[name] = f"{self._letter}{next(self._numbers)}" if self._anonymous else name
        return called


def _left_out(record: JobRecord) -> str:
    if TENANT_FORM.fullmatch(record.tenant) is None:
        return "internal"  # Ductor's own tenants have names that nobody else can have
    return "" if _service_us(record) else (record.outcome or record.state).value


def _service_us(record: JobRecord) -> int:
    """How long its last attempt ran; 0 for one that did not come to an end of its own.

    What a learnt cost is settled with is the run as the worker measured it, without the time in which it was leased and
    had not begun. A body may have set a cost of its own, which is no time: the lease bounds it.
    """
    run = JobView(id=record.id, pool="", record=record).duration
    if run is None:
        return 0
    ms = run / timedelta(milliseconds=1)
    if record.learnt and record.charged:
        ms = min(ms, record.charged)
    return max(1, round(ms * 1000))
