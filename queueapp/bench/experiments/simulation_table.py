"""What `bench simulate` prints: a line for each policy, and what a flood makes of the small tenants and the big one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from queueapp.bench.experiments.simulation_figures import FIFO, IDEAL, SHARDED, SPREADS, prefix_of
from queueapp.bench.experiments.simulation_plan import Scenario
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
    "jain_entitled": "Jain entitled",
}
"""Figure → heading."""
SHARDING = {
    "small_p95_wait": "small p95 wait",
    "big_p95_latency": "big p95 latency",
    "latency_mean": "mean latency",
    "latency_p99": "p99 latency",
    "utilisation": "busy",
    "jain_entitled": "Jain entitled",
}


def tell(
    report: Report,
    progress: Progress,
    figures: Mapping[str, float],
    results: Mapping[str, Sequence[Result]],
    policies: Sequence[str],
) -> None:
    """The table, then the comparison of each policy where there is a big tenant, and that of shards with one."""
    runs = len(results[FIFO])
    first, last = report.rows[-1 - (runs - 1) * len(results)], report.rows[-1]
    progress.say(
        f"  {first['workload']}, profile {first['profile']}: {first['jobs']:,} jobs at {first['load']:.3g} times what "
        f"{first['slots']} slots serve, seeds {first['seed']} to {last['seed']}, costs {first['costs']}"
    )
    progress.say("  means over the seeds, ± 95 % (Student), no warm-up left out; * differs from fifo, seed by seed")
    arms = [name for name in dict.fromkeys([FIFO, *results]) if name != IDEAL]
    width = 2 + max(8, *map(len, arms))
    progress.say(" " * width + "".join(f"{heading:>19} " for heading in COLUMNS.values()))
    for name in arms:
        cells = [
            _cell([run.figures()[figure] for run in results[name]], [run.figures()[figure] for run in results[FIFO]])
            for figure in COLUMNS
        ]
        progress.say("  " + f"{name:<{width - 2}}" + "".join(f"{cell:>20}" for cell in cells))
    if IDEAL in results:
        _compare(figures, progress, policies, width)
    if any(name.endswith(SHARDED) for name in results):
        _shards(figures, progress, policies, width, f"{last['shards']} shards, slots {last['shard_slots']}")


def tell_spreads(report: Report, progress: Progress, scenarios: Sequence[Scenario]) -> None:
    """How far the policies are apart in each scenario, where there are several of both."""
    if len(scenarios) == 1 or scenarios[0].prefix + SPREADS["latency_p99_ms"] not in report.figures:
        return
    progress.say("  by what part the greatest mean of the policies exceeds the least")
    width = 2 + max(len(scenario.prefix) for scenario in scenarios)
    progress.say(" " * width + "".join(f"{COLUMNS[figure]:>12}" for figure in SPREADS))
    for scenario in scenarios:
        cells = [f"{100 * (report.figures[scenario.prefix + told] or 0):.1f} %" for told in SPREADS.values()]
        progress.say(f"  {scenario.prefix.rstrip('_'):<{width - 2}}" + "".join(f"{cell:>12}" for cell in cells))


def _cell(values: Sequence[float], fifo: Sequence[float]) -> str:
    return f"{interval(values)}{'*' if change(fifo, values).detected else ' '}"


def _compare(figures: Mapping[str, float], progress: Progress, policies: Sequence[str], width: int) -> None:
    """A line for each policy; in brackets the worst of the single seeds. `ideal` is the price of any protection."""
    progress.say("  beside fifo, medians over the seeds, in brackets the worst of them")
    headings = ("small p95 wait ms", "times lower", "big p95 latency", "big mean latency")
    progress.say(" " * width + "".join(f"{heading:>20}" for heading in headings))
    for name in [*policies, "ideal"]:
        prefix = "ideal_" if name == "ideal" else prefix_of(name, policies)
        lower, p95 = f"{prefix}small_p95_wait_ratio", f"{prefix}big_p95_latency_ratio"
        cells = [
            _number(figures[f"{prefix}small_p95_wait_ms"], 1),
            f"{_number(figures[lower], 1)} ({_number(figures[f'{lower}_min'], 1)})",
            f"{_number(figures[p95], 4)} ({_number(figures[f'{p95}_max'], 4)})",
            _number(figures[f"{prefix}big_mean_latency_ratio"], 4),
        ]
        progress.say("  " + f"{name:<{width - 2}}" + "".join(f"{cell:>20}" for cell in cells))


def _shards(figures: Mapping[str, float], progress: Progress, policies: Sequence[str], width: int, told: str) -> None:
    progress.say(f"  {told}: medians over the seeds of multiples of what it is on one shard")
    progress.say(" " * width + "".join(f"{heading:>17}" for heading in SHARDING.values()))
    for name in policies:
        cells = [figures[f"{prefix_of(name, policies)}sharding_{of}_ratio"] for of in SHARDING]
        progress.say(f"  {name:<{width - 2}}" + "".join(f"{_number(cell, 3):>17}" for cell in cells))


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"
