"""What was promised, and whether it was kept. Pure but for the report that it fills."""

from __future__ import annotations

from collections.abc import Mapping

from ductor_project.demo.show.figures import Figures
from queueapp.bench.harness import Report
from queueapp.bench.statistics import median, ratio

SMALL_TARGET = 5.0
"""So many times lower the small tenants' p95 wait must be under tiered."""
BIG_TARGET = 1.15
"""At most so many times as long the big tenant's p95 latency may be."""


def judge(report: Report, runs: Mapping[str, Figures]) -> None:
    """Fills the report's figures, and one sentence for each promise that was missed."""
    fifo, tiered = runs["fifo"], runs["tiered"]
    small = median(map(ratio, fifo.small_p95_ms, tiered.small_p95_ms))
    big = median(map(ratio, tiered.big_latency_p95_ms, fifo.big_latency_p95_ms))
    totals = {
        name: sum(getattr(run.sums, name) for run in runs.values())
        for name in ("enqueued", "completed", "lost", "recorded_twice", "dead", "lost_leases")
    }
    report.figures |= {"small_p95_ratio": small, "big_p95_ratio": big, **totals}
    for policy, run in runs.items():
        report.figures |= {
            f"{policy}_small_wait_p95_ms": median(run.small_p95_ms),
            f"{policy}_big_latency_p95_ms": median(run.big_latency_p95_ms),
            f"{policy}_imports_per_s": run.jobs_per_s,
            f"{policy}_run_ms": run.run_ms,
            f"{policy}_database_share": run.database_share,
        }
    if not small >= SMALL_TARGET:
        report.missed.append(
            f"The small tenants' p95 wait is {small:.1f} times lower under tiered; "
            f"at least {SMALL_TARGET:g} times are promised."
        )
    if not big <= BIG_TARGET:
        report.missed.append(
            f"The big tenant's p95 latency under tiered is {big:.2f} times that under fifo; "
            f"at most {BIG_TARGET:g} times are promised."
        )
    if totals["lost"]:
        report.missed.append(f"{totals['lost']} jobs were lost.")
    if totals["recorded_twice"]:
        report.missed.append(f"{totals['recorded_twice']} outcomes or rows were recorded twice.")
    if totals["completed"] != totals["enqueued"]:
        report.missed.append(f"{totals['enqueued']} jobs were enqueued and {totals['completed']} completed.")
