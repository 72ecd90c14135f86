"""The queue in virtual time: a workload through some slots under a policy, reproducible to the byte. Pure.

The policy is the one that the queue itself runs (`queueapp.policies`), in the tree that the store's scripts are tested
against. What is left out is everything that takes real time: network, server, processes. A slot that becomes free takes
the next job at that very moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from queueapp.bench.statistics import percentile, ratio
from queueapp.bench.workloads import Job, Workload, digest
from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.tree import Charge, Tree

DEFAULT_COST_MS = 50.0
"""The estimate before the first job has ended, as of `Pool.default_cost`."""
LEARNING = 1 / 8
"""Weight of the newest run time in the estimate, as in the store."""
TOLD_EVERY = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A job that ran, on the clock of its workload."""

    job: Job
    started_us: int

    @property
    def ended_us(self) -> int:
        return self.started_us + self.job.service_us

    @property
    def wait_ms(self) -> float:
        """From arrival to start."""
        return (self.started_us - self.job.at_us) / 1000

    @property
    def latency_ms(self) -> float:
        """From arrival to end."""
        return (self.ended_us - self.job.at_us) / 1000


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
    """Slots, and the tree that fills them. Costs are estimates, settled when a job ends, as by default."""

    def __init__(self, policy: Policy, slots: int) -> None:
        self._tree = Tree(policy, estimate=lambda _: self._estimate)
        self._estimate = DEFAULT_COST_MS
        self._free = slots
        self._running: list[tuple[int, int]] = []  # heap of (end, number)
        self._charges: dict[int, Charge] = {}
        self._jobs: dict[int, Job] = {}

    @property
    def next_end_us(self) -> int | None:
        return self._running[0][0] if self._running else None

    def submit(self, job: Job) -> None:
        self._jobs[job.number] = job
        self._tree.push(
            Candidate(id=str(job.number), tenant=job.tenant, seq=job.number, ready_ms=job.at_us // 1000),
        )

    def end(self, now_us: int) -> None:
        """End what runs until `now_us`: learn from it, settle its charge, free its slot."""
        while self._running and self._running[0][0] <= now_us:
            _, number = heapq.heappop(self._running)
            run_ms = self._jobs.pop(number).service_us / 1000
            self._estimate += (run_ms - self._estimate) * LEARNING
            charge = self._charges.pop(number)
            with self._tree.together():
                self._tree.settle(charge, run_ms)
                self._tree.release(charge.id)
            self._free += 1

    def dispatch(self, now_us: int) -> Iterator[Ran]:
        """Start jobs while there are free slots."""
        while self._free and (charge := self._tree.pick()) is not None:
            job = self._jobs[int(charge.id)]
            self._charges[job.number] = charge
            self._free -= 1
            heapq.heappush(self._running, (now_us + job.service_us, job.number))
            yield Ran(job=job, started_us=now_us)


def simulate(workload: Workload, policy: Policy, told: Callable[[int], None] = lambda _: None) -> list[Ran]:
    """The jobs in the order in which they started. `told` hears now and then how many have.

    At one moment ends come before arrivals, and both before the slots are filled.
    """
    pool, jobs, ran = Pool(policy, workload.slots), workload.jobs, list[Ran]()
    arrived = 0
    while True:
        moments = [jobs[arrived].at_us] if arrived < len(jobs) else []
        if (end_us := pool.next_end_us) is not None:
            moments.append(end_us)
        if not moments:
            return ran
        now_us = min(moments)
        pool.end(now_us)
        while arrived < len(jobs) and jobs[arrived].at_us <= now_us:
            pool.submit(jobs[arrived])
            arrived += 1
        before = len(ran) // TOLD_EVERY
        ran.extend(pool.dispatch(now_us))
        if len(ran) // TOLD_EVERY > before:
            told(len(ran))


# -- what came of it -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Waits and latencies of some jobs in ms; NaN where there are none."""

    jobs: int
    wait_p50_ms: float
    wait_p95_ms: float
    wait_max_ms: float
    latency_mean_ms: float
    latency_p95_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload under one policy."""

    small: Times
    """All tenants but the big one, taken together."""
    big: Times
    tenants: dict[str, Times]
    makespan_s: float
    """From the first arrival to the last end, in virtual time."""
    utilisation: float
    """Part of the slots' time, over the makespan, in which they ran jobs."""
    digest: str
    """SHA-256 over the jobs in the order of their starts, with start and end of each."""


def result(workload: Workload, ran: Sequence[Ran]) -> Result:
    """The figures of a run. Needs at least one job."""
    first_us, last_us = min(run.job.at_us for run in ran), max(run.ended_us for run in ran)
    busy_us = sum(run.job.service_us for run in ran)
    names = sorted({run.job.tenant for run in ran})
    return Result(
        small=times([run for run in ran if run.job.tenant != workload.big]),
        big=times([run for run in ran if run.job.tenant == workload.big]),
        tenants={name: times([run for run in ran if run.job.tenant == name]) for name in names},
        makespan_s=(last_us - first_us) / 1_000_000,
        utilisation=ratio(busy_us, workload.slots * (last_us - first_us)),
        digest=digest((run.job.number, run.job.tenant, run.started_us, run.ended_us) for run in ran),
    )


def times(ran: Sequence[Ran]) -> Times:
    waits, latencies = sorted(run.wait_ms for run in ran), sorted(run.latency_ms for run in ran)
    return Times(
        jobs=len(ran),
        wait_p50_ms=percentile(waits, 50),
        wait_p95_ms=percentile(waits, 95),
        wait_max_ms=percentile(waits, 100),
        # In whole microseconds, so that the sum does not depend on its order.
        latency_mean_ms=ratio(sum(run.ended_us - run.job.at_us for run in ran), len(ran)) / 1000,
        latency_p95_ms=percentile(latencies, 95),
    )
