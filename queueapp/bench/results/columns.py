"""The columns of a run's tables, and the figures that a cell has in them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from queueapp.bench.outcomes import Outcome, Summary, Times, times
from queueapp.bench.results.cells import Cell, Setting
from queueapp.bench.results.rows import FLAG, NUMBER, TEXT, WHOLE, Columns, Value
from queueapp.bench.statistics import ratio

RUN = {"run": TEXT, "cell": TEXT}
"""What every row begins with: whose it is."""
SETTING: Columns = {
    "policy": TEXT,
    "dispatch": TEXT,
    "workload": TEXT,
    "profile": TEXT,
    "load": NUMBER,
    "seed": WHOLE,
    "repetition": WHOLE,
    "jobs": WHOLE,
    "slots": WHOLE,
    "workers": WHOLE,
    "execution": TEXT,
    "starving_ms": WHOLE,
    "workload_digest": TEXT,
}
"""The parts of a setting that a row can hold; manifest.json has all of it."""
FACTS: Columns = {
    "timed_out": FLAG,
    "unfinished": WHOLE,
    "lost": WHOLE,
    "recorded_twice": WHOLE,
    "dead_letters": WHOLE,
    "digest": TEXT,
}
FIGURES = (
    "completed",
    "dead",
    "attempts",
    "latency_mean_ms",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "latency_p999_ms",
    "tail_ratio",
    "wait_p50_ms",
    "wait_p95_ms",
    "wait_p99_ms",
    "wait_max_ms",
    "miss_rate",
    "starved",
    "throughput_per_s",
    "makespan_s",
    "service_s",
    "utilisation",
    "jain_service",
    "jain_count",
    "producer_lag_ms_max",
)
"""Of a cell. `tail_ratio` is the p99 of latency over its p50."""
AGGREGATE: Columns = {**RUN, **SETTING, **FACTS, **dict.fromkeys(FIGURES, NUMBER)}
TIMES: Columns = {
    "jobs": WHOLE,
    "completed": WHOLE,
    "wait_p50_ms": NUMBER,
    "wait_p95_ms": NUMBER,
    "wait_p99_ms": NUMBER,
    "wait_max_ms": NUMBER,
    "latency_mean_ms": NUMBER,
    "latency_p50_ms": NUMBER,
    "latency_p95_ms": NUMBER,
    "latency_p99_ms": NUMBER,
    "latency_p999_ms": NUMBER,
    "miss_rate": NUMBER,
    "starved": WHOLE,
    "service_s": NUMBER,
}
"""The fields of `Times`."""
TENANTS: Columns = {**RUN, "tenant": TEXT, **TIMES}
PRIORITIES: Columns = {**RUN, "priority": WHOLE, **TIMES}
OUTCOME: Columns = {
    "number": WHOLE,
    "tenant": TEXT,
    "lane": TEXT,
    "priority": WHOLE,
    "planned_us": WHOLE,
    "sent_us": WHOLE,
    "started_us": WHOLE,
    "ended_us": WHOLE,
    "busy_us": WHOLE,
    "deadline_us": WHOLE,
    "attempts": WHOLE,
    "completed": FLAG,
}
"""The fields of `Outcome`."""
RAW: Columns = {**RUN, **OUTCOME}


def figures(cell: Cell, found: Summary | None) -> dict[str, float]:
    """`FIGURES` of a cell, `found` being its summary; NaN for what nothing is known of."""
    if found is None:
        return {**dict.fromkeys(FIGURES, math.nan), "completed": 0, "dead": 0, "attempts": 0}
    known = {
        **found.figures(),
        "completed": found.all.completed,
        "attempts": found.attempts,
        "latency_p999_ms": found.all.latency_p999_ms,
        "tail_ratio": ratio(found.all.latency_p99_ms, found.all.latency_p50_ms),
        "wait_p50_ms": found.all.wait_p50_ms,
        "wait_p95_ms": found.all.wait_p95_ms,
        "wait_p99_ms": found.all.wait_p99_ms,
        "makespan_s": found.makespan_s,
        "service_s": found.all.service_s,
        "producer_lag_ms_max": cell.lag_ms_max,
    }
    return {name: known[name] for name in FIGURES}


def of_setting(setting: Setting) -> list[Value]:
    """The values of `SETTING`."""
    return [getattr(setting, name) for name in SETTING]


def of_facts(cell: Cell) -> list[Value]:
    """The values of `FACTS`."""
    return [cell.timed_out, cell.unfinished, cell.lost, cell.recorded_twice, len(cell.dead_letters), cell.digest]


def of_outcome(outcome: Outcome) -> list[Value]:
    """The values of `OUTCOME`."""
    return [getattr(outcome, name) for name in OUTCOME]


def by_tenant(cell: Cell, found: Summary | None) -> Iterable[tuple[str, Times]]:
    """Every tenant that might have sent something, with its times."""
    if found is not None:
        return found.tenants.items()
    return [(tenant, times((), cell.setting.starving_ms)) for tenant in sorted(cell.setting.tenants)]


def by_priority(found: Summary | None) -> Iterable[tuple[int, Times]]:
    return () if found is None else found.priorities.items()


def of_times(found: Times) -> list[Value]:
    """The values of `TIMES`."""
    return [getattr(found, name) for name in TIMES]
