"""The real store and the pure reference side by side: the same calls to both, the same leases demanded of both.

`Pair` knows of the store only its public methods and of the reference only `Tree`. What a script does with a batch is
written here once more in plain Python: finishes are settled in their order, then slots are given back.

A rule is a policy with its parameter: `fifo`, `edf:latest_start`, `aging:300`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from queueapp.codec import digest
from queueapp.policies.aging import Aging
from queueapp.policies.charge import Charge
from queueapp.policies.edf import Edf
from queueapp.policies.keyed import SWEEP_MS
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.registry import POLICIES
from queueapp.policies.room import Limits
from queueapp.policies.tokens import DispatchRate
from queueapp.policies.tree import Tree
from queueapp.store.configuration import KeyLimits, PoolConf, Rate, ScopeLimits
from queueapp.store.records import Completed, Failed, LeasedJob, NewJob, Returned, Tier
from queueapp.store.store import Store
from tests.model.estimates import DEFAULT_COST, Estimates
from tests.model.keysets import KEYS, key_set, key_use

LONG_LEASE_MS = 10**9
SWEPT_PER_CYCLE = 16
"""Tenants and lanes without a token that one `cycle` looks at because their moment has come."""


@dataclass(slots=True)
class Flight:
    """A leased job on both sides."""

    leased: LeasedJob
    charge: Charge
    begun: bool = False


START_MS = 1_800_000_000_000
Wanted = tuple[str, str, float, int, Tier, str, int, int, int, tuple[tuple[str, int], ...]]
"""A job to enqueue: tenant, lane, cost, priority, tier, task, delay, deadline counted from `START_MS` on, expiry (times
in ms, 0 = none), concurrency keys with the task's own limits."""


def under(rule: str) -> tuple[Policy, PoolConf]:
    """The policy of a rule, and how the pool is told of it."""
    name, _, parameter = rule.partition(":")
    match name:
        case "edf":
            by: Literal["deadline", "latest_start"] = "latest_start" if parameter == "latest_start" else "deadline"
            return Edf(by=by), PoolConf(policy=name, by=by, default_cost=DEFAULT_COST)
        case "aging":
            step_ms = int(parameter)
            return Aging(step_ms=step_ms), PoolConf(policy=name, step_ms=step_ms, default_cost=DEFAULT_COST)
    return POLICIES[name](), PoolConf(policy=name, default_cost=DEFAULT_COST)


def told(rate: DispatchRate | None) -> Rate | None:
    """A dispatch rate as the store is told of it."""
    return None if rate is None else Rate(rate=rate.rate, period_ms=rate.period_ms, burst=rate.burst)


@dataclass(slots=True)
class Clock:
    """The clock that both sides are given."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms


class Pair:
    """One shard and one tree under `rule`. `led`: its dispatch is scheduled (`led.py`)."""

    def __init__(self, store: Store, clock: Clock, rule: str, *, led: bool = False) -> None:
        self.store, self.clock, self.led = store, clock, led
        self.estimates = Estimates()
        policy, self.pool = under(rule)
        self.tree = Tree(policy, estimate=lambda job: self.estimates.cost(self.tasks[job.id], job.tenant))
        self.jobs: dict[str, Candidate] = {}
        self.tasks: dict[str, str] = {}
        self.flying: list[Flight] = []
        self.parked: dict[str, int] = {}
        self.expiries: dict[str, int] = {}
        self.dead: list[str] = []
        self.order: list[str] = []
        self.keys: set[str] = set()
        self.crowded = 0
        """Calls that passed a lane over, because more sub-lanes had to step aside than in one call."""
        self._seq, self._numbers, self._calls, self._versions = (
            0,
            itertools.count(1),
            itertools.count(),
            itertools.count(2),
        )
        store.configure(1, pool=self.pool)

    # -- calls --------------------------------------------------------------------------------------------------

    def enqueue(self, wanted: Sequence[Wanted]) -> None:
        """New jobs, as one call."""
        new = []
        for tenant, lane, cost, priority, tier, task, delay_ms, deadline_ms, expires_after_ms, keys in wanted:
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
                    deadline_ms=START_MS + deadline_ms if deadline_ms else 0,
                    expires_after_ms=expires_after_ms,
                    max_attempts=3,
                    max_crashes=100,
                    keys=tuple(key_use(*key) for key in keys),
                )
            )
            self.keys |= {name for name, _ in keys}
        assert [one.outcome for one in self.store.enqueue(new)] == ["enqueued"] * len(new)
        with self._together():
            self._enqueued(new)

    def _enqueued(self, new: Sequence[NewJob]) -> None:
        for job in new:
            self._seq += 1
            self.tasks[job.id] = job.task
            if job.expires_after_ms:
                self.expiries[job.id] = self.clock() + job.expires_after_ms
            self.jobs[job.id] = candidate = Candidate(
                id=job.id,
                tenant=job.tenant,
                lane=job.lane,
                seq=self._seq,
                priority=job.priority,
                tier=job.tier,
                cost=job.cost,
                ready_ms=self.clock(),
                deadline_ms=job.deadline_ms,
                keys=key_set(job.keys),
            )
            if job.delay_ms:
                self._park(candidate, job.delay_ms)
            else:
                self.tree.push(candidate)

    def lease(self, want: int, lease_ms: int = LONG_LEASE_MS) -> None:
        """Lease on both sides and compare, job by job. Every other call is a `cycle`, when time has nothing to do."""
        if self._expired():
            self.promote()
        number = next(self._calls)
        cycles = bool(number % 2) and self._nothing_is_due()
        peeked = [job_id for _, _, job_id in self.store.peek(want)] if want else []
        expected = []
        with self._together():
            swept = cycles and self.tree.keyed.sweep()
        swept = (cycles and self.tree.sweep_timers(SWEPT_PER_CYCLE)) or swept
        with self._together():
            for _ in range(want):
                if (charge := self.tree.pick()) is None:
                    break
                expected.append(charge)
        call = self.store.cycle if cycles else self.store.check_and_lease
        answer = call("worker", number, want=want, begin=0, lease_ms=lease_ms)
        got = [job.id for job in answer.jobs]
        assert got == [charge.id for charge in expected], f"after {len(self.order)} equal leases"
        assert swept or peeked == got
        assert answer.more == (answer.runnable and self.tree.keyed.crowded)
        self.crowded += answer.more
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
        with self._together():
            for flight in flights:
                ran_ms = min(run_ms, self.clock() - flight.leased.leased_ms)
                if cost or flight.charge.estimated:
                    self.tree.settle(flight.charge, max(1.0, cost if cost else float(ran_ms)))
                if not fails:
                    self.estimates.learn(self.tasks[flight.leased.id], flight.leased.tenant, ran_ms)
            for flight, word in zip(flights, words, strict=True):
                again = fails and retry_ms is not None and flight.leased.errors + 1 < flight.leased.max_attempts
                if again and retry_ms is not None and flight.leased.id in self.expiries:
                    again = self.expiries[flight.leased.id] > self.clock() + retry_ms
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
        with self._together():
            for flight in flights:
                self.tree.settle(flight.charge, 0.0)
            for flight in flights:
                self.tree.push(self.jobs[flight.leased.id], rank=flight.charge.rank)
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
        with self._together():
            for flight in lost:
                self.tree.push(self.jobs[flight.leased.id], rank=flight.charge.rank)
                self.tree.release(flight.leased.id)

    def promote(self) -> None:
        """Waiting jobs past their expiry go; jobs that are due get a new place in line.

        Where a leader admits them they come into line by a call of its own: whoever the sweeps let run is there before.
        """
        expired = self._expired()
        due = sorted((due_ms, job_id) for job_id, due_ms in self.parked.items() if due_ms <= self.clock())
        due = [(due_ms, job_id) for due_ms, job_id in due if job_id not in expired]
        moved = self.store.promote_due(1000)
        assert (moved.expired, moved.pending) == (len(expired), len(due))
        self._remove(expired)
        with self._together():
            if not self.led:
                self._promoted(due)
            self.tree.keyed.sweep(1000)
        self.tree.sweep_timers(1000)
        if self.led:
            with self._together():
                self._promoted(due)

    def cancel(self, indices: Iterable[int]) -> None:
        waiting = [job_id for job_id in self.jobs if job_id in self.tree]
        chosen = sorted({waiting[index % len(waiting)] for index in indices}) if waiting else []
        assert self.store.cancel(chosen) == ["cancelled"] * len(chosen)
        self._remove(chosen)

    def redrive(self) -> None:
        assert self.store.retry_from_dlq(self.dead) == ["retried"] * len(self.dead)
        with self._together():
            for job_id in self.dead:
                self.expiries.pop(job_id, None)
                self.jobs[job_id] = replace(self.jobs[job_id], deadline_ms=0)
                self._renew(job_id, self.clock(), tier="start")
        self.dead = []

    def configure(self, tenant: str, lane: str, limits: Limits) -> None:
        scope = ScopeLimits(
            tenant=tenant,
            lane=lane,
            weight=limits.weight,
            max_in_flight=limits.ceiling,
            min_share=limits.min_share,
            paused=limits.paused,
            dispatch_rate=told(limits.dispatch),
        )
        self.tree.keyed.now_ms = self.clock()
        self.store.configure(next(self._versions), scopes=[scope])
        self.tree.configure(tenant, lane, limits)

    def configure_pool(self, ceiling: int | None, *, paused: bool) -> None:
        pool = replace(self.pool, max_in_flight=ceiling, paused=paused)
        self.store.configure(next(self._versions), pool=pool)
        self.tree.pool = Limits(ceiling=ceiling, paused=paused)

    def configure_key(self, name: str, limit: int | None, *, clear: bool, dispatch: DispatchRate | None = None) -> None:
        """A limit and a dispatch rate for every key of one pattern."""
        change = KeyLimits(
            pattern=digest(name), text=name, max_in_flight=limit, dispatch_rate=told(dispatch), clear=clear
        )
        self.store.configure(next(self._versions), keys=[change])
        with self._together():
            self.tree.keyed.configure(digest(name), limit, dispatch=dispatch, clear=clear)

    def drain(self) -> None:
        """Lift every limit and lease what is left: whatever differs shows in the order."""
        self.configure_pool(None, paused=False)
        for name in sorted({*KEYS, *self.keys}):
            self.configure_key(name, None, clear=False)
        for tenant, lane in list(self.tree.configured()):
            weight = self.tree.limits(tenant, lane).weight
            self.configure(tenant, lane, Limits(weight=weight))
        while len(self.tree):
            before = len(self.order)
            self.lease(7)
            if len(self.tree) and len(self.order) == before and not self.tree.keyed.crowded:
                # A wake that was lost while a tenant was paused: the sweep repairs it. (What is gone had expired.)
                assert self.tree.keyed
                self.clock.now_ms += SWEEP_MS
                self.promote()

    # -- parts --------------------------------------------------------------------------------------------------

    @contextmanager
    def _together(self) -> Iterator[None]:
        """One call of the store."""
        self.tree.keyed.now_ms = self.clock()
        with self.tree.together():
            yield

    def _take(self, indices: Iterable[int]) -> list[Flight]:
        chosen = sorted({index % len(self.flying) for index in indices}) if self.flying else []
        return [self.flying.pop(index) for index in reversed(chosen)]

    def _nothing_is_due(self) -> bool:
        moments = [
            *self.parked.values(),
            *self.expiries.values(),
            *(flight.leased.deadline_ms for flight in self.flying),
        ]
        return not moments or min(moments) > self.clock()

    def _park(self, job: Candidate, delay_ms: int) -> None:
        self.tree.park(job)
        self.parked[job.id] = self.clock() + delay_ms

    def _promoted(self, due: Iterable[tuple[int, str]]) -> None:
        for due_ms, job_id in due:
            del self.parked[job_id]
            self._renew(job_id, due_ms)

    def _expired(self) -> list[str]:
        """Waiting jobs past their expiry, the earliest first."""
        late = [(at, job_id) for job_id, at in self.expiries.items() if at <= self.clock()]
        return [job_id for _, job_id in sorted(late) if job_id in self.tree or job_id in self.parked]

    def _remove(self, ids: Iterable[str]) -> None:
        with self._together():
            for job_id in ids:
                self.tree.remove(job_id)
                self.parked.pop(job_id, None)
                self.expiries.pop(job_id, None)

    def _renew(self, job_id: str, ready_ms: int, tier: Tier | None = None) -> None:
        self._seq += 1
        old = self.jobs[job_id]
        self.jobs[job_id] = job = replace(old, seq=self._seq, ready_ms=ready_ms, tier=tier or old.tier)
        self.tree.push(job)
