"""The small model of a shard: what each transition does to a job, in plain Python, without indices or order.

The state machine calls the store and this ledger side by side. The ledger does not know which job comes next (the
parity test holds that); it knows which jobs may be leased at all, and what every word of every answer must be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from queueapp.states import Outcome, State
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import Completed, Failed, Finish, LeasedJob, NewJob, Returned

CLAMPED_MS = 5_000
REFRESHED_MS = 1_000
SUSPECT_CRASHES = 2
PROMOTED_PER_CYCLE, EXPIRED_PER_CYCLE, RECOVERED_PER_CYCLE = 16, 16, 8


@dataclass(slots=True)
class Job:
    """One job. `state` None = trimmed away; `closed` = the last attempt that its holder ended."""

    new: NewJob
    state: State | None
    expires_ms: int = 0
    due_ms: int = 0
    deadline_ms: int = 0
    attempts: int = 0
    errors: int = 0
    crashes: int = 0
    begun: bool = False
    closed: int = 0
    worker: str = ""
    cancelling: bool = False
    """It was told to stop while it ran: however its lease ends, it ends as cancelled."""
    outcome: Outcome | None = None
    group: str = ""
    """Of a dead letter."""
    over_ms: int = 0
    """When it ended or died."""
    unknown_since_ms: int | None = None

    @property
    def waits(self) -> bool:
        return self.state in (State.PENDING, State.SCHEDULED)

    @property
    def suspect(self) -> bool:
        return self.crashes >= SUSPECT_CRASHES


@dataclass
class Ledger:
    """All jobs of a shard, its limits, and its clock: `raw_ms` is what the server's clock shows."""

    raw_ms: int
    jobs: dict[str, Job] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(tenant, idempotency key) → (id, fingerprint)."""
    pool: PoolConf = field(default_factory=PoolConf)
    scopes: dict[tuple[str, str], ScopeLimits] = field(default_factory=dict)
    waiters: dict[str, str] = field(default_factory=dict)
    answered: list[str] = field(default_factory=list)
    leased: int = 0
    completed: int = 0
    _seen_ms: int = 0

    def now(self) -> int:
        """The moment that the next script works with: a small step back is clamped, a large one accepted."""
        if self.raw_ms < self._seen_ms <= self.raw_ms + CLAMPED_MS:
            return self._seen_ms
        if self.raw_ms < self._seen_ms or self.raw_ms - self._seen_ms >= REFRESHED_MS:
            self._seen_ms = self.raw_ms
        return self.raw_ms

    def of(self, *states: State) -> list[Job]:
        return [job for job in self.jobs.values() if job.state in states]

    # -- what may run -------------------------------------------------------------------------------------------

    def in_flight(self, tenant: str = "", lane: str = "") -> int:
        return sum(
            (not tenant or job.new.tenant == tenant) and (not lane or job.new.lane == lane)
            for job in self.of(State.ACTIVE)
        )

    def held(self, worker: str) -> list[Job]:
        return [job for job in self.of(State.ACTIVE) if job.worker == worker]

    def room(self, tenant: str, lane: str) -> bool:
        """Pool, tenant and lane all let one more job run."""
        if self.pool.paused or self._full(self.pool.max_in_flight, self.in_flight()):
            return False
        return self._lets(tenant, "") and self._lets(tenant, lane)

    def leasable(self) -> list[Job]:
        return [
            job
            for job in self.of(State.PENDING)
            if self.room(job.new.tenant, job.new.lane)
            and all(self.holders(key.digest) < key.limit for key in job.new.keys)
        ]

    def surely_leasable(self) -> list[Job]:
        """Those that have no keys: another one may wait for the moment at which its key is offered."""
        return [job for job in self.leasable() if not job.new.keys]

    def keyed(self) -> list[Job]:
        """Pending jobs with keys."""
        return [job for job in self.of(State.PENDING) if job.new.keys]

    def holders(self, digest: str) -> int:
        return sum(key.digest == digest for job in self.of(State.ACTIVE) for key in job.new.keys)

    def check_keys(self) -> None:
        """No key has more jobs running than the highest limit that one of them gives it."""
        limits: dict[str, int] = {}
        for job in self.of(State.ACTIVE):
            for key in job.new.keys:
                limits[key.digest] = max(key.limit, limits.get(key.digest, 0))
        assert all(self.holders(name) <= limit for name, limit in limits.items())

    def _lets(self, tenant: str, lane: str) -> bool:
        scope = self.scopes.get((tenant, lane))
        return scope is None or not (scope.paused or self._full(scope.max_in_flight, self.in_flight(tenant, lane)))

    @staticmethod
    def _full(ceiling: int | None, used: int) -> bool:
        return ceiling is not None and used >= ceiling

    # -- arrows -------------------------------------------------------------------------------------------------

    def enqueue(self, new: NewJob) -> tuple[str, str]:
        """The outcome, and the id that stands for the job."""
        known = self.jobs.get(new.id)
        if known is not None and known.state is not None:
            return "enqueued", new.id
        key = (new.tenant, new.idempotency)
        if new.idempotency and key in self.keys:
            owner, fingerprint = self.keys[key]
            return ("exists" if fingerprint == new.fingerprint else "conflict"), owner
        if new.idempotency:
            self.keys[key] = (new.id, new.fingerprint)
        now = self.now()
        self.jobs[new.id] = Job(
            new=new,
            state=State.SCHEDULED if new.delay_ms else State.PENDING,
            due_ms=now + new.delay_ms,
            expires_ms=now + new.expires_after_ms if new.expires_after_ms else 0,
        )
        return "enqueued", new.id

    def lease(self, leased: LeasedJob, worker: str, lease_ms: int, *, begun: bool) -> None:
        job, now = self.jobs[leased.id], self.now()
        assert job.state is State.PENDING, f"{leased.id} was leased although it is {job.state}"
        assert not job.expires_ms or job.expires_ms > now, f"{leased.id} was leased although it has expired"
        assert self.room(job.new.tenant, job.new.lane), f"{leased.id} was leased above a ceiling or in a pause"
        assert all(self.holders(key.digest) < key.limit for key in job.new.keys), f"{leased.id} has a full key"
        job.state, job.worker, job.begun = State.ACTIVE, worker, begun or job.suspect
        job.attempts += 1
        job.deadline_ms = now + lease_ms
        self.leased += 1
        got = (leased.attempts, leased.errors, leased.crashes, leased.leased_ms, leased.deadline_ms)
        assert got == (job.attempts, job.errors, job.crashes, now, job.deadline_ms)
        assert (leased.tenant, leased.lane, leased.task) == (job.new.tenant, job.new.lane, job.new.task)

    def use_up_an_attempt(self, job_id: str) -> None:
        """It was begun where nobody may hear of it."""
        job = self.jobs[job_id]
        job.attempts = job.closed = 1

    def owns(self, job_id: str, attempts: int) -> bool:
        job = self.jobs[job_id]
        return job.state is State.ACTIVE and job.attempts == attempts

    def refusal(self, job_id: str, attempts: int) -> str:
        """The word for a call about an attempt that holds no lease."""
        job = self.jobs[job_id]
        return "gone" if job.state is None else "done" if job.closed == attempts else "stale"

    def finish(self, finish: Finish) -> str:
        if not self.owns(finish.id, finish.attempts):
            return self.refusal(finish.id, finish.attempts)
        job, now = self.jobs[finish.id], self.now()
        job.closed = finish.attempts
        if job.cancelling:
            self._end(job, Outcome.CANCELLED)
            return "cancelled"
        if isinstance(finish, Completed):
            self.completed += 1
            self._end(job, Outcome.COMPLETED)
            return "done"
        job.errors += 1
        job.unknown_since_ms = None
        if self._may_retry(job, finish, now):
            job.state, job.due_ms = State.SCHEDULED, now + (finish.retry_ms or 0)
            return "retry"
        self._die(job, finish.reason, finish.fingerprint)
        return "dead"

    def give_back(self, returned: Returned) -> str:
        if not self.owns(returned.id, returned.attempts):
            return self.refusal(returned.id, returned.attempts)
        job, now = self.jobs[returned.id], self.now()
        job.closed = returned.attempts
        if job.cancelling:
            self._end(job, Outcome.CANCELLED)
            return "cancelled"
        if returned.unknown_task:
            job.unknown_since_ms = now if job.unknown_since_ms is None else job.unknown_since_ms
            if now - job.unknown_since_ms >= returned.grace_ms:
                self._die(job, "unknown_task")
                return "dead"
        job.state = State.SCHEDULED if returned.delay_ms else State.PENDING
        job.due_ms = now + returned.delay_ms
        return "done"

    def extend(self, leases: Iterable[tuple[str, int]], lease_ms: int) -> list[str]:
        """The ids that were lost."""
        lost = []
        for job_id, attempts in leases:
            if self.owns(job_id, attempts):
                self.jobs[job_id].deadline_ms = self.now() + lease_ms
            else:
                lost.append(job_id)
        return lost

    def begin(self, begun: Iterable[tuple[str, int]]) -> None:
        for job_id, attempts in begun:
            if self.owns(job_id, attempts):
                self.jobs[job_id].begun = True

    def stopping(self, worker: str) -> set[str]:
        """The jobs of a worker that were told to stop."""
        return {job.new.id for job in self.held(worker) if job.cancelling}

    def cancel(self, job_id: str) -> str:
        job = self.jobs[job_id]
        if job.state is State.ACTIVE:
            job.cancelling = True
            return "stopping"
        if not job.waits:
            return self._word(job)
        self._end(job, Outcome.CANCELLED)
        return "cancelled"

    def bury(self, job_id: str) -> str:
        job = self.jobs[job_id]
        if not job.waits:
            return self._word(job)
        self._die(job, "by_hand")
        return "moved"

    def redrive(self, job_id: str) -> str:
        job = self.jobs[job_id]
        if job.state is not State.DEAD:
            return "gone" if job.state is None else "already"
        job.state, job.errors, job.crashes, job.unknown_since_ms = State.PENDING, 0, 0, None
        job.expires_ms = 0
        return "retried"

    def discard(self, job_id: str) -> str:
        job = self.jobs[job_id]
        if job.state is not State.DEAD:
            return "gone" if job.state is None else "already"
        self._end(job, Outcome.DISCARDED)
        return "discarded"

    # -- time ---------------------------------------------------------------------------------------------------

    def due(self, limit: int) -> list[Job]:
        jobs = [job for job in self.of(State.SCHEDULED) if job.due_ms <= self.now()]
        return sorted(jobs, key=lambda job: (job.due_ms, job.new.id))[:limit]

    def expiring(self, limit: int) -> list[Job]:
        jobs = [job for job in self.jobs.values() if job.waits and 0 < job.expires_ms <= self.now()]
        return sorted(jobs, key=lambda job: (job.expires_ms, job.new.id))[:limit]

    def overdue(self, limit: int) -> list[Job]:
        jobs = [job for job in self.of(State.ACTIVE) if job.deadline_ms <= self.now()]
        return sorted(jobs, key=lambda job: (job.deadline_ms, job.new.id))[:limit]

    def promote(self, jobs: Iterable[Job]) -> int:
        return sum(1 for job in jobs if self._move(job, State.SCHEDULED, State.PENDING))

    def expire(self, jobs: Iterable[Job]) -> int:
        gone = [job for job in jobs if job.waits]
        for job in gone:
            self._end(job, Outcome.EXPIRED)
        return len(gone)

    def recover(self, jobs: Iterable[Job]) -> tuple[int, int, int]:
        """How many came back, died, and ended as cancelled. Only a job that had begun counts a crash."""
        back = dead = cancelled = 0
        for job in jobs:
            if job.state is State.ACTIVE and job.cancelling:
                self._end(job, Outcome.CANCELLED)
                cancelled += 1
            elif job.state is State.ACTIVE:
                job.crashes += job.begun
                if job.begun and job.crashes >= job.new.max_crashes:
                    self._die(job, "worker_lost")
                    dead += 1
                else:
                    job.state = State.PENDING
                    back += 1
        return back, dead, cancelled

    def next_due_ms(self) -> int:
        moments = [job.due_ms for job in self.of(State.SCHEDULED)]
        moments += [job.expires_ms for job in self.jobs.values() if job.waits and job.expires_ms]
        return max(0, min(moments) - self.now()) if moments else -1

    def trim(self, result_ttl_ms: int, result_max: int, dead_ttl_ms: int, dead_max: int, window_ms: int) -> None:
        """Ended and dead jobs by age and number, the dead by number per tenant; none within the window."""
        now, ended = self.now(), self._by_end(State.ENDED)
        old = [job for job in ended if job.over_ms <= now - max(result_ttl_ms, window_ms)]
        excess = ended[: max(0, len(ended) - result_max)]
        if len(excess) > len(old):
            old = [job for job in excess if job.over_ms <= now - window_ms]
        dead = self._by_end(State.DEAD)
        old += [job for job in dead if job.over_ms <= now - max(dead_ttl_ms, window_ms)]
        for job in old:
            job.state = None
        for tenant in {job.new.tenant for job in dead}:
            left = [job for job in dead if job.new.tenant == tenant and job.state is State.DEAD]
            for job in left[: max(0, len(left) - dead_max)]:
                if job.over_ms <= now - window_ms:
                    job.state = None

    # -- parts --------------------------------------------------------------------------------------------------

    def indices(self) -> Iterator[tuple[str, str]]:
        """(id, state) of every job that the store must still know."""
        return ((job_id, job.state.value) for job_id, job in self.jobs.items() if job.state is not None)

    def groups(self) -> dict[str, dict[str, int]]:
        """Group → its dead letters by id and time of death."""
        groups: dict[str, dict[str, int]] = {}
        for job in self.of(State.DEAD):
            groups.setdefault(job.group, {})[job.new.id] = job.over_ms
        return groups

    def _by_end(self, state: State) -> Sequence[Job]:
        return sorted(self.of(state), key=lambda job: (job.over_ms, job.new.id))

    def _may_retry(self, job: Job, failed: Failed, now: int) -> bool:
        if failed.retry_ms is None or job.errors >= job.new.max_attempts:
            return False
        return not job.expires_ms or job.expires_ms > now + failed.retry_ms

    def _move(self, job: Job, source: State, target: State) -> bool:
        if job.state is not source:
            return False
        job.state = target
        return True

    def _end(self, job: Job, outcome: Outcome) -> None:
        job.state, job.outcome = State.ENDED, outcome
        self._over(job)

    def _die(self, job: Job, reason: str, fingerprint: str = "") -> None:
        """All jobs of the model are of one task: number 1."""
        job.state = State.DEAD
        job.group = fingerprint or hashlib.sha1(f"1|{reason}".encode()).hexdigest()[:12]
        self._over(job)

    def _over(self, job: Job) -> None:
        job.over_ms = self.now()
        if self.waiters.pop(job.new.id, None):
            self.answered.append(job.new.id)

    @staticmethod
    def _word(job: Job) -> str:
        return "gone" if job.state is None else "active" if job.state is State.ACTIVE else "already"
