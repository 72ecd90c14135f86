"""Cells of what was simulated."""

from __future__ import annotations

from collections.abc import Sequence

from queueapp.bench.profiles import Profile
from queueapp.bench.results.cells import Cell, Setting
from queueapp.bench.simulate import Ran, outcomes
from queueapp.bench.workloads import Workload, digest


def cell_of(
    workload: Workload, policy: str, ran: Sequence[Ran], *, profile: Profile, repetition: int, workers: int = 1
) -> Cell:
    """`ran`: of `simulate`, with the failures and limits of `profile`. `repetition` counts from 1."""
    found = outcomes(ran, profile.failures)
    last = {run.job.number: run for run in ran}
    setting = Setting(
        policy=policy,
        dispatch="simulated",
        workload=workload.name,
        profile=profile.name,
        seed=workload.seed,
        repetition=repetition,
        jobs=len(workload.jobs),
        load=workload.load,
        slots=workload.slots,
        workers=workers,
        execution="virtual",
        starving_ms=profile.run.starving_ms,
        tenants=workload.tenants,
        big=workload.big,
        workload_digest=workload.digest(),
        failures=profile.failures,
        limits=profile.limits,
    )
    dead = tuple(
        {
            "id": str(one.number),
            "number": one.number,
            "tenant": one.tenant,
            "attempts": one.attempts,
            "reason": last[one.number].fate,
            "error": "",
        }
        for one in found
        if not one.completed
    )
    return Cell(setting=setting, outcomes=found, dead_letters=dead, digest=digest(run.columns() for run in ran))
