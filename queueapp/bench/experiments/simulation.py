"""`bench simulate`: a workload under a policy in virtual time, beside `fifo` and beside an ideal for the small tenants.

Every number but `jobs_per_s` (how fast this machine simulates) is the same on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from queueapp.bench.harness import Progress, Report
from queueapp.bench.simulate import Result, SmallFirst, result, simulate
from queueapp.bench.statistics import median, ratio
from queueapp.bench.workloads import WORKLOADS, Workload, digest
from queueapp.policies.protocol import Policy
from queueapp.policies.registry import POLICIES

PROMISED = frozenset({"wfq", "tiered"})
"""Policies of which the two limits below are promised, for the plan as it is by default."""
SMALL_LEAST, BIG_MOST = 36.0, 1.03
"""So many times lower than under fifo is the small tenants' p95 wait; so much of it is the big one's p95 latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is simulated: `seeds` runs of each policy, with the seeds from `seed` on."""

    policy: str
    workload: str = "multi_tenant"
    load: float = 1.25
    slots: int = 16
    jobs: int = 4_000
    seed: int = 42
    seeds: int = 7

    def workloads(self) -> Iterator[Workload]:
        for seed in range(self.seed, self.seed + self.seeds):
            yield WORKLOADS[self.workload](seed=seed, jobs=self.jobs, slots=self.slots, load=self.load)

    @property
    def judged(self) -> bool:
        """The limits are promised for these policies, and for the plan as it is by default.

        The price of the big tenant differs from burst to burst by more than from policy to policy, whatever the policy:
        other seeds, or fewer of them, are there to be looked at.
        """
        return self.policy in PROMISED and self == Plan(policy=self.policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One run under a policy as a multiple of the same jobs under fifo."""

    small_p95_wait: float
    """How many times lower the p95 wait of the small tenants is."""
    big_p95_latency: float
    """The big tenant's p95 latency, in parts of what it is under fifo."""
    big_mean_latency: float


def run(report: Report, progress: Progress, plan: Plan) -> None:
    """Simulates every cell; figures are medians over the seeds."""
    begun = time.perf_counter()
    results = cells(report, progress, plan, [plan.policy])
    seconds = time.perf_counter() - begun
    own_prices = prices(results[plan.policy], results["fifo"])
    own, ideal = medians(own_prices), medians(prices(results["small_first"], results["fifo"]))
    report.figures |= {
        "jobs_per_s": len(report.rows) * plan.jobs / seconds,
        "digest": _number(row["digest"] for row in report.rows),
        "small_p95_wait_ratio": own.small_p95_wait,
        "small_p95_wait_ratio_min": min(price.small_p95_wait for price in own_prices),
        "big_p95_latency_ratio": own.big_p95_latency,
        "big_p95_latency_ratio_max": max(price.big_p95_latency for price in own_prices),
        "big_mean_latency_ratio": own.big_mean_latency,
        "ideal_small_p95_wait_ratio": ideal.small_p95_wait,
        "ideal_big_p95_latency_ratio": ideal.big_p95_latency,
        "ideal_big_mean_latency_ratio": ideal.big_mean_latency,
        **_in_ms("", results[plan.policy]),
        **_in_ms("fifo_", results["fifo"]),
    }
    _print(report, progress, plan)
    if plan.judged:
        report.missed += judge(plan.policy, own)


def cells(report: Report, progress: Progress, plan: Plan, policies: Sequence[str]) -> Mapping[str, Sequence[Result]]:
    """Simulates every workload of the plan under fifo, the ideal and `policies`, a row for each; results by policy."""
    found: dict[str, list[Result]] = {}
    for workload in plan.workloads():
        for name, policy in _arms(policies, workload).items():
            title = f"  {name}, seed {workload.seed} of {plan.seed} to {plan.seed + plan.seeds - 1}"
            cell = result(workload, simulate(workload, policy, _telling(progress, title, plan.jobs)))
            found.setdefault(name, []).append(cell)
            report.rows.append(_row(name, workload, cell))
    return found


def _arms(policies: Sequence[str], workload: Workload) -> dict[str, Policy]:
    arms: dict[str, Policy] = {"fifo": POLICIES["fifo"](), "small_first": SmallFirst(workload.big)}
    return arms | {name: POLICIES[name]() for name in policies}


def _telling(progress: Progress, title: str, jobs: int) -> Callable[[int], None]:
    return lambda started: progress.show(f"{title}: {started:,} of {jobs:,} jobs")


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


# -- figures and rows ------------------------------------------------------------------------------------------------


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


def _in_ms(prefix: str, results: Sequence[Result]) -> dict[str, float]:
    return {
        f"{prefix}small_p95_wait_ms": median(cell.small.wait_p95_ms for cell in results),
        f"{prefix}big_p95_latency_ms": median(cell.big.latency_p95_ms for cell in results),
        f"{prefix}big_mean_latency_ms": median(cell.big.latency_mean_ms for cell in results),
    }


def _row(policy: str, workload: Workload, cell: Result) -> dict[str, Any]:
    return {
        "policy": policy,
        "workload": workload.name,
        "seed": workload.seed,
        "slots": workload.slots,
        "load": workload.load,
        "jobs": len(workload.jobs),
        "workload_digest": workload.digest(),
        "digest": cell.digest,
        "makespan_s": cell.makespan_s,
        "completed_per_s": ratio(len(workload.jobs), cell.makespan_s),
        "utilisation": cell.utilisation,
        "small": asdict(cell.small),
        "big": asdict(cell.big),
        "tenants": {tenant: asdict(found) for tenant, found in cell.tenants.items()},
    }


def _number(digests: Iterable[str]) -> int:
    """One number for all cells that JSON keeps exactly: 52 bits of the digest of their digests."""
    return int(digest((found,) for found in digests)[:13], 16)


def _print(report: Report, progress: Progress, plan: Plan) -> None:
    figures: Mapping[str, Any] = report.figures
    progress.say(
        f"  {plan.workload}: {plan.jobs:,} jobs at {plan.load:g} times what {plan.slots} slots serve, "
        f"{plan.seeds} seeds from {plan.seed}; medians"
    )
    progress.say(f"  {'':<34}{'fifo':>10}{plan.policy:>10}{'ratio':>9}{'ideal':>9}")
    for name, key, form in (
        ("p95 wait of the small tenants, ms", "small_p95_wait", "9.1f"),
        ("p95 latency of the big one, ms", "big_p95_latency", "9.4f"),
        ("mean latency of the big one, ms", "big_mean_latency", "9.4f"),
    ):
        progress.say(
            f"  {name:<34}{figures[f'fifo_{key}_ms']:10.1f}{figures[f'{key}_ms']:10.1f}"
            f"{figures[f'{key}_ratio']:{form}}{figures[f'ideal_{key}_ratio']:{form}}"
        )
    progress.say(
        f"  digest {figures['digest']}; {figures['jobs_per_s']:,.0f} jobs/s simulated; in single seeds at least "
        f"{figures['small_p95_wait_ratio_min']:.1f} and at most {figures['big_p95_latency_ratio_max']:.4f}"
    )
