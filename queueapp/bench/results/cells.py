"""A cell: one workload once through the queue under one policy, in earnest or in virtual time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from queueapp.bench.failures import Failures
from queueapp.bench.outcomes import Outcome, Summary, summary
from queueapp.policies.room import Limits

Dispatch = Literal["direct", "scheduled", "none", "simulated"]
"""Who chose: the store, a leader, nobody (in order of arrival: the control arm), or the simulator."""
State = Literal["complete", "timed_out", "unfinished"]
"""Of a cell: `unfinished` has jobs that are not done with, and nobody's patience was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a cell was given. Cells that differ in the seed alone are repetitions of each other."""

    policy: str
    dispatch: Dispatch
    workload: str
    profile: str
    seed: int
    repetition: int
    """From 1."""
    jobs: int
    load: float
    """Work that arrives, in multiples of what the slots serve."""
    slots: int
    """Of all workers together."""
    workers: int
    execution: str
    """`sleep`, `cpu`, or `virtual`."""
    starving_ms: int
    tenants: Sequence[str]
    """All that might send."""
    big: str | None
    workload_digest: str
    failures: Failures = field(default_factory=Failures)
    limits: Mapping[str, Limits] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique in its run, fit for a file: what differs between the cells of one."""
        return f"{self.policy}-{self.dispatch}-{self.workload}-{self.load:.3g}x-{self.repetition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A setting and what came of it."""

    setting: Setting
    outcomes: Sequence[Outcome]
    """Of the jobs that are done with; `setting.jobs` less these are `unfinished`."""
    timed_out: bool = False
    """The patience was over before the last job was done with: figures are of a part of the jobs."""
    lost: int = 0
    """Jobs that were sent and that nobody knows any more. Always 0, or something is broken."""
    recorded_twice: int = 0
    """Outcomes beyond one for each job. Always 0, or something is broken."""
    dead_letters: Sequence[Mapping[str, Any]] = ()
    """As the store keeps them: id, number, tenant, attempts, reason, error."""
    digest: str = ""
    """Of all runs in the order of their starts; virtual time only."""

    @property
    def unfinished(self) -> int:
        return self.setting.jobs - len(self.outcomes)

    @property
    def state(self) -> State:
        return "timed_out" if self.timed_out else "unfinished" if self.unfinished else "complete"

    @property
    def lag_ms_max(self) -> float:
        """How late the sender was at worst."""
        return max((max(0, one.sent_us - one.planned_us) / 1000 for one in self.outcomes if one.sent_us), default=0.0)

    def summary(self) -> Summary:
        """The figures. ValueError where no job is done with."""
        setting = self.setting
        return summary(self.outcomes, slots=setting.slots, starving_ms=setting.starving_ms, tenants=setting.tenants)
