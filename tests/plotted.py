"""What the tests of plots and reports share: a run whose figures are known beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from queueapp.bench.outcomes import Outcome
from queueapp.bench.results.cells import Cell, Dispatch
from queueapp.bench.results.reading import RunResults, read
from tests.cells import cell, write_run

JOBS = 200
WAITS_MS = {"fifo": 200.0, "wfq": 40.0, "tiered": 80.0}
"""Of the jobs of `acme`, urgent ones of priority 0 in the first repetition; see `wait_ms`."""
BIG, SMALL = "acme", "globex"


def wait_ms(policy: str, repetition: int, tenant: str, priority: int, load: float) -> float:
    """The same for all jobs that agree in these, so that each percentile of theirs is it."""
    wait = WAITS_MS[policy] * load * repetition
    return wait / (4 if tenant == SMALL else 1) / (2 if priority else 1)


def ended(policy: str, repetition: int, load: float, **more: Any) -> list[Outcome]:
    """Two tenants in turn, two priorities in turn of those; the last of all is late for its deadline."""
    found = []
    for number in range(JOBS):
        tenant, priority = (BIG, SMALL)[number % 2], number // 2 % 2
        fields: dict[str, Any] = {"tenant": tenant, "priority": priority} | more
        planned_us = 10_000 * number
        wait_us = round(1_000 * wait_ms(policy, repetition, fields["tenant"], fields["priority"], load))
        deadline_us = planned_us + wait_us + 60_000 - 20_000 * (number == JOBS - 1)
        times = {"started_us": planned_us + wait_us, "ended_us": planned_us + wait_us + 50_000, "busy_us": 50_000}
        given = {"number": number, "planned_us": planned_us, "sent_us": planned_us, "deadline_us": deadline_us}
        found.append(Outcome(**{**given, **times, **fields}))
    return found


def cells(
    *,
    policies: Sequence[str] = ("fifo", "wfq"),
    dispatches: Sequence[Dispatch] = ("direct",),
    loads: Sequence[float] = (1.25,),
    repetitions: int = 2,
    **more: Any,
) -> Iterator[Cell]:
    for policy in policies:
        for dispatch in dispatches:
            for load in loads:
                for repetition in range(1, repetitions + 1):
                    yield cell(
                        ended(policy, repetition, load, **more),
                        setting={
                            "policy": policy,
                            "dispatch": dispatch,
                            "workload": "multi_tenant",
                            "load": load,
                            "repetition": repetition,
                            "seed": 41 + repetition,
                            "big": BIG,
                            "tenants": (BIG, SMALL),
                        },
                    )


def run(directory: Path, **how: Any) -> RunResults:
    """What `cells` leave on disk."""
    return read(write_run(directory, cells(**how)))
