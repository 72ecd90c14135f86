"""The figures as people read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ductor_project.demo.show.figures import Figures
from ductor_project.demo.show.load import SHARES
from queueapp.bench.harness import Report
from queueapp.bench.statistics import median

COLUMN = 28


def comparison(runs: Mapping[str, Figures]) -> Iterator[str]:
    """A line per tenant, both policies side by side."""
    yield f"  {'':<8} {'':>5} " + "".join(f"  {policy:^{COLUMN}}" for policy in runs)
    yield f"  {'tenant':<8} {'load':>5} " + f"  {'share*':>8} {'wait p50':>9} {'wait p95':>9}" * len(runs)
    for tenant, load in SHARES.items():
        cells = [
            f"  {run.tenants[tenant].share:>8.0%} {duration(run.tenants[tenant].wait_p50_ms):>9} "
            f"{duration(run.tenants[tenant].wait_p95_ms):>9}"
            for run in runs.values()
        ]
        yield f"  {tenant:<8} {load:>4}% " + "".join(cells)
    yield "  * of the imports that ended while uploads still came in"
    yield ""
    yield f"  {'':<32}" + "".join(f"{policy:>10}" for policy in runs)
    for name, values in {
        "small tenants, wait p95 **": [duration(median(run.small_p95_ms)) for run in runs.values()],
        "big tenant, latency p95 **": [duration(median(run.big_latency_p95_ms)) for run in runs.values()],
        "imports a second": [f"{run.jobs_per_s:.0f}" for run in runs.values()],
        "run time of an import": [duration(run.run_ms) for run in runs.values()],
        "of it in the database": [f"{run.database_share:.0%}" for run in runs.values()],
        "enqueued": [f"{run.sums.enqueued}" for run in runs.values()],
        "completed": [f"{run.sums.completed}" for run in runs.values()],
        "lost": [f"{run.sums.lost}" for run in runs.values()],
        "recorded twice": [f"{run.sums.recorded_twice}" for run in runs.values()],
        "run again after the kill": [f"{run.sums.lost_leases}" for run in runs.values()],
    }.items():
        yield f"  {name:<32}" + "".join(f"{value:>10}" for value in values)
    yield "  ** from enqueue to start, and from enqueue to end; the median of the runs"
    yield ""


def verdict(report: Report, mails: int) -> Iterator[str]:
    """What it comes to."""
    figures = report.figures
    yield "  Median of the pairs of runs:"
    yield f"  the small tenants' p95 wait is {figures['small_p95_ratio']:.1f} times lower under tiered;"
    yield f"  the big tenant's p95 latency under tiered is {figures['big_p95_ratio']:.2f} times that under fifo."
    yield (
        f"  {figures['enqueued']} jobs enqueued, {figures['completed']} completed, {figures['lost']} lost, "
        f"{figures['recorded_twice']} recorded twice; {mails} summary mails."
    )


def duration(ms: float) -> str:
    """Milliseconds below a second, else seconds."""
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.2f} s"
