"""What a profile is, once it has been read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from queueapp.bench.failures import Failures
from queueapp.bench.workloads import Shape, Workload, make
from queueapp.policies.room import Limits

MOST_JOBS = 10_000_000
MOST_SLOTS = 100_000
MOST_RUNS = 1_000
MOST_SEED = 2**31
MOST_LOAD = 100.0
LEAST_LOAD = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How much is run."""

    jobs: int = 4_000
    slots: int = 16
    repetitions: int = 5
    """Each with the next seed."""
    seed: int = 42
    execution: str = "sleep"
    """What a job does for its duration where it really runs: `sleep`, or `cpu`."""
    starving_ms: int = 5_000
    """A job that waits longer counts as starved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All that a file says."""

    name: str
    run: Run = Run()
    shape: Shape = field(default_factory=Shape)
    failures: Failures = field(default_factory=Failures)
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """Tenant → weight and ceiling, where they are not the default."""

    def workload(
        self,
        kind: str,
        *,
        seed: int | None = None,
        jobs: int | None = None,
        slots: int | None = None,
        load: float | None = None,
    ) -> Workload:
        """A workload of this profile; what is given stands before what the profile says."""
        run = self.run
        return make(
            kind,
            self.shape,
            seed=run.seed if seed is None else seed,
            jobs=run.jobs if jobs is None else jobs,
            slots=run.slots if slots is None else slots,
            load=load,
        )

    def limited(self, weights: Mapping[str, float], ceilings: Mapping[str, int]) -> Profile:
        """The same with other weights and ceilings for some tenants."""
        changed = dict(self.limits)
        for tenant, weight in weights.items():
            changed[tenant] = replace(changed.get(tenant, Limits()), weight=weight)
        for tenant, ceiling in ceilings.items():
            changed[tenant] = replace(changed.get(tenant, Limits()), ceiling=ceiling)
        return replace(self, limits=changed)
