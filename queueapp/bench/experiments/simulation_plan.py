"""What `bench simulate` is asked: policies, workloads, loads, and what if."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from queueapp.bench import profiles
from queueapp.bench.arms import named
from queueapp.bench.profiles import InvalidProfile, Profile
from queueapp.bench.sharding import Slots
from queueapp.bench.workloads import KINDS, Workload
from queueapp.bench.workloads.traces import InvalidTrace, read
from queueapp.errors import DuctorError

ALL = "all"
PROMISED = frozenset({"wfq", "tiered"})
"""Policies of which the limits of `simulation_figures` are promised, for the plan as it is by default."""
DECLARED, ESTIMATED, EXACT = "declared", "estimated", "exact"
COSTS = (DECLARED, ESTIMATED, EXACT)


class InvalidPlan(DuctorError, ValueError):
    """Options of a simulation that do not fit each other."""

    code = "invalid_plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One workload at one load, under all the policies of a plan."""

    workload: str
    load: float | None
    """None: the profile's."""
    prefix: str
    """What its figures begin with; nothing where a plan has one scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is simulated: `seeds` runs of each policy, with the seeds from `seed` on. None: as the profile has it."""

    policy: str
    """Names with commas between them, or `all`."""
    workload: str = "multi_tenant"
    """Likewise."""
    profile: str = "flood"
    trace: str | None = None
    """File of a recorded workload, instead of one that is made."""
    load: Sequence[float] | None = None
    slots: int | None = None
    jobs: int | None = None
    seed: int | None = None
    seeds: int | None = None
    weight: Mapping[str, float] | None = None
    """Tenant → weight, where it is not the profile's."""
    ceiling: Mapping[str, int] | None = None
    """Tenant → most jobs of it that run at once."""
    costs: str = DECLARED
    """`declared`: as the workload has it. `estimated`: no job declares one. `exact`: each declares its run time."""
    shards: int = 1
    """Each policy is also simulated with the pool's tenants spread over so many shards."""
    shard_slots: Slots = "shared"
    results: str | None = field(default=None, compare=False)
    """Directory for all that is known of each cell."""

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

    def scenarios(self) -> list[Scenario]:
        """Each workload at each load. Raises InvalidPlan or InvalidTrace for options that do not fit each other."""
        slots = self.filled()[0].run.slots
        if self.shard_slots == "split" and self.shards > slots:
            told = f"shard_slots is 'split', but {self.shards} shards cannot split {slots} slots"
            raise InvalidPlan(f"{told}: give --slots {self.shards} or more, fewer --shards, or --shard-slots shared.")
        if self.trace is not None:
            if self.load is not None:
                given = ", ".join(f"{load:g}" for load in self.load)
                raise InvalidTrace(f"load is {given}, but {self.trace} has a load of its own: leave --load out.")
            return [Scenario(workload="trace", load=None, prefix="")]
        workloads = kinds(self.workload)
        loads: Sequence[float | None] = self.load or [None]
        return [
            Scenario(
                workload=workload,
                load=load,
                prefix=(f"{workload}_" if len(workloads) > 1 else "") + (f"{load:g}x_" if len(loads) > 1 else ""),
            )
            for workload in workloads
            for load in loads
        ]

    def workloads(self, scenario: Scenario) -> Iterator[Workload]:
        """A workload for each seed."""
        profile, first, runs = self.filled()
        recorded = (
            None if self.trace is None else read(Path(self.trace), seed=first, slots=profile.run.slots, jobs=self.jobs)
        )
        for seed in range(first, first + runs):
            if recorded is None:
                workload = profile.workload(scenario.workload, seed=seed, load=scenario.load)
            else:
                workload = replace(recorded, seed=seed)
            self._known(workload)
            yield _costed(workload, self.costs)

    def judged(self, policy: str) -> bool:
        """The limits are promised for some policies, and for the plan as it is by default.

        The price of the big tenant differs from burst to burst by more than from policy to policy, whatever the policy:
        other seeds, or fewer of them, are there to be looked at.
        """
        return policy in PROMISED and self == Plan(policy=self.policy)

    def _known(self, workload: Workload) -> None:
        """Raises InvalidProfile for a tenant that is given a weight or a ceiling and has no part in the workload."""
        there = {*workload.tenants, *(job.tenant for job in workload.jobs)}
        for option, given in (("weight", self.weight), ("ceiling", self.ceiling)):
            for tenant in given or {}:
                if tenant not in there:
                    told = ", ".join(sorted(there)[:10])
                    raise InvalidProfile(f"{option} names {tenant!r}, which sends nothing here: give one of {told}.")


def kinds(text: str) -> list[str]:
    """The workloads of `a,b` or `all`. ValueError names the one that does not exist, and those that do."""
    found = list(KINDS) if text == ALL else list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        if name not in KINDS:
            raise ValueError(f"{name!r} is no workload: give some of {', '.join(KINDS)}, or {ALL}")
    return found


def _costed(workload: Workload, costs: str) -> Workload:
    """The same jobs, with what they are to declare as their costs."""
    if costs == DECLARED:
        return workload
    exact = costs == EXACT
    jobs = [replace(job, cost=job.service_us / 1000 if exact else 0.0) for job in workload.jobs]
    return replace(workload, jobs=jobs)
