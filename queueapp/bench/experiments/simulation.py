"""`bench simulate`: a workload under policies in virtual time, beside `fifo` and, where one tenant floods, an ideal.

Every number but `jobs_per_s` (how fast this machine simulates) is the same on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from queueapp.bench import profiles
from queueapp.bench.experiments.simulation_table import tell
from queueapp.bench.harness import Progress, Report
from queueapp.bench.intervals import interval, shifts, worst
from queueapp.bench.profiles import InvalidProfile, Profile
from queueapp.bench.simulate import Result, SmallFirst, result, simulate
from queueapp.bench.statistics import median, ratio
from queueapp.bench.workloads import Workload, digest
from queueapp.bench.workloads.traces import InvalidTrace, read
from queueapp.policies.protocol import Policy
from queueapp.policies.registry import POLICIES

ALL = "all"
PROMISED = frozenset({"wfq", "tiered"})
"""Policies of which the two limits below are promised, for the plan as it is by default."""
SMALL_LEAST, BIG_MOST = 36.0, 1.03
"""So many times lower than under fifo is the small tenants' p95 wait; so much of it is the big one's p95 latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is simulated: `seeds` runs of each policy, with the seeds from `seed` on. None: as the profile has it."""

    policy: str
    """Names with commas between them, or `all`."""
    workload: str = "multi_tenant"
    profile: str = "flood"
    trace: str | None = None
    """File of a recorded workload, instead of one that is made."""
    load: float | None = None
    slots: int | None = None
    jobs: int | None = None
    seed: int | None = None
    seeds: int | None = None
    weight: Mapping[str, float] | None = None
    """Tenant → weight, where it is not the profile's."""
    ceiling: Mapping[str, int] | None = None
    """Tenant → most jobs of it that run at once."""

    @property
    def policies(self) -> list[str]:
        return named(self.policy)

    def filled(self) -> tuple[Profile, int, int]:
        """The profile with all that the plan has instead, the first seed, and the number of runs."""
        profile = profiles.load(self.profile).limited(self.weight or {}, self.ceiling or {})
        run = profile.run
        run = replace(
            run,
            slots=run.slots if self.slots is None else self.slots,
            jobs=run.jobs if self.jobs is None else self.jobs,
            seed=run.seed if self.seed is None else self.seed,
            repetitions=run.repetitions if self.seeds is None else self.seeds,
        )
        profile = replace(profile, run=run)
        # A recorded workload is the same for every seed: what fails is all that they can vary.
        once = self.trace is not None and not profile.failures
        return profile, profile.run.seed, 1 if once else profile.run.repetitions

    def workloads(self) -> Iterator[Workload]:
        profile, first, runs = self.filled()
        if self.trace is None:
            for seed in range(first, first + runs):
                yield profile.workload(self.workload, seed=seed, load=self.load)
            return
        if self.load is not None:
            raise InvalidTrace(f"load is {self.load:g}, but {self.trace} has a load of its own: leave --load out.")
        recorded = read(Path(self.trace), seed=first, slots=profile.run.slots, jobs=self.jobs)
        for seed in range(first, first + runs):
            yield replace(recorded, seed=seed)

    def judged(self, policy: str) -> bool:
        """The limits are promised for some policies, and for the plan as it is by default.

        The price of the big tenant differs from burst to burst by more than from policy to policy, whatever the policy:
        other seeds, or fewer of them, are there to be looked at.
        """
        return policy in PROMISED and self == Plan(policy=self.policy)


def named(text: str) -> list[str]:
    """The policies of `a,b` or `all`. ValueError names the one that does not exist, and those that do."""
    found = sorted(POLICIES) if text == ALL else list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        if name not in POLICIES:
            raise ValueError(f"{name!r} is no policy: give some of {', '.join(sorted(POLICIES))}, or {ALL}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One run under a policy as a multiple of the same jobs under fifo."""

    small_p95_wait: float
    """How many times lower the p95 wait of the small tenants is."""
    big_p95_latency: float
    """The big tenant's p95 latency, in parts of what it is under fifo."""
    big_mean_latency: float


def run(report: Report, progress: Progress, plan: Plan) -> None:
    """Simulates every cell; ratios are medians over the seeds, the others means with their intervals."""
    begun = time.perf_counter()
    results = cells(report, progress, plan, plan.policies)
    seconds = time.perf_counter() - begun
    profile, seed, runs = plan.filled()
    real = {name: report.rows[0][name] for name in ("workload", "jobs", "load")}
    report.run = {**report.run, **asdict(profile.run), **real, "seed": seed, "seeds": runs}
    report.figures |= {
        "jobs_per_s": sum(row["jobs"] for row in report.rows) / seconds,
        "digest": _number(row["digest"] for row in report.rows),
        **_figures("fifo_", results["fifo"]),
    }
    for name in plan.policies:
        prefix = "" if len(plan.policies) == 1 else f"{name}_"
        report.figures |= _figures(prefix, results[name])
        if "small_first" in results:
            report.figures |= _compared(prefix, results[name], results["fifo"])
            own = medians(prices(results[name], results["fifo"]))
            report.missed += judge(name, own) if plan.judged(name) else []
    if "small_first" in results:
        report.figures |= _compared("ideal_", results["small_first"], results["fifo"])
        report.figures |= _in_ms("fifo_", results["fifo"])
    tell(report, progress, results, plan.policies)


def cells(report: Report, progress: Progress, plan: Plan, policies: Sequence[str]) -> Mapping[str, Sequence[Result]]:
    """Simulates every workload of the plan under fifo, the ideal and `policies`, a row for each; results by policy."""
    found: dict[str, list[Result]] = {}
    profile, first, runs = plan.filled()
    for workload in plan.workloads():
        _known(plan, workload)
        for name, policy in _arms(policies, workload).items():
            title = f"  {name}, seed {workload.seed} of {first} to {first + runs - 1}"
            told = _telling(progress, title, len(workload.jobs))
            ran = simulate(workload, policy, told, failures=profile.failures, limits=profile.limits)
            cell = result(workload, ran, failures=profile.failures, starving_ms=profile.run.starving_ms)
            found.setdefault(name, []).append(cell)
            report.rows.append(_row(name, profile, workload, cell))
    return found


def _known(plan: Plan, workload: Workload) -> None:
    """Raises InvalidProfile for a tenant that is given a weight or a ceiling and has no part in the workload."""
    there = {*workload.tenants, *(job.tenant for job in workload.jobs)}
    for option, given in (("weight", plan.weight), ("ceiling", plan.ceiling)):
        for tenant in given or {}:
            if tenant not in there:
                told = ", ".join(sorted(there)[:10])
                raise InvalidProfile(f"{option} names {tenant!r}, which sends nothing here: give one of {told}.")


def _arms(policies: Sequence[str], workload: Workload) -> dict[str, Policy]:
    arms: dict[str, Policy] = {"fifo": POLICIES["fifo"]()}
    if workload.big is not None:
        arms["small_first"] = SmallFirst(workload.big)
    return arms | {name: POLICIES[name]() for name in policies}


def _telling(progress: Progress, title: str, jobs: int) -> Callable[[int], None]:
    return lambda started: progress.show(f"{title}: {started:,} runs of {jobs:,} jobs")


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


def _figures(prefix: str, results: Sequence[Result]) -> dict[str, float]:
    """Mean, half-width and worst of each figure over the runs, and how far the first five runs were from all."""
    columns = {name: [cell.summary.figures()[name] for cell in results] for name in results[0].summary.figures()}
    middle, most = shifts(columns)
    found = {f"{prefix}shift_median": middle, f"{prefix}shift_max": most}
    for name, values in columns.items():
        known = interval(values)
        found |= {f"{prefix}{name}": known.mean, f"{prefix}{name}_half_width": known.half_width}
        found[f"{prefix}{name}_worst"] = worst(name, values)
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


def _row(policy: str, profile: Profile, workload: Workload, cell: Result) -> dict[str, Any]:
    return {
        "policy": policy,
        "workload": workload.name,
        "profile": profile.name,
        "seed": workload.seed,
        "load": workload.load,
        "jobs": len(workload.jobs),
        "warm_up_jobs": 0,
        "failures": asdict(profile.failures),
        "limits": {tenant: {"weight": own.weight, "ceiling": own.ceiling} for tenant, own in profile.limits.items()},
        "workload_digest": workload.digest(),
        "digest": cell.digest,
        **asdict(cell.summary),
        "small": asdict(cell.small),
        "big": asdict(cell.big),
    }


def _number(digests: Iterable[str]) -> int:
    """One number for all cells that JSON keeps exactly: 52 bits of the digest of their digests."""
    return int(digest((found,) for found in digests)[:13], 16)
