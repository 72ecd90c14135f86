"""Workloads: who sends which job when, and how long it runs. Pure and seeded, byte-identical on any machine.

Each workload is a function `(seed, jobs, slots, load) -> Workload`, and stands in `WORKLOADS` under its name. What is
random comes from `random.Random(seed).random()` alone, the one method whose sequence Python promises to keep, and goes
through comparisons, IEEE arithmetic and rounding to whole microseconds; no logarithm of a platform's library.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

SHARES = {"atlas": 90, "birch": 3, "cedar": 3, "dahlia": 2, "elm": 2}
"""Tenant → percent of the jobs, of `multi_tenant`."""
BIG = "atlas"
SERVICE_US = (40_000, 60_000)
"""Least and most that a job of `multi_tenant` runs; all whole microseconds between are equally likely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job of a workload. Moments count from the beginning, in whole microseconds."""

    number: int
    """From 1, in order of arrival."""
    at_us: int
    tenant: str
    service_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in order of arrival, and what they were made from."""

    name: str
    seed: int
    slots: int
    load: float
    big: str
    """The tenant that sends most; the others are the small ones."""
    jobs: Sequence[Job]

    def digest(self) -> str:
        """SHA-256 over all jobs, one line each."""
        return digest((job.number, job.at_us, job.tenant, job.service_us) for job in self.jobs)


def digest(rows: Iterator[tuple[object, ...]]) -> str:
    """SHA-256 over rows of whole numbers and names, as lines of comma-separated text."""
    found = hashlib.sha256()
    for row in rows:
        found.update((",".join(map(str, row)) + "\n").encode())
    return found.hexdigest()


def multi_tenant(*, seed: int, jobs: int = 4_000, slots: int = 16, load: float = 1.25) -> Workload:
    """One tenant sends 90 % of the jobs, four others 3, 3, 2 and 2 %: a burst of Poisson arrivals.

    Jobs arrive at `load` times the rate at which `slots` slots can serve them, until all `jobs` have come; each is a
    tenant's by its share, independently of the others, and runs 40 to 60 ms (uniform). All have one lane, the same
    priority and no deadline, so that nothing but the choice between tenants differs from policy to policy.
    """
    dice = random.Random(seed)
    gap_us = sum(SERVICE_US) / 2 / (slots * load)
    made, at_us = [], 0
    for number in range(1, jobs + 1):
        at_us += int(gap_us * _exponential(dice))
        tenant = _by_share(dice, SHARES)
        made.append(Job(number=number, at_us=at_us, tenant=tenant, service_us=_uniform(dice, *SERVICE_US)))
    return Workload(name="multi_tenant", seed=seed, slots=slots, load=load, big=BIG, jobs=made)


WORKLOADS: Mapping[str, Callable[..., Workload]] = {"multi_tenant": multi_tenant}


# -- dice --------------------------------------------------------------------------------------------------------


def _exponential(dice: random.Random) -> float:
    """Exponential with mean 1, by von Neumann's comparisons (1951): exact, and without a logarithm.

    A run of falling uniforms of odd length accepts its first; each run of even length adds 1 to the answer.
    """
    whole = 0
    while True:
        first = last = dice.random()
        length = 1
        while (following := dice.random()) < last:
            last = following
            length += 1
        if length % 2:
            return whole + first
        whole += 1


def _uniform(dice: random.Random, least: int, most: int) -> int:
    """A whole number from `least` to `most`, both included."""
    return least + int(dice.random() * (most - least + 1))


def _by_share(dice: random.Random, shares: Mapping[str, int]) -> str:
    """A name by its share; whole shares, so that the bounds between names are exact."""
    left = int(dice.random() * sum(shares.values()))
    for name, share in shares.items():
        left -= share
        if left < 0:
            return name
    raise AssertionError("random() is less than 1")
