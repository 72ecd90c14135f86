"""`bench sweep`: what `bench matrix` does, at several loads: from half of what the slots serve to three times of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from queueapp.bench.experiments import matrix
from queueapp.bench.harness import Progress, Report
from queueapp.bench.statistics import mean


def run(report: Report, progress: Progress, directory: Path, options: Mapping[str, Any]) -> None:
    """Runs what the options cross, at each load, and tells how the latencies grow."""
    matrix.run(report, progress, directory, options)
    for line in table(report.rows):
        progress.say(line)


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The p95 of latency by load, in the mean of the repetitions; a dash where a cell has too few jobs for it."""
    # A load that follows from a rate is not the same to the bit for each seed.
    loads = sorted({f"{row['load']:.3g}" for row in rows}, key=float)
    lines: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        name = f"{row['policy']} {row['dispatch']} {row['workload']}"
        lines.setdefault(name, {}).setdefault(f"{row['load']:.3g}", []).append(row["latency_p95_ms"])
    width = max(map(len, lines), default=0)
    yield f"  {'p95 ms at load':<{width}}" + "".join(f"{load:>9}" for load in loads)
    for name, known in lines.items():
        means = [mean(known.get(load, ())) for load in loads]
        yield f"  {name:<{width}}" + "".join(f"{one:>9,.0f}" if one == one else f"{'-':>9}" for one in means)
