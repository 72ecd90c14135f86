"""What became of a workload: one outcome per job, and the figures of all, of each tenant and of each priority. Pure.

The simulator and whatever runs in earnest both end here, so that a figure means the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from queueapp.bench.statistics import (
    jain,
    missed,
    percentile,
    ratio,
    supported,
    throughput,
    utilisation,
)

Key = TypeVar("Key", str, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One job that is done with. Moments are whole microseconds on one clock."""

    tenant: str
    priority: int
    planned_us: int
    """When it was to be sent by plan. Waits and latencies count from here, not from when a sender got round to it: a
    sender that is held up would else hide the very delays that hold it up (coordinated omission)."""
    started_us: int
    """When it first began to run."""
    ended_us: int
    """When it completed, or was found to be dead."""
    busy_us: int
    """How long all its runs took together."""
    deadline_us: int = 0
    """0 = none."""
    attempts: int = 1
    completed: bool = True
    """False: dead."""
    number: int = 0
    """The job's, in its workload."""
    lane: str = "main"
    sent_us: int = 0
    """When it really was sent; 0: as planned. How late the sender was, nothing else."""

    @property
    def wait_ms(self) -> float:
        return (self.started_us - self.planned_us) / 1000

    @property
    def latency_ms(self) -> float:
        return (self.ended_us - self.planned_us) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Waits (arrival to first start) of some jobs and latencies (arrival to end) of those that completed, in ms.

    Percentiles as numpy's; NaN where there are none, and where the jobs are too few for them (`supported`).
    """

    jobs: int
    completed: int
    wait_p50_ms: float
    wait_p95_ms: float
    wait_p99_ms: float
    wait_max_ms: float
    latency_mean_ms: float
    latency_p50_ms: float
    latency_p95_ms: float
    latency_p99_ms: float
    latency_p999_ms: float
    miss_rate: float
    """Deadlines missed, as a part of the completed jobs that have one; NaN where none has."""
    starved: int
    """Jobs that waited longer than the threshold before they began."""
    service_s: float
    """What they had of the slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The figures of one run."""

    all: Times
    tenants: Mapping[str, Times]
    """Those that might have sent something, too."""
    priorities: Mapping[int, Times]
    dead: int
    attempts: int
    makespan_s: float
    """From the first planned arrival to the last end."""
    throughput_per_s: float
    utilisation: float
    jain_service: float
    """Over the tenants' service: what fair queueing shares. Where tenants ask for unequal amounts and all get what they
    ask for, it says how unequal those are, not how fair the queue is: read it with the tenants' latencies."""
    jain_count: float
    """Over the number of the tenants' completed jobs."""
    slots: int
    starving_ms: int

    def figures(self) -> dict[str, float]:
        """What is compared from run to run, under the names of a report."""
        return {
            "latency_mean_ms": self.all.latency_mean_ms,
            "latency_p50_ms": self.all.latency_p50_ms,
            "latency_p95_ms": self.all.latency_p95_ms,
            "latency_p99_ms": self.all.latency_p99_ms,
            "wait_max_ms": self.all.wait_max_ms,
            "miss_rate": self.all.miss_rate,
            "starved": self.all.starved,
            "dead": self.dead,
            "throughput_per_s": self.throughput_per_s,
            "utilisation": self.utilisation,
            "jain_service": self.jain_service,
            "jain_count": self.jain_count,
        }


def summary(outcomes: Sequence[Outcome], *, slots: int, starving_ms: int, tenants: Collection[str] = ()) -> Summary:
    """The figures of a run. `tenants` are those that might have sent something. ValueError for no outcomes."""
    if not outcomes:
        raise ValueError("There are no outcomes: a run of no jobs has no figures.")
    first_us = min(outcome.planned_us for outcome in outcomes)
    makespan_s = (max(outcome.ended_us for outcome in outcomes) - first_us) / 1_000_000
    everyone = times(outcomes, starving_ms)
    groups = _grouped(outcomes, lambda outcome: outcome.tenant)
    by_tenant = {name: times(groups.get(name, ()), starving_ms) for name in sorted({*tenants, *groups})}
    by_priority = _grouped(outcomes, lambda outcome: outcome.priority)
    return Summary(
        all=everyone,
        tenants=by_tenant,
        priorities={level: times(by_priority[level], starving_ms) for level in sorted(by_priority)},
        dead=everyone.jobs - everyone.completed,
        attempts=sum(outcome.attempts for outcome in outcomes),
        makespan_s=makespan_s,
        throughput_per_s=throughput(everyone.completed, makespan_s),
        utilisation=utilisation(everyone.service_s, slots, makespan_s),
        jain_service=jain(found.service_s for found in by_tenant.values()),
        jain_count=jain(found.completed for found in by_tenant.values()),
        slots=slots,
        starving_ms=starving_ms,
    )


def times(outcomes: Iterable[Outcome], starving_ms: int) -> Times:
    """Waits and latencies of some jobs."""
    known = list(outcomes)
    ended = [outcome for outcome in known if outcome.completed]
    dated = [outcome for outcome in ended if outcome.deadline_us]
    waits = sorted(outcome.wait_ms for outcome in known)
    latencies = sorted(outcome.latency_ms for outcome in ended)
    return Times(
        jobs=len(known),
        completed=len(ended),
        wait_p50_ms=percentile(waits, 50),
        wait_p95_ms=_supported(waits, 95),
        wait_p99_ms=_supported(waits, 99),
        wait_max_ms=percentile(waits, 100),
        # In whole microseconds, so that the sum does not depend on its order.
        latency_mean_ms=ratio(sum(outcome.ended_us - outcome.planned_us for outcome in ended), len(ended)) / 1000,
        latency_p50_ms=percentile(latencies, 50),
        latency_p95_ms=_supported(latencies, 95),
        latency_p99_ms=_supported(latencies, 99),
        latency_p999_ms=_supported(latencies, 99.9),
        miss_rate=ratio(sum(missed(outcome.ended_us, outcome.deadline_us) for outcome in dated), len(dated)),
        starved=sum(wait > starving_ms for wait in waits),
        service_s=sum(outcome.busy_us for outcome in known) / 1_000_000,
    )


def _supported(values: Sequence[float], percent: float) -> float:
    return percentile(values if supported(len(values), percent) else (), percent)


def _grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], Key]) -> dict[Key, list[Outcome]]:
    groups: dict[Key, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return groups
