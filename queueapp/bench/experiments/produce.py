"""`bench produce`: a workload, sent into a pool of the project that the command is called from.

It says what it will do, asks, sends each job at its moment, and tells what became of them and how late it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queueapp.bench import profiles
from queueapp.bench.harness import Progress, Report
from queueapp.bench.live.pacing import Sent, at_rate, send
from queueapp.bench.live.producing import OWN, Batches, renamed, require_pool
from queueapp.bench.live.stopping import stoppable
from queueapp.bench.statistics import percentiles, ratio
from queueapp.bench.workloads import KINDS, Job, Workload, traces
from queueapp.cli.console import Console
from queueapp.conf import settings
from queueapp.inspection.overview import pool_status
from queueapp.store import connection

SHOWN = 10
"""Jobs that a dry run shows; tenants that are named."""
TOLD_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is sent. None: as the profile has it."""

    workload: str
    """A kind, or the file of a trace."""
    pool: str | None
    count: int | None = None
    rate: float | None = None
    """Jobs a second in the mean, instead of the workload's own rate."""
    seed: int | None = None
    profile: str = "quick"
    exec: str | None = None
    task: str = OWN
    tenants: Sequence[str] | None = None
    """Who sends, instead of the workload's tenants."""
    dry_run: bool = False
    yes: bool = False

    def made(self) -> Workload:
        profile = profiles.load(self.profile)
        if self.workload in KINDS:
            found = profile.workload(self.workload, seed=self.seed, jobs=self.count)
        else:
            seed = profile.run.seed if self.seed is None else self.seed
            found = traces.read(Path(self.workload), seed=seed, slots=profile.run.slots, jobs=self.count)
        if self.rate is not None:
            found = at_rate(found, self.rate)
        return renamed(found, self.tenants) if self.tenants else found

    @property
    def execution(self) -> str:
        return self.exec or profiles.load(self.profile).run.execution


def run(
    report: Report,
    progress: Progress,
    plan: Plan,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Sends the workload, unless it is a dry run or the answer is no. Raises what the store raises if it is away."""
    pool, workload = require_pool(plan.pool), plan.made()
    batches = Batches(pool, plan.task, plan.execution)
    batches.bound(workload.jobs[0], clock())  # what is refused whoever sends is refused now
    report.run = {**report.run, **_identity(plan, workload)}
    report.figures |= {"jobs": len(workload.jobs), "planned_rate_per_s": _rate(workload), "sent": 0, "refused": 0}
    _announce(progress, plan, workload)
    if plan.dry_run:
        _show(progress, workload)
        return
    _look(progress, pool)
    console = Console(progress.say, progress.say)
    if not (plan.yes or console.confirm(f"Send {len(workload.jobs):,} jobs to {pool}?")):
        progress.say("  Nothing was sent.")
        return
    batches.get_ready()
    with stoppable() as goes_on:
        told = _telling(progress, len(workload.jobs))
        begin_s = clock()
        sent = send(
            workload.jobs,
            lambda jobs: batches.send(jobs, begin_s),
            begin_s=begin_s,
            clock=clock,
            sleep=sleep,
            told=told,
            goes_on=goes_on,
        )
    _tell(report, progress, workload, sent, batches)


def _telling(progress: Progress, total: int) -> Callable[[Sequence[Sent]], None]:
    """Shows how far it is, now and then: what is shown at each call would hold up the sender."""
    done, told_s = 0, 0.0

    def told(latest: Sequence[Sent]) -> None:
        nonlocal done, told_s
        done += len(latest)
        if (now := time.monotonic()) - told_s >= TOLD_EVERY_S:
            told_s = now
            late = f", {latest[-1].lag_ms / 1000:.1f} s late" if latest[-1].lag_ms >= 1000 else ""
            progress.show(f"  {done:,} of {total:,} jobs sent{late}")

    return told


def _tell(report: Report, progress: Progress, workload: Workload, sent: Sequence[Sent], batches: Batches) -> None:
    refused = Counter(one.error for one in sent if one.error)
    taken = len(sent) - refused.total()
    seconds = (sent[-1].sent_us - sent[0].planned_us) / 1_000_000 if sent else 0.0
    p50, p99, most = percentiles([one.lag_ms for one in sent], 50, 99, 100)
    report.figures |= {
        "sent": taken,
        "refused": refused.total(),
        **{f"refused_{word}": number for word, number in sorted(refused.items())},
        "seconds": seconds,
        "rate_per_s": ratio(len(sent), seconds),
        "lag_ms_p50": p50,
        "lag_ms_p99": p99,
        "lag_ms_max": most,
    }
    report.rows += _by_tenant(workload.jobs, sent)
    progress.say(f"  {taken:,} jobs sent in {seconds:.1f} s, {ratio(len(sent), seconds):,.1f} a second")
    for word, number in batches.words.most_common():
        if word in refused:
            progress.say(f"  {number:,} refused: {word}. {batches.said[word]}")
        elif word != "enqueued":
            progress.say(f"  {number:,} of them {word}")
    if sent:
        progress.say(f"  late by {p50:.1f} ms in the median, {p99:.1f} ms p99, {most:.1f} ms at worst")
    if sent and not taken:
        report.missed.append(f"None of the {len(sent):,} jobs was taken.")
    if len(sent) < len(workload.jobs):
        report.missed.append(f"It was stopped: {len(sent):,} of {len(workload.jobs):,} jobs were sent.")


def _by_tenant(jobs: Sequence[Job], sent: Sequence[Sent]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for job, one in zip(jobs, sent, strict=False):  # in one order; those behind the last that was sent were not
        row = found.setdefault(job.tenant, {"tenant": job.tenant, "sent": 0, "refused": 0})
        row["refused" if one.error else "sent"] += 1
    return [found[tenant] for tenant in sorted(found)]


# -- what is said before -------------------------------------------------------------------------------------------


def _announce(progress: Progress, plan: Plan, workload: Workload) -> None:
    jobs = workload.jobs
    times = [job.service_us / 1000 for job in jobs]
    sizes = Counter(job.tenant for job in jobs)
    named = ", ".join(f"{tenant} {number:,}" for tenant, number in sizes.most_common(SHOWN))
    more = f", and {len(sizes) - SHOWN:,} more" if len(sizes) > SHOWN else ""
    rate, busy_s = _rate(workload), sum(times) / 1000
    doing = "computes" if plan.execution == "cpu" else "sleeps"
    each = f"{doing} for {min(times):,.1f} to {max(times):,.1f} ms" if plan.task == OWN else f"runs {plan.task}"
    where = f"the pool {plan.pool} of the namespace {settings.namespace}"
    progress.say(f"  {len(jobs):,} jobs of {workload.name}, seed {workload.seed}, for {where}")
    progress.say(f"  {len(sizes):,} tenants: {named}{more}")
    progress.say(f"  {jobs[-1].at_us / 1_000_000:,.1f} s at {rate:,.1f} jobs/s; each {each}, {busy_s:,.1f} s together")
    progress.say(f"  digest {workload.digest()}")


def _show(progress: Progress, workload: Workload) -> None:
    """A dry run's table: the first jobs."""
    progress.say(f"  {'number':>8} {'at s':>10} {'ms':>9} {'priority':>8} {'deadline s':>10}  tenant, lane")
    for job in workload.jobs[:SHOWN]:
        deadline = f"{job.deadline_us / 1_000_000:10.3f}" if job.deadline_us else f"{'-':>10}"
        times = f"{job.at_us / 1_000_000:10.3f} {job.service_us / 1000:9.1f}"
        progress.say(f"  {job.number:8,} {times} {job.priority:8} {deadline}  {job.tenant}, {job.lane}")
    progress.say("  A dry run: nothing was sent.")


def _look(progress: Progress, pool: str) -> None:
    """Who is there to run them. Raises StoreUnavailable when the store is away."""
    there = pool_status(pool)
    working = [worker.info.get("slots", "?") for worker in there.workers if worker.live]
    workers = f"workers with {' + '.join(working)} slots" if working else "no worker"
    paused = ", and it is paused" if there.paused else ""
    progress.say(f"  {connection.label()}: {workers} for this pool, {there.waiting:,} jobs wait in it{paused}")


def _rate(workload: Workload) -> float:
    return ratio(len(workload.jobs), workload.jobs[-1].at_us / 1_000_000)


def _identity(plan: Plan, workload: Workload) -> dict[str, object]:
    return {
        "workload": workload.name,
        "workload_digest": workload.digest(),
        "namespace": settings.namespace,
        "seed": workload.seed,
        "exec": plan.execution,
        "load": workload.load,
    }
