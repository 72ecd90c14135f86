"""The kinds of workload: for each one, when jobs arrive, whose they are, how long they run, and what they declare.

The dice are thrown in one order for each job: gap, tenant, duration, lane, priority, jitter of the deadline. What has
one possible value only takes no throw, so that a shape without priorities has the same jobs as one that never knew any.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from queueapp.bench.workloads.dice import by_share, exponential, pareto, pareto_mean, uniform
from queueapp.bench.workloads.jobs import Job, Workload
from queueapp.bench.workloads.shape import Shape

Arrivals = Callable[[random.Random, Shape, float], Iterator[int]]
"""Moments in order, for a mean gap in microseconds."""
Tenant = Callable[[random.Random, int], str]
Service = Callable[[random.Random, str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What sets one workload apart; by default five equal tenants and an even choice of durations."""

    arrivals: Arrivals
    shares: Callable[[Shape], Mapping[str, int]] = lambda shape: shape.tenants
    tenant: Callable[[Shape], Tenant] | None = None
    """Who sends at a moment; None: by `shares`, at any moment."""
    service: Callable[[Shape], Service]
    mean_us: Callable[[Shape], float]
    """The mean of `service`: what the slots serve follows from it."""
    rate_per_s: Callable[[Shape], float] = lambda shape: shape.rate_per_s
    declared: bool = False
    """Jobs declare their duration, in ms, as their cost."""
    flood: bool = False
    """One tenant sends so much more than the others that they are compared."""


def make(name: str, shape: Shape, *, seed: int, jobs: int, slots: int, load: float | None = None) -> Workload:
    """`jobs` jobs of a kind, byte-identical for equal arguments on any machine. More of them begin with the same ones.

    `load` stands before what the shape says. KeyError for a kind that does not exist.
    """
    kind, mean_us = KINDS[name], KINDS[name].mean_us(shape)
    load = shape.load if load is None else load
    if load is None:
        load = mean_us * kind.rate_per_s(shape) / 1_000_000 / slots
        gap_us = 1_000_000 / kind.rate_per_s(shape)
    else:
        gap_us = mean_us / (slots * load)
    shares = kind.shares(shape)
    made = list(_jobs(kind, shape, random.Random(seed), gap_us, jobs))
    return Workload(
        name=name,
        seed=seed,
        slots=slots,
        load=load,
        jobs=made,
        big=max(shares, key=lambda tenant: shares[tenant]) if kind.flood else None,
        tenants=() if kind.tenant else tuple(shares),
    )


def _jobs(kind: Kind, shape: Shape, dice: random.Random, gap_us: float, count: int) -> Iterator[Job]:
    arrivals, service = kind.arrivals(dice, shape, gap_us), kind.service(shape)
    tenant_of = kind.tenant(shape) if kind.tenant else _any_time(kind.shares(shape))
    lane_of, priority_of = by_share(shape.lanes), by_share(dict(enumerate(shape.priorities)))
    deadlines = shape.deadlines
    for number in range(1, count + 1):
        at_us = next(arrivals)
        tenant = tenant_of(dice, at_us)
        service_us = service(dice, tenant)
        lane, priority, deadline_us = lane_of(dice), priority_of(dice), 0
        if deadlines:
            deadline_us = at_us + deadlines.base_ms * 1000 + int(deadlines.multiplier * service_us)
            deadline_us += uniform(dice, 0, deadlines.jitter_ms * 1000)
        yield Job(
            number=number,
            at_us=at_us,
            tenant=tenant,
            service_us=service_us,
            lane=lane,
            priority=priority,
            deadline_us=deadline_us,
            cost=service_us / 1000 if kind.declared else 0.0,
        )


# -- when ----------------------------------------------------------------------------------------------------------


def _even(dice: random.Random, shape: Shape, gap_us: float) -> Iterator[int]:
    """One after each gap, to the microsecond."""
    number = 0
    while True:
        number += 1
        yield int(number * gap_us)


def _poisson(dice: random.Random, shape: Shape, gap_us: float) -> Iterator[int]:
    """Independent of each other."""
    at_us = 0
    while True:
        at_us += int(gap_us * exponential(dice))
        yield at_us


def _bursts(dice: random.Random, shape: Shape, gap_us: float) -> Iterator[int]:
    """Poisson arrivals at two rates in turn: an exponential is used up at the rate of whatever time it falls into."""
    bursts = shape.bursts
    scale = 1 / (gap_us * bursts.mean_per_s)
    parts = (
        (bursts.length_ms * 1000, bursts.peak_per_s * scale),
        ((bursts.period_ms - bursts.length_ms) * 1000, bursts.base_per_s * scale),
    )
    begun_us, at_us, part = 0, 0, 0
    while True:
        left = exponential(dice)
        while left > (until := (begun_us + parts[part][0] - at_us) * parts[part][1]):
            left -= until
            at_us = begun_us = begun_us + parts[part][0]
            part = 1 - part
        at_us = min(at_us + int(left / parts[part][1]), begun_us + parts[part][0]) if parts[part][1] else at_us
        yield at_us


# -- whose ---------------------------------------------------------------------------------------------------------


def _any_time(shares: Mapping[str, int]) -> Tenant:
    draw = by_share(shares)
    return lambda dice, at_us: draw(dice)


def _coming_and_going(shape: Shape) -> Tenant:
    """Any of those that send now. Their names count up in the order in which they come, and never return."""
    churn = shape.churn
    return lambda dice, at_us: f"t{uniform(dice, 0, churn.active - 1) + at_us * churn.active // (churn.stay_ms * 1000)}"


# -- how long ------------------------------------------------------------------------------------------------------


def _between(shape: Shape) -> Service:
    least_us, most_us = shape.durations.least_ms * 1000, shape.durations.most_ms * 1000
    return lambda dice, tenant: uniform(dice, least_us, most_us)


def _between_mean_us(shape: Shape) -> float:
    return (shape.durations.least_ms + shape.durations.most_ms) * 1000 / 2


def _heavy_tailed(shape: Shape) -> Service:
    tail = shape.heavy_tail
    return lambda dice, tenant: pareto(dice, tail.least_ms * 1000, tail.most_ms * 1000, tail.alpha)


def _heavy_tailed_mean_us(shape: Shape) -> float:
    tail = shape.heavy_tail
    return pareto_mean(tail.least_ms * 1000, tail.most_ms * 1000, tail.alpha)


def _mixed(shape: Shape) -> Service:
    """Longer or shorter by the tenant's factor, so that the mean over all stays as it is."""
    between, parts = _between(shape), sum(shape.factors.values())
    times = {tenant: factor * len(shape.factors) for tenant, factor in shape.factors.items()}
    return lambda dice, tenant: max(1, between(dice, tenant) * times[tenant] // parts)


KINDS: Mapping[str, Kind] = {
    "uniform": Kind(arrivals=_even, service=_between, mean_us=_between_mean_us),
    "bursty": Kind(
        arrivals=_bursts,
        service=_between,
        mean_us=_between_mean_us,
        rate_per_s=lambda shape: shape.bursts.mean_per_s,
    ),
    "heavy_tailed": Kind(arrivals=_poisson, service=_heavy_tailed, mean_us=_heavy_tailed_mean_us),
    "multi_tenant": Kind(
        arrivals=_poisson,
        shares=lambda shape: shape.skewed,
        service=_between,
        mean_us=_between_mean_us,
        flood=True,
    ),
    "mixed_cost": Kind(
        arrivals=_poisson,
        shares=lambda shape: dict.fromkeys(shape.factors, 1),
        service=_mixed,
        mean_us=_between_mean_us,
        declared=True,
    ),
    "churn": Kind(arrivals=_poisson, tenant=_coming_and_going, service=_between, mean_us=_between_mean_us),
}
"""Name → kind of workload."""
