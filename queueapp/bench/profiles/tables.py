"""The tables of a profile: which fields there are, what stands where one is not set, what may stand in it."""

from __future__ import annotations

from queueapp.bench.failures import Failures
from queueapp.bench.profiles.profile import (
    LEAST_LOAD,
    MOST_JOBS,
    MOST_LOAD,
    MOST_RUNS,
    MOST_SEED,
    MOST_SLOTS,
    Profile,
    Run,
)
from queueapp.bench.profiles.reading import MOST_MS, Table
from queueapp.bench.workloads.shape import Bursts, Churn, Deadlines, Durations, HeavyTail, Shape
from queueapp.names import LANE_FORM, TENANT_FORM
from queueapp.policies.room import Limits


def profile(name: str, file: Table) -> Profile:
    """All of a file. Raises InvalidProfile for the first field that is wrong."""
    found = Profile(
        name=name,
        run=_run(file.table("run")),
        shape=_shape(file),
        failures=_failures(file.table("failures")),
        limits=_limits(file.table("limits")),
    )
    file.close()
    return found


def _run(table: Table) -> Run:
    unset = Run()
    found = Run(
        jobs=table.whole("jobs", unset.jobs, 1, MOST_JOBS),
        slots=table.whole("slots", unset.slots, 1, MOST_SLOTS),
        repetitions=table.whole("repetitions", unset.repetitions, 1, MOST_RUNS),
        seed=table.whole("seed", unset.seed, 0, MOST_SEED),
        execution=table.word("execution", unset.execution, ("sleep", "cpu")),
        starving_ms=table.whole("starving_ms", unset.starving_ms, 1, MOST_MS),
    )
    table.close()
    return found


def _shape(file: Table) -> Shape:
    unset = Shape()
    arrivals, priorities, tenants = file.table("arrivals"), file.table("priorities"), file.table("tenants")
    both = "load" in arrivals and "rate_per_s" in arrivals
    rate_per_s = arrivals.number("rate_per_s", unset.rate_per_s, 0.001, 1_000_000)
    if both:
        raise arrivals.refused("rate_per_s", rate_per_s, "load is given, too, and one follows from the other: drop one")
    found = Shape(
        load=arrivals.number("load", 1.0, LEAST_LOAD, MOST_LOAD) if "load" in arrivals else None,
        rate_per_s=rate_per_s,
        bursts=_bursts(arrivals.table("bursts")),
        durations=_durations(file.table("durations")),
        heavy_tail=_heavy_tail(file.table("heavy_tail")),
        priorities=priorities.weights("weights", unset.priorities, 101),
        deadlines=_deadlines(file.table("deadlines")),
        tenants=tenants.shares("even", unset.tenants, TENANT_FORM),
        skewed=tenants.shares("skewed", unset.skewed, TENANT_FORM),
        factors=tenants.shares("factors", unset.factors, TENANT_FORM, least=1),
        lanes=file.shares("lanes", unset.lanes, LANE_FORM),
        churn=_churn(tenants.table("churn")),
    )
    for table in (arrivals, priorities, tenants):
        table.close()
    return found


def _bursts(table: Table) -> Bursts:
    unset = Bursts()
    found = Bursts(
        base_per_s=table.number("base_per_s", unset.base_per_s, 0, 1_000_000),
        peak_per_s=table.number("peak_per_s", unset.peak_per_s, 0.001, 1_000_000),
        length_ms=table.whole("length_ms", unset.length_ms, 1, MOST_MS),
        period_ms=table.whole("period_ms", unset.period_ms, 1, MOST_MS),
    )
    if found.length_ms > found.period_ms:
        raise table.refused("length_ms", found.length_ms, f"give at most period_ms, {found.period_ms}")
    table.close()
    return found


def _durations(table: Table) -> Durations:
    unset = Durations()
    least_ms = table.whole("least_ms", unset.least_ms, 1, MOST_MS)
    most_ms = table.whole("most_ms", unset.most_ms, 1, MOST_MS)
    if most_ms < least_ms:
        raise table.refused("most_ms", most_ms, f"give at least least_ms, {least_ms}")
    table.close()
    return Durations(least_ms=least_ms, most_ms=most_ms)


def _heavy_tail(table: Table) -> HeavyTail:
    unset = HeavyTail()
    least_ms = table.whole("least_ms", unset.least_ms, 1, MOST_MS)
    most_ms = table.whole("most_ms", unset.most_ms, 1, MOST_MS)
    if most_ms < least_ms:
        raise table.refused("most_ms", most_ms, f"give at least least_ms, {least_ms}")
    alpha = table.number("alpha", unset.alpha, 0.1, 100)
    table.close()
    return HeavyTail(least_ms=least_ms, most_ms=most_ms, alpha=alpha)


def _deadlines(table: Table) -> Deadlines:
    unset = Deadlines()
    found = Deadlines(
        base_ms=table.whole("base_ms", unset.base_ms, 0, MOST_MS),
        multiplier=table.number("multiplier", unset.multiplier, 0, 1_000),
        jitter_ms=table.whole("jitter_ms", unset.jitter_ms, 0, MOST_MS),
    )
    table.close()
    return found


def _churn(table: Table) -> Churn:
    unset = Churn()
    found = Churn(
        active=table.whole("active", unset.active, 1, 1_000_000),
        stay_ms=table.whole("stay_ms", unset.stay_ms, 1, MOST_MS),
    )
    table.close()
    return found


def _failures(table: Table) -> Failures:
    unset = Failures()
    found = Failures(
        failing=table.number("failing", unset.failing, 0, 1),
        lost=table.number("lost", unset.lost, 0, 1),
        attempts=table.whole("attempts", unset.attempts, 1, 1_000),
        backoff_ms=table.whole("backoff_ms", unset.backoff_ms, 0, MOST_MS),
        lease_ms=table.whole("lease_ms", unset.lease_ms, 1, MOST_MS),
    )
    if found.failing + found.lost > 1:
        raise table.refused("lost", found.lost, f"with failing, {found.failing:g}, it must not exceed 1")
    table.close()
    return found


def _limits(table: Table) -> dict[str, Limits]:
    found = {}
    for tenant in table.names():
        own = table.table(tenant)
        if TENANT_FORM.fullmatch(tenant) is None:
            raise table.refused(tenant, tenant, f"give a name of the form {TENANT_FORM.pattern}")
        found[tenant] = Limits(
            weight=own.number("weight", 1.0, 0.001, 1_000_000),
            ceiling=own.whole("ceiling", 1, 1, MOST_SLOTS) if "ceiling" in own else None,
        )
        own.close()
    return found
