"""The real store and the pure reference side by side: the same calls to both, the same leases demanded of both.

`Pair` knows of the store only its public methods and of the reference only `Tree`. What a script does with a batch is
written here once more in plain Python: finishes are settled in their order, then slots are given back.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from queueapp.policies.protocol import Candidate
from queueapp.policies.registry import POLICIES
from queueapp.policies.tree import Charge, Limits, Tree
from queueapp.store.records import Completed, Failed, LeasedJob, NewJob, PoolConf, Returned, ScopeLimits, Tier
from queueapp.store.store import Store

LONG_LEASE_MS = 10**9
DEFAULT_COST = 50.0


@dataclass(slots=True)
class Estimates:
    """Learnt run times by task: an average with factor 1/8, kept in sixteenths of a millisecond."""

    learnt: dict[str, int] = field(default_factory=dict)

    def cost(self, task: str) -> float:
        return self.learnt[task] / 16 if task in self.learnt else DEFAULT_COST

    def learn(self, task: str, run_ms: int) -> None:
        seen = run_ms * 16
        known = self.learnt.get(task)
        self.learnt[task] = seen if known is None else known + math.floor((seen - known) / 8 + 0.5)


@dataclass(slots=True)
class Flight:
    """A leased job on both sides."""

    leased: LeasedJob
    charge: Charge
    begun: bool = False


@dataclass(slots=True)
class Clock:
    """The clock that both sides are given."""

    now_ms: int = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Pair:
    """One shard and one tree under `policy`."""

    def __init__(self, store: Store, clock: Clock, policy: str) -> None:
        self.store, self.clock = store, clock
        self.estimates = Estimates()
        self.tree = Tree(POLICIES[policy](), estimate=lambda job: self.estimates.cost(self.tasks[job.id]))
        self.pool = PoolConf(policy=policy, default_cost=DEFAULT_COST)
        self.jobs: dict[str, Candidate] = {}
        self.tasks: dict[str, str] = {}
        self.flying: list[Flight] = []
        self.parked: dict[str, int] = {}
        self.dead: list[str] = []
        self.order: list[str] = []
        self._seq, self._numbers, self._calls, self._versions = (
            0,
            itertools.count(1),
            itertools.count(),
            itertools.count(2),
        )
        store.configure(1, pool=self.pool)

    # -- calls --------------------------------------------------------------------------------------------------

    def enqueue(self, wanted: Sequence[tuple[str, str, float, int, Tier, str, int]]) -> None:
        """(tenant, lane, cost, priority, tier, task, delay_ms) per job, as one call."""
        new = []
        for tenant, lane, cost, priority, tier, task, delay_ms in wanted:
            new.append(
                NewJob(
                    id=f"{next(self._numbers):022d}",
                    task=task,
                    tenant=tenant,
                    lane=lane,
                    payload=b"{}",
                    fingerprint="f",
                    cost=cost,
                    priority=priority,
                    tier=tier,
                    delay_ms=delay_ms,
                    max_attempts=3,
                    max_crashes=100,
                )
            )
        assert [one.outcome for one in self.store.enqueue(new)] == ["enqueued"] * len(new)
        for job in new:
            self._seq += 1
            self.tasks[job.id] = job.task
            self.jobs[job.id] = candidate = Candidate(
                id=job.id,
                tenant=job.tenant,
                lane=job.lane,
                seq=self._seq,
                priority=job.priority,
                tier=job.tier,
                cost=job.cost,
            )
            if job.delay_ms:
                self._park(candidate, job.delay_ms)
            else:
                self.tree.push(candidate)

    def lease(self, want: int, lease_ms: int = LONG_LEASE_MS) -> None:
        """Lease on both sides and compare, job by job. Every other call is a `cycle`, when time has nothing to do."""
        expected = []
        with self.tree.together():
            for _ in range(want):
                if (charge := self.tree.pick()) is None:
                    break
                expected.append(charge)
        peeked = [job_id for _, _, job_id in self.store.peek(want)] if want else []
        number = next(self._calls)
        call = self.store.cycle if number % 2 and self._nothing_is_due() else self.store.check_and_lease
        answer = call("worker", number, want=want, begin=0, lease_ms=lease_ms)
        got = [job.id for job in answer.jobs]
        assert got == [charge.id for charge in expected], f"after {len(self.order)} equal leases"
        assert peeked == got
        assert answer.runnable == (self.tree.open and len(self.tree.root.walk) > 0)
        self.order += got
        self.flying += [Flight(job, charge) for job, charge in zip(answer.jobs, expected, strict=True)]

    def finish(self, indices: Iterable[int], run_ms: int, cost: float, retry_ms: int | None, *, fails: bool) -> None:
        """Complete or fail some of what is in flight, as one call."""
        flights = self._take(indices)
        if fails:
            failed = [
                Failed(
                    id=flight.leased.id,
                    attempts=flight.leased.attempts,
                    run_ms=run_ms,
                    error=b"{}",
                    retry_ms=retry_ms,
                    cost=cost,
                )
                for flight in flights
            ]
            words: Sequence[str] = self.store.fail(failed)
        else:
            done = [
                Completed(id=flight.leased.id, attempts=flight.leased.attempts, run_ms=run_ms, cost=cost)
                for flight in flights
            ]
            words = self.store.complete(done)
        with self.tree.together():
            for flight in flights:
                ran_ms = min(run_ms, self.clock() - flight.leased.leased_ms)
                if cost or flight.charge.estimated:
                    self.tree.settle(flight.charge, max(1.0, cost if cost else float(ran_ms)))
                if not fails:
                    self.estimates.learn(self.tasks[flight.leased.id], ran_ms)
            for flight, word in zip(flights, words, strict=True):
                again = fails and retry_ms is not None and flight.leased.errors + 1 < flight.leased.max_attempts
                assert word == ("retry" if again else "dead" if fails else "done")
                if again and retry_ms is not None:
                    self._park(self.jobs[flight.leased.id], retry_ms)
                elif fails:
                    self.dead.append(flight.leased.id)
                self.tree.release(flight.leased.id)

    def requeue(self, indices: Iterable[int]) -> None:
        flights = self._take(indices)
        returned = [Returned(id=flight.leased.id, attempts=flight.leased.attempts) for flight in flights]
        assert self.store.partition_requeue(returned) == ["done"] * len(flights)
        with self.tree.together():
            for flight in flights:
                if flight.charge.estimated:
                    self.tree.settle(flight.charge, 0.0)
            for flight in flights:
                self.tree.push(self.jobs[flight.leased.id])
                self.tree.release(flight.leased.id)

    def extend(self, indices: Iterable[int]) -> None:
        """Heartbeats: an estimate that the run has outlived is charged as it runs."""
        chosen = sorted({index % len(self.flying) for index in indices}) if self.flying else []
        leases = [(self.flying[index].leased.id, self.flying[index].leased.attempts) for index in chosen]
        assert self.store.extend_lease(leases, LONG_LEASE_MS) == []
        for index in chosen:
            flight = self.flying[index]
            elapsed = float(self.clock() - flight.leased.leased_ms)
            flight.leased = replace(flight.leased, deadline_ms=self.clock() + LONG_LEASE_MS)
            if flight.charge.estimated and elapsed > flight.charge.charged:
                flight.charge = self.tree.settle(flight.charge, elapsed)

    def recover(self) -> None:
        """Leases past their deadline come back, in the order of their deadlines; nothing is refunded."""
        lost = [flight for flight in self.flying if flight.leased.deadline_ms <= self.clock()]
        lost.sort(key=lambda flight: (flight.leased.deadline_ms, flight.leased.id))
        moved = self.store.partition_recover(1000)
        assert (moved.pending, moved.dead) == (len(lost), 0)
        self.flying = [flight for flight in self.flying if flight not in lost]
        with self.tree.together():
            for flight in lost:
                self.tree.push(self.jobs[flight.leased.id])
                self.tree.release(flight.leased.id)

    def promote(self) -> None:
        """Jobs that are due get a new place in line."""
        due = sorted((due_ms, job_id) for job_id, due_ms in self.parked.items() if due_ms <= self.clock())
        assert self.store.promote_due(1000).pending == len(due)
        for _, job_id in due:
            del self.parked[job_id]
            self._renew(job_id)

    def cancel(self, indices: Iterable[int]) -> None:
        waiting = [job_id for job_id in self.jobs if job_id in self.tree]
        chosen = sorted({waiting[index % len(waiting)] for index in indices}) if waiting else []
        assert self.store.cancel(chosen) == ["cancelled"] * len(chosen)
        with self.tree.together():
            for job_id in chosen:
                self.tree.remove(job_id)
                self.parked.pop(job_id, None)

    def redrive(self) -> None:
        assert self.store.retry_from_dlq(self.dead) == ["retried"] * len(self.dead)
        for job_id in self.dead:
            self._renew(job_id, tier="start")
        self.dead = []

    def configure(self, tenant: str, lane: str, limits: Limits) -> None:
        scope = ScopeLimits(
            tenant=tenant, lane=lane, weight=limits.weight, max_in_flight=limits.ceiling, paused=limits.paused
        )
        self.store.configure(next(self._versions), scopes=[scope])
        self.tree.configure(tenant, lane, limits)

    def configure_pool(self, ceiling: int | None, *, paused: bool) -> None:
        pool = PoolConf(policy=self.pool.policy, default_cost=DEFAULT_COST, max_in_flight=ceiling, paused=paused)
        self.store.configure(next(self._versions), pool=pool)
        self.tree.pool = Limits(ceiling=ceiling, paused=paused)

    def drain(self) -> None:
        """Lift every limit and lease what is left: whatever differs shows in the order."""
        self.configure_pool(None, paused=False)
        for tenant, lane in list(self.tree.configured()):
            weight = self.tree.limits(tenant, lane).weight
            self.configure(tenant, lane, Limits(weight=weight))
        while len(self.tree):
            self.lease(7)

    # -- parts --------------------------------------------------------------------------------------------------

    def _take(self, indices: Iterable[int]) -> list[Flight]:
        chosen = sorted({index % len(self.flying) for index in indices}) if self.flying else []
        return [self.flying.pop(index) for index in reversed(chosen)]

    def _nothing_is_due(self) -> bool:
        moments = [*self.parked.values(), *(flight.leased.deadline_ms for flight in self.flying)]
        return not moments or min(moments) > self.clock()

    def _park(self, job: Candidate, delay_ms: int) -> None:
        self.tree.park(job)
        self.parked[job.id] = self.clock() + delay_ms

    def _renew(self, job_id: str, tier: Tier | None = None) -> None:
        self._seq += 1
        old = self.jobs[job_id]
        self.jobs[job_id] = job = Candidate(
            id=job_id,
            tenant=old.tenant,
            lane=old.lane,
            seq=self._seq,
            priority=old.priority,
            tier=tier or old.tier,
            cost=old.cost,
        )
        self.tree.push(job)
