"""What `bench simulate` prints: a line for each policy, and what a flood makes of the small tenants and the big one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queueapp.bench.harness import Progress, Report
from queueapp.bench.intervals import change, interval
from queueapp.bench.simulate import Result

COLUMNS = {
    "latency_p50_ms": "p50 ms",
    "latency_p95_ms": "p95 ms",
    "latency_p99_ms": "p99 ms",
    "wait_max_ms": "longest wait ms",
    "miss_rate": "missed",
    "throughput_per_s": "jobs/s",
    "utilisation": "busy",
    "jain_service": "Jain",
}
"""Figure → heading."""


def tell(report: Report, progress: Progress, results: Mapping[str, Sequence[Result]], policies: Sequence[str]) -> None:
    """The table, then the comparison of each policy where there is a big tenant."""
    first, runs = report.rows[0], len(results["fifo"])
    progress.say(
        f"  {first['workload']}, profile {first['profile']}: {first['jobs']:,} jobs at {first['load']:.3g} times what "
        f"{first['slots']} slots serve, seeds {first['seed']} to {first['seed'] + runs - 1}"
    )
    progress.say("  means over the seeds, ± 95 % (Student), no warm-up left out; * differs from fifo, seed by seed")
    progress.say("  " + f"{'':<8}" + "".join(f"{heading:>19} " for heading in COLUMNS.values()))
    for name in dict.fromkeys(["fifo", *policies]):
        cells = [
            _cell(
                [run.summary.figures()[figure] for run in results[name]],
                [run.summary.figures()[figure] for run in results["fifo"]],
            )
            for figure in COLUMNS
        ]
        progress.say("  " + f"{name:<8}" + "".join(f"{cell:>20}" for cell in cells))
    if "small_first" in results:
        _compare(report.figures, progress, policies)
    progress.say(f"  digest {report.figures['digest']}; {report.figures['jobs_per_s']:,.0f} jobs/s simulated")


def _cell(values: Sequence[float], fifo: Sequence[float]) -> str:
    return f"{interval(values)}{'*' if change(fifo, values).detected else ' '}"


def _compare(figures: Mapping[str, Any], progress: Progress, policies: Sequence[str]) -> None:
    """A line for each policy; in brackets the worst of the single seeds. `ideal` is the price of any protection."""
    progress.say("  beside fifo, medians over the seeds, in brackets the worst of them")
    headings = ("small p95 wait ms", "times lower", "big p95 latency", "big mean latency")
    progress.say("  " + f"{'':<8}" + "".join(f"{heading:>20}" for heading in headings))
    for name in [*policies, "ideal"]:
        prefix = "ideal_" if name == "ideal" else "" if len(policies) == 1 else f"{name}_"
        lower, p95 = figures[f"{prefix}small_p95_wait_ratio"], figures[f"{prefix}big_p95_latency_ratio"]
        cells = [
            f"{figures[f'{prefix}small_p95_wait_ms']:.1f}",
            f"{lower:.1f} ({figures[f'{prefix}small_p95_wait_ratio_min']:.1f})",
            f"{p95:.4f} ({figures[f'{prefix}big_p95_latency_ratio_max']:.4f})",
            f"{figures[f'{prefix}big_mean_latency_ratio']:.4f}",
        ]
        progress.say("  " + f"{name:<8}" + "".join(f"{cell:>20}" for cell in cells))
