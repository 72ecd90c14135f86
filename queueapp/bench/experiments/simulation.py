"""`bench simulate`: workloads under policies in virtual time, beside `fifo` and, where one tenant floods, an ideal.

Every number but `jobs_per_s` (how fast this machine simulates) is the same on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from queueapp.bench.arms import label, made
from queueapp.bench.drawing import draw_run
from queueapp.bench.experiments.simulation_figures import (
    FIFO,
    IDEAL,
    SHARDED,
    judge,
    medians,
    prices,
    scenario_figures,
)
from queueapp.bench.experiments.simulation_plan import Plan, Scenario
from queueapp.bench.experiments.simulation_table import tell, tell_spreads
from queueapp.bench.harness import Progress, Report
from queueapp.bench.profiles import Profile
from queueapp.bench.results.cells import Cell
from queueapp.bench.results.simulated import cell_of
from queueapp.bench.results.writing import Writer
from queueapp.bench.simulate import Result, SmallFirst, result, simulate
from queueapp.bench.workloads import Workload, digest
from queueapp.policies.protocol import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A policy as it is simulated."""

    name: str
    """In rows and files."""
    policy: Policy
    shards: int = 1


Kept = Callable[[Cell], None]


def run(report: Report, progress: Progress, plan: Plan) -> None:
    """Simulates every cell; ratios are medians over the seeds, the others means with their intervals."""
    begun = time.perf_counter()
    policies = [label(name) for name in plan.policies]
    scenarios = plan.scenarios()
    with _kept(report, progress, plan) as keep:
        for scenario in scenarios:
            results = cells(report, progress, plan, scenario, plan.policies, keep)
            figures = scenario_figures(results, policies)
            if IDEAL in results:
                for name in filter(plan.judged, policies):
                    report.missed += judge(name, medians(prices(results[name], results[FIFO])))
            tell(report, progress, figures, results, policies)
            report.figures |= {scenario.prefix + name: figure for name, figure in figures.items()}
        seconds = time.perf_counter() - begun
    report.figures |= {
        "cells": len(report.rows),
        "jobs_per_s": sum(row["jobs"] for row in report.rows) / seconds,
        "digest": _number(row["digest"] for row in report.rows),
    }
    profile, seed, runs = plan.filled()
    real = {name: _only(row[name] for row in report.rows) for name in ("workload", "jobs", "load")}
    report.run = {**report.run, **asdict(profile.run), **real, "seed": seed, "seeds": runs}
    tell_spreads(report, progress, scenarios)
    progress.say(f"  digest {report.figures['digest']}; {report.figures['jobs_per_s']:,.0f} jobs/s simulated")


def cells(
    report: Report,
    progress: Progress,
    plan: Plan,
    scenario: Scenario,
    policies: Sequence[str],
    keep: Kept | None = None,
) -> Mapping[str, Sequence[Result]]:
    """Simulates a scenario under fifo, the ideal and `policies`, a row for each and seed; results by arm."""
    found: dict[str, list[Result]] = {}
    profile, first, runs = plan.filled()
    for workload in plan.workloads(scenario):
        workload_digest = workload.digest()
        for arm in _arms(plan, policies, workload):
            title = f"  {scenario.prefix}{arm.name}, seed {workload.seed} of {first} to {first + runs - 1}"
            ran = simulate(
                workload,
                arm.policy,
                _telling(progress, title, len(workload.jobs)),
                failures=profile.failures,
                limits=profile.limits,
                shards=arm.shards,
                shard_slots=plan.shard_slots,
            )
            cell = result(
                workload,
                ran,
                failures=profile.failures,
                limits=profile.limits,
                starving_ms=profile.run.starving_ms,
            )
            found.setdefault(arm.name, []).append(cell)
            report.rows.append(_row(plan, arm, profile, workload, cell) | {"workload_digest": workload_digest})
            if keep is not None:
                keep(cell_of(workload, arm.name, ran, profile=profile, repetition=workload.seed - first + 1))
    return found


def _arms(plan: Plan, policies: Sequence[str], workload: Workload) -> Iterator[Arm]:
    yield Arm(name=FIFO, policy=made(FIFO))
    if workload.big is not None:
        yield Arm(name=IDEAL, policy=SmallFirst(workload.big))
    for name in policies:
        if name != FIFO:
            yield Arm(name=label(name), policy=made(name))
        if plan.shards > 1:
            yield Arm(name=label(name) + SHARDED, policy=made(name), shards=plan.shards)


def _telling(progress: Progress, title: str, jobs: int) -> Callable[[int], None]:
    return lambda started: progress.show(f"{title}: {started:,} runs of {jobs:,} jobs")


# -- results ---------------------------------------------------------------------------------------------------------


@contextmanager
def _kept(report: Report, progress: Progress, plan: Plan) -> Iterator[Kept | None]:
    """What takes each cell, if a directory of results is asked for. At the end they are drawn."""
    if plan.results is None:
        yield None
        return
    directory = Path(plan.results)
    with Writer(directory, report.bench, report.run, profile=plan.filled()[0]) as writer:
        yield writer.add
    progress.say(f"  results: {directory}")
    draw_run(directory, progress)


def _row(plan: Plan, arm: Arm, profile: Profile, workload: Workload, found: Result) -> dict[str, Any]:
    return {
        "policy": arm.name,
        "workload": workload.name,
        "profile": profile.name,
        "seed": workload.seed,
        "load": workload.load,
        "jobs": len(workload.jobs),
        "warm_up_jobs": 0,
        "costs": plan.costs,
        "shards": arm.shards,
        "shard_slots": plan.shard_slots,
        "failures": asdict(profile.failures),
        "limits": {tenant: {"weight": own.weight, "ceiling": own.ceiling} for tenant, own in profile.limits.items()},
        "digest": found.digest,
        **asdict(found.summary),
        "jain_entitled": found.jain_entitled,
        **{group: asdict(getattr(found, group)) for group in ("small", "big", "lowest", "above")},
    }


def _only(values: Iterable[Any]) -> Any:
    """The one value that all have, or each that there is."""
    known = list(dict.fromkeys(values))
    return known[0] if len(known) == 1 else known


def _number(digests: Iterable[str]) -> int:
    """One number for all cells that JSON keeps exactly: 52 bits of the digest of their digests."""
    return int(digest((found,) for found in digests)[:13], 16)
