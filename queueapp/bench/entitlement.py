"""How evenly a simulation dealt out its slots while work still came, against what each tenant was entitled to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from queueapp.bench.statistics import jain
from queueapp.inspection.shares import water_fill

Served = tuple[str, int, int]
"""Tenant, start and end of one run, in microseconds."""


def jain_entitled(runs: Iterable[Served], until_us: int, weight: Callable[[str], float]) -> float:
    """Jain's index over what each tenant had until then, in parts of what it was entitled to: 1 = all the same part.

    Entitled is what weighted max-min gives of all that was served: nobody more than it asked for, and what one leaves
    goes to the others by weight, as the fairness certificate has it. All runs count as asked for: give the moment of
    the last arrival. It takes tenants that are there all the time: one that comes late has had little by then.
    """
    asked: dict[str, int] = {}
    had: dict[str, int] = {}
    for tenant, started_us, ended_us in runs:
        asked[tenant] = asked.get(tenant, 0) + ended_us - started_us
        had[tenant] = had.get(tenant, 0) + max(0, min(ended_us, until_us) - started_us)
    entitled = water_fill(sum(had.values()), list(asked.values()), [weight(tenant) for tenant in asked])
    return jain(part / due for part, due in zip(had.values(), entitled, strict=True) if due > 0)
