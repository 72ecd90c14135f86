"""The figures of `bench simulate`: of each policy, beside fifo, on shards beside one shard, and over all policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from queueapp.bench.intervals import interval, shifts, worst
from queueapp.bench.simulate import Result
from queueapp.bench.statistics import mean, median, ratio

SMALL_LEAST, BIG_MOST = 36.0, 1.03
"""So many times lower than under fifo is the small tenants' p95 wait; so much of it is the big one's p95 latency."""
FIFO, IDEAL, SHARDED = "fifo", "small_first", "_sharded"
SPREADS = {"latency_p99_ms": "spread_latency_p99", "throughput_per_s": "spread_throughput"}
"""Figure → that of its spread over the policies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One run under a policy as a multiple of the same jobs under fifo."""

    small_p95_wait: float
    """How many times lower the p95 wait of the small tenants is."""
    big_p95_latency: float
    """The big tenant's p95 latency, in parts of what it is under fifo."""
    big_mean_latency: float


def scenario_figures(results: Mapping[str, Sequence[Result]], policies: Sequence[str]) -> dict[str, float]:
    """All figures of one workload at one load. `results`: by arm (policy, ideal, policy on shards), run by run."""
    found = _figures("fifo_", results[FIFO])
    if IDEAL in results:
        found |= _compared("ideal_", results[IDEAL], results[FIFO]) | _in_ms("fifo_", results[FIFO])
    for name in policies:
        prefix = prefix_of(name, policies)
        found |= _figures(prefix, results[name])
        if IDEAL in results:
            found |= _compared(prefix, results[name], results[FIFO])
        if (sharded := results.get(name + SHARDED)) is not None:
            found |= _figures(f"{prefix}sharded_", sharded)
            if IDEAL in results:
                found |= _in_ms(f"{prefix}sharded_", sharded)
            found |= {f"{prefix}sharding_{of}_ratio": value for of, value in sharding(sharded, results[name]).items()}
    arms = list(dict.fromkeys([FIFO, *policies]))
    if len(arms) > 1:
        found |= {told: spread([results[name] for name in arms], figure) for figure, told in SPREADS.items()}
    return found


def prefix_of(name: str, policies: Sequence[str]) -> str:
    return "" if len(policies) == 1 else f"{name}_"


def judge(policy: str, price: Price) -> list[str]:
    """One sentence for each limit that was missed."""
    missed = []
    if not price.small_p95_wait >= SMALL_LEAST:
        missed.append(
            f"Under {policy} the small tenants' p95 wait is {price.small_p95_wait:.1f} times lower than under fifo; "
            f"{SMALL_LEAST:g} times are promised."
        )
    if not price.big_p95_latency <= BIG_MOST:
        missed.append(
            f"Under {policy} the big tenant's p95 latency is {price.big_p95_latency:.4f} times that under fifo; "
            f"at most {BIG_MOST:g} is promised."
        )
    return missed


def prices(results: Sequence[Result], fifo: Sequence[Result]) -> list[Price]:
    """Run by run, on the same jobs."""
    return [
        Price(
            small_p95_wait=ratio(base.small.wait_p95_ms, own.small.wait_p95_ms),
            big_p95_latency=ratio(own.big.latency_p95_ms, base.big.latency_p95_ms),
            big_mean_latency=ratio(own.big.latency_mean_ms, base.big.latency_mean_ms),
        )
        for own, base in zip(results, fifo, strict=True)
    ]


def medians(prices: Sequence[Price]) -> Price:
    return Price(
        small_p95_wait=median(price.small_p95_wait for price in prices),
        big_p95_latency=median(price.big_p95_latency for price in prices),
        big_mean_latency=median(price.big_mean_latency for price in prices),
    )


def sharding(sharded: Sequence[Result], one: Sequence[Result]) -> dict[str, float]:
    """What shards make of a policy: figure → median over the runs of its multiple of what it is on one shard."""
    columns = [(_shared(own), _shared(base)) for own, base in zip(sharded, one, strict=True)]
    return {name: median(ratio(own[name], base[name]) for own, base in columns) for name in columns[0][0]}


def _shared(found: Result) -> dict[str, float]:
    return {
        "small_p95_wait": found.small.wait_p95_ms,
        "big_p95_latency": found.big.latency_p95_ms,
        "latency_mean": found.summary.all.latency_mean_ms,
        "latency_p99": found.summary.all.latency_p99_ms,
        "utilisation": found.summary.utilisation,
        "jain_service": found.summary.jain_service,
        "jain_entitled": found.jain_entitled,
    }


def spread(arms: Sequence[Sequence[Result]], figure: str) -> float:
    """By what part the greatest mean over the runs of a figure exceeds the least, over several policies."""
    means = [mean(run.figures()[figure] for run in results) for results in arms]
    return ratio(max(means), min(means)) - 1


def _figures(prefix: str, results: Sequence[Result]) -> dict[str, float]:
    """Mean, half-width and worst of each figure over the runs, and how far the first five runs were from all."""
    columns = {name: [cell.figures()[name] for cell in results] for name in results[0].figures()}
    middle, most = shifts(columns)
    found = {f"{prefix}shift_median": middle, f"{prefix}shift_max": most}
    for name, values in columns.items():
        known = interval(values)
        found |= {f"{prefix}{name}": known.mean, f"{prefix}{name}_half_width": known.half_width}
        found[f"{prefix}{name}_worst"] = worst(name, values)
    if results[0].lowest.jobs:
        found[f"{prefix}lowest_p95_latency_ratio"] = median(
            ratio(cell.lowest.latency_p95_ms, cell.above.latency_p95_ms) for cell in results
        )
    return found


def _compared(prefix: str, results: Sequence[Result], fifo: Sequence[Result]) -> dict[str, float]:
    """What the small tenants gain and the big one pays, beside fifo."""
    own_prices = prices(results, fifo)
    own = medians(own_prices)
    return {
        f"{prefix}small_p95_wait_ratio": own.small_p95_wait,
        f"{prefix}small_p95_wait_ratio_min": min(price.small_p95_wait for price in own_prices),
        f"{prefix}big_p95_latency_ratio": own.big_p95_latency,
        f"{prefix}big_p95_latency_ratio_max": max(price.big_p95_latency for price in own_prices),
        f"{prefix}big_mean_latency_ratio": own.big_mean_latency,
        **_in_ms(prefix, results),
    }


def _in_ms(prefix: str, results: Sequence[Result]) -> dict[str, float]:
    return {
        f"{prefix}small_p95_wait_ms": median(cell.small.wait_p95_ms for cell in results),
        f"{prefix}big_p95_latency_ms": median(cell.big.latency_p95_ms for cell in results),
        f"{prefix}big_mean_latency_ms": median(cell.big.latency_mean_ms for cell in results),
    }
