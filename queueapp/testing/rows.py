"""A job in memory: what became of it, how a worker leases it, and what readers see of it. `memory` keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

from queueapp.moments import now_ms
from queueapp.states import Outcome, State
from queueapp.store.family_records import Ended, OnFailure
from queueapp.store.records import LeasedJob, NewJob
from queueapp.store.views import ErrorRecord, JobRecord


@dataclass(slots=True, kw_only=True)
class Row:
    """A job and what became of it."""

    job: NewJob
    state: State
    submitted_ms: int
    due_ms: int = 0
    attempts: int = 0
    errors: list[ErrorRecord] = field(default_factory=list)
    first_leased_ms: int = 0
    leased_ms: int = 0
    ended_ms: int = 0
    worker: str = ""
    outcome: Outcome | None = None
    reason: str = ""
    result: bytes | None = None
    charged: float = 0
    data: dict[str, bytes] = field(default_factory=dict)
    checkpoint: bytes | None = None
    cancelling_ms: int = 0
    parent: str = ""
    """Who waits for it; by public id where another pool has it."""
    on_failure: OnFailure = "fail_parent"
    position: int = 0
    open: set[str] = field(default_factory=set)
    """Its children that have not ended, named as by `parent`."""
    ended: dict[str, Ended] = field(default_factory=dict)
    failed_by: tuple[str, str] | None = None
    """A child whose failure counts as an error of this job, and how it failed."""
    failed_child: str = ""

    @property
    def waits(self) -> bool:
        return self.state.waits

    def end(self, outcome: Outcome, at_ms: int) -> None:
        self.state, self.outcome, self.ended_ms, self.checkpoint = State.ENDED, outcome, at_ms, None

    def lease(self, worker: str) -> LeasedJob:
        """A worker has it now."""
        self.state, self.worker, self.leased_ms = State.ACTIVE, worker, now_ms()
        self.attempts += 1
        self.first_leased_ms = self.first_leased_ms or self.leased_ms
        return LeasedJob(
            id=self.job.id,
            attempts=self.attempts,
            errors=len(self.errors),
            crashes=0,
            task=self.job.task,
            tenant=self.job.tenant,
            lane=self.job.lane,
            priority=self.job.priority,
            cost=self.job.cost,
            submitted_ms=self.submitted_ms,
            ready_ms=self.due_ms or self.submitted_ms,
            leased_ms=self.leased_ms,
            deadline_ms=self.leased_ms + 3_600_000,
            max_attempts=self.job.max_attempts,
            payload=self.job.payload,
        )

    def record(self) -> JobRecord:
        """What readers see of it."""
        over = self.state is State.ENDED
        return JobRecord(
            id=self.job.id,
            state=self.state,
            task=self.job.task,
            tenant=self.job.tenant,
            lane=self.job.lane,
            outcome=self.outcome,
            reason=self.reason,
            failed_child=self.failed_child,
            priority=self.job.priority,
            charged=self.charged,
            learnt=self.charged > 0 and not self.job.cost,
            attempts=self.attempts,
            error_count=len(self.errors),
            submitted_ms=self.submitted_ms,
            ready_ms=self.due_ms or self.submitted_ms,
            first_leased_ms=self.first_leased_ms,
            leased_ms=self.leased_ms,
            ended_ms=self.ended_ms,
            due_ms=self.due_ms if self.state is State.SCHEDULED else 0,
            deadline_ms=0 if over else self.job.deadline_ms,
            worker=self.worker,
            cancelling_ms=self.cancelling_ms,
            max_attempts=self.job.max_attempts,
            payload=None if over else self.job.payload,
            result=self.result,
            errors=tuple(self.errors),
            data=dict(self.data),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A debounce: its job, and the moment of its first call."""

    id: str
    first_ms: int
