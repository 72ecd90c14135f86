"""What an undeclared cost is in a simulation: learnt from run times, in the steps of the store. Pure.

All jobs of a simulation are of one task. What `store/lua/include/estimates.lua` does with the hash of one task, this
does in the same numbers (sixteenths of a millisecond, halves rounded up); only what is forgotten after days is left
out.
"""

from __future__ import annotations

import math

from queueapp.policies.protocol import Candidate

DEFAULT_COST_MS = 50.0
"""Before the first job has ended, as `Pool.default_cost`."""
LEARNING = 8
"""One part of so many is what the newest run time is of the average."""
RUNS_KNOWN = 8
"""From so many runs on a tenant's own average stands for it."""
TENANTS_KNOWN = 4095
"""Tenants with an average of their own at most, beside the task's."""
UNITS = 16
"""Of a millisecond."""


class Estimates:
    """The averages of one shard: of all jobs, and of each tenant whose run times differ from that by twice or half."""

    def __init__(self) -> None:
        self._common: int | None = None
        self._own: dict[str, tuple[int, int]] = {}  # tenant → average, runs

    def of(self, job: Candidate) -> float:
        """The cost of a job that declares none, in ms."""
        average, runs = self._own.get(job.tenant, (0, 0))
        if runs >= RUNS_KNOWN:
            return average / UNITS
        return DEFAULT_COST_MS if self._common is None else self._common / UNITS

    def learn(self, tenant: str, run_ms: float) -> None:
        """A run has completed; others teach nothing."""
        seen, common = math.floor(run_ms * UNITS + 0.5), self._common
        own = self._own.get(tenant)
        if own is not None:
            runs = min(own[1] + 1, RUNS_KNOWN)
            self._own[tenant] = _moved(own[0], seen, runs), runs
        elif common is not None and _differ(seen, common) and len(self._own) < TENANTS_KNOWN:
            self._own[tenant] = seen, 1
        self._common = seen if common is None else _moved(common, seen, LEARNING)


def _moved(average: int, seen: int, factor: int) -> int:
    return average + math.floor((seen - average) / factor + 0.5)


def _differ(one: int, other: int) -> bool:
    """By twice or half; nothing costs less than one millisecond."""
    one, other = max(UNITS, one), max(UNITS, other)
    return one >= 2 * other or other >= 2 * one
