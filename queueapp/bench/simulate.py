"""The queue in virtual time: a workload through some slots under a policy, reproducible to the byte. Pure.

The policy is the one that the queue itself runs (`queueapp.policies`), in the tree that the store's scripts are tested
against or in what comes to the same (`choosing`), with its weights and ceilings. What is left out is everything that
takes real time: network, server, processes. A slot that becomes free takes the next job at that very moment. Runs may
fail or be lost by plan (`failures`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from queueapp.bench.entitlement import jain_entitled
from queueapp.bench.failures import Failures, Fate
from queueapp.bench.outcomes import Outcome, Summary, Times, summary, times
from queueapp.bench.sharding import Pending, Shard, Shards, Slots, parts, shard_of
from queueapp.bench.workloads import Job, Workload, digest
from queueapp.policies.charge import Charge
from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.room import UNLIMITED, Limits

TOLD_EVERY = 500
NO_FAILURES = Failures()
STARVING_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run of a job, on the clock of its workload."""

    job: Job
    started_us: int
    attempt: int = 1
    fate: Fate = "completed"

    @property
    def ended_us(self) -> int:
        return self.started_us + self.job.service_us

    @property
    def wait_ms(self) -> float:
        """From arrival to this start."""
        return (self.started_us - self.job.at_us) / 1000

    @property
    def latency_ms(self) -> float:
        """From arrival to this end."""
        return (self.ended_us - self.job.at_us) / 1000

    def columns(self) -> tuple[object, ...]:
        """What the digest knows of it. A first run that completes is told in four columns."""
        plain = (self.job.number, self.job.tenant, self.started_us, self.ended_us)
        return plain if self.attempt == 1 and self.fate == "completed" else (*plain, self.attempt, self.fate)


class SmallFirst(Ordered):
    """Not for use: every small tenant's job before any of the big one's, each in order of submission.

    No policy that never idles a slot while work waits, and never interrupts a job, lets the small tenants wait less.
    What the big tenant pays here is the price of their waiting less at all; a policy's own price is what it adds.
    """

    name = "small_first"

    def __init__(self, big: str) -> None:
        self._big = big

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return job.seq + (2.0**50 if job.tenant == self._big else 0)


class Pool:
    """Slots, and what fills them. What no job declares is an estimate, settled when it ends, as by default."""

    def __init__(self, pending: Pending, slots: int, seed: int, failures: Failures) -> None:
        self._pending = pending
        self._free = slots
        self._seed = seed
        self._failures = failures
        self._running: list[tuple[int, int]] = []  # heap of (end, number)
        self._due: list[tuple[int, int]] = []  # heap of (moment, number): a backoff is over, or a loss is noticed
        self._jobs: dict[int, Job] = {}
        self._held: dict[int, tuple[Ran, Charge]] = {}
        """The latest run of each job that runs, is lost, or waits for its next run."""

    @property
    def next_us(self) -> int | None:
        """When something happens next, unless a job arrives before."""
        if self._running and self._due:
            return min(self._running[0][0], self._due[0][0])
        return self._running[0][0] if self._running else self._due[0][0] if self._due else None

    def submit(self, job: Job) -> None:
        self._jobs[job.number] = job
        self._pending.push(_candidate(job, job.at_us))

    def advance(self, now_us: int) -> None:
        """End what runs until `now_us`: learn from it, settle its charge, free its slot. Then what is due is back."""
        while self._running and self._running[0][0] <= now_us:
            ran, charge = self._held[heapq.heappop(self._running)[1]]
            self._free += 1
            if ran.fate == "lost":
                heapq.heappush(self._due, (_noticed_us(ran, self._failures), ran.job.number))
                continue
            if ran.fate == "completed":
                self._pending.learn(ran.job.tenant, ran.job.service_us / 1000)
            self._pending.let_go(charge, ran.job.service_us / 1000)
            if not self._goes_on(ran):
                del self._held[ran.job.number]
            else:
                self._pending.park(_candidate(ran.job, ran.job.at_us))
                heapq.heappush(self._due, (now_us + self._failures.backoff_ms * 1000, ran.job.number))
        while self._due and self._due[0][0] <= now_us:
            ran, charge = self._held[heapq.heappop(self._due)[1]]
            if ran.fate == "lost":
                self._pending.let_go(charge, ran.job.service_us / 1000)
                if not self._goes_on(ran):
                    del self._held[ran.job.number]
                    continue
            self._jobs[ran.job.number] = ran.job
            self._pending.push(_candidate(ran.job, now_us), charge.rank if ran.fate == "lost" else None)

    def dispatch(self, now_us: int) -> Iterator[Ran]:
        """Start jobs while there are free slots."""
        while self._free and (charge := self._pending.pick()) is not None:
            job = self._jobs.pop(int(charge.id))
            ran = self._run(job, now_us) if self._failures else Ran(job=job, started_us=now_us)
            self._held[job.number] = (ran, charge)
            self._free -= 1
            heapq.heappush(self._running, (now_us + job.service_us, job.number))
            yield ran

    def _run(self, job: Job, now_us: int) -> Ran:
        before = self._held.get(job.number)
        attempt = 1 if before is None else before[0].attempt + 1
        fate = self._failures.fate(self._seed, job.number, attempt)
        return Ran(job=job, started_us=now_us, attempt=attempt, fate=fate)

    def _goes_on(self, ran: Ran) -> bool:
        return ran.fate != "completed" and ran.attempt < self._failures.attempts


def _candidate(job: Job, ready_us: int) -> Candidate:
    return Candidate(
        id=str(job.number),
        tenant=job.tenant,
        lane=job.lane,
        seq=job.number,
        priority=job.priority,
        cost=job.cost,
        ready_ms=ready_us // 1000,
        deadline_ms=max(1, job.deadline_us // 1000) if job.deadline_us else 0,
    )


def _noticed_us(ran: Ran, failures: Failures) -> int:
    """When it is known that a run is lost: its lease is over, and not before it would have ended."""
    return max(ran.ended_us, ran.started_us + failures.lease_ms * 1000)


def simulate(
    workload: Workload,
    policy: Policy,
    told: Callable[[int], None] = lambda _: None,
    *,
    failures: Failures = NO_FAILURES,
    limits: Mapping[str, Limits] = MappingProxyType({}),
    shards: int = 1,
    shard_slots: Slots = "shared",
) -> list[Ran]:
    """The runs in the order in which they started. `told` hears now and then how many have.

    At one moment ends come before what is due again, that before arrivals, and all before the slots are filled.
    """
    if shard_slots == "split" and shards > 1:
        return _apart(workload, policy, told, failures, limits, shards)
    pending = Shard(policy, limits) if shards == 1 else Shards(shards, lambda: Shard(policy, limits))
    return _through(Pool(pending, workload.slots, workload.seed, failures), workload.jobs, told)


def _through(pool: Pool, jobs: Sequence[Job], told: Callable[[int], None]) -> list[Ran]:
    ran = list[Ran]()
    arrived = 0
    while True:
        next_us = pool.next_us
        if arrived < len(jobs):
            now_us = jobs[arrived].at_us if next_us is None else min(jobs[arrived].at_us, next_us)
        elif next_us is None:
            return ran
        else:
            now_us = next_us
        pool.advance(now_us)
        while arrived < len(jobs) and jobs[arrived].at_us <= now_us:
            pool.submit(jobs[arrived])
            arrived += 1
        before = len(ran) // TOLD_EVERY
        ran.extend(pool.dispatch(now_us))
        if len(ran) // TOLD_EVERY > before:
            told(len(ran))


def _apart(
    workload: Workload,
    policy: Policy,
    told: Callable[[int], None],
    failures: Failures,
    limits: Mapping[str, Limits],
    shards: int,
) -> list[Ran]:
    """Shards that share nothing, slots neither: each is a queue of its own. Every one needs a slot."""
    jobs: list[list[Job]] = [[] for _ in range(shards)]
    for job in workload.jobs:
        jobs[shard_of(job.tenant, shards)].append(job)
    ran = list[Ran]()
    for own, slots in zip(jobs, parts(workload.slots, shards), strict=True):
        pool = Pool(Shard(policy, limits), slots, workload.seed, failures)
        ran += _through(pool, own, partial(_told_on, told, len(ran)))
    return sorted(ran, key=lambda run: run.started_us)


def _told_on(told: Callable[[int], None], before: int, started: int) -> None:
    told(before + started)


# -- what came of it -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload under one policy."""

    summary: Summary
    small: Times
    """All tenants but the big one, taken together; nobody where none is the big one."""
    big: Times
    lowest: Times
    """All jobs of the lowest priority there is; nobody where there is but one."""
    above: Times
    """All the others."""
    jain_entitled: float
    """Over what each tenant had until the last arrival, in parts of what it was entitled to (`entitlement`)."""
    digest: str
    """SHA-256 over all runs in the order of their starts, with start and end of each."""

    def figures(self) -> dict[str, float]:
        """What is compared from run to run."""
        return self.summary.figures() | {"jain_entitled": self.jain_entitled}


def result(
    workload: Workload,
    ran: Sequence[Ran],
    *,
    failures: Failures = NO_FAILURES,
    limits: Mapping[str, Limits] = MappingProxyType({}),
    starving_ms: int = STARVING_MS,
) -> Result:
    """The figures of a simulation, with the `failures` and `limits` that it was given. Needs at least one job."""
    ended, big = outcomes(ran, failures), workload.big
    lowest = min(one.priority for one in ended)
    several = any(one.priority > lowest for one in ended)
    return Result(
        summary=summary(ended, slots=workload.slots, starving_ms=starving_ms, tenants=workload.tenants),
        small=times([one for one in ended if big is not None and one.tenant != big], starving_ms),
        big=times([one for one in ended if one.tenant == big], starving_ms),
        lowest=times([one for one in ended if several and one.priority == lowest], starving_ms),
        above=times([one for one in ended if one.priority > lowest], starving_ms),
        jain_entitled=jain_entitled(
            ((run.job.tenant, run.started_us, run.ended_us) for run in ran),
            workload.jobs[-1].at_us,
            lambda tenant: limits.get(tenant, UNLIMITED).weight,
        ),
        digest=digest(run.columns() for run in ran),
    )


def outcomes(ran: Sequence[Ran], failures: Failures = NO_FAILURES) -> list[Outcome]:
    """What became of each job, in the order in which their last runs began."""
    earlier: dict[int, tuple[int, int]] = {}  # number → first start, time in slots so far
    found = []
    for run in ran:
        job = run.job
        started_us, busy_us = earlier.pop(job.number, (run.started_us, 0)) if earlier else (run.started_us, 0)
        busy_us += job.service_us
        if run.fate != "completed" and run.attempt < failures.attempts:
            earlier[job.number] = (started_us, busy_us)
            continue
        found.append(
            Outcome(
                tenant=job.tenant,
                priority=job.priority,
                planned_us=job.at_us,
                started_us=started_us,
                ended_us=_noticed_us(run, failures) if run.fate == "lost" else run.ended_us,
                busy_us=busy_us,
                deadline_us=job.deadline_us,
                attempts=run.attempt,
                completed=run.fate == "completed",
                number=job.number,
                lane=job.lane,
            )
        )
    return found
