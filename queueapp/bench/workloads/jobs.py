"""What a workload is: jobs with the moments at which they are sent, and what they were made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a workload. Moments count from the beginning, in whole microseconds."""

    number: int
    """From 1, in order of arrival."""
    at_us: int
    """When it is sent, by plan: latencies count from here, however late a sender may be."""
    tenant: str
    service_us: int
    """How long it runs."""
    lane: str = "main"
    priority: int = 0
    deadline_us: int = 0
    """When it should have ended; 0 = it has none."""
    cost: float = 0.0
    """Declared units, milliseconds in what is made here; 0 = undeclared, an estimate stands for it."""

    def columns(self) -> tuple[object, ...]:
        """What the digest knows of it. A job that has no more than a tenant and a time is told in four columns."""
        plain = (self.number, self.at_us, self.tenant, self.service_us)
        more = (self.lane, self.priority, self.deadline_us, self.cost)
        return plain if more == ("main", 0, 0, 0.0) else plain + more


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in order of arrival, and what they were made from."""

    name: str
    seed: int
    slots: int
    load: float
    """Work that arrives, in multiples of what `slots` slots serve."""
    jobs: Sequence[Job]
    big: str | None = None
    """The tenant that sends most, where one stands out; the others are the small ones."""
    tenants: Sequence[str] = ()
    """Those that might send: whoever sent nothing has had nothing, and counts as such."""

    def digest(self) -> str:
        """SHA-256 over all jobs, one line each."""
        return digest(job.columns() for job in self.jobs)


def digest(rows: Iterable[Iterable[object]]) -> str:
    """SHA-256 over rows of numbers and names, as lines of comma-separated text."""
    found = hashlib.sha256()
    for row in rows:
        found.update((",".join(map(str, row)) + "\n").encode())
    return found.hexdigest()
