"""The numbers that shape workloads, as a profile sets them (`profiles`), with what stands where it sets nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """`bursty`: two rates in turn. A load that is asked for scales both, so that their mean has it."""

    base_per_s: float = 60.0
    peak_per_s: float = 360.0
    length_ms: int = 1_000
    """How long the peak lasts, at the beginning of each period."""
    period_ms: int = 5_000

    @property
    def mean_per_s(self) -> float:
        quiet_ms = self.period_ms - self.length_ms
        return (self.base_per_s * quiet_ms + self.peak_per_s * self.length_ms) / self.period_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long a job runs: every whole microsecond between the bounds is equally likely."""

    least_ms: int = 40
    most_ms: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyTail:
    """`heavy_tailed`: durations by Pareto's law. The smaller `alpha`, the heavier the tail."""

    least_ms: int = 15
    most_ms: int = 4_000
    """What is drawn longer runs as long as this."""
    alpha: float = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """A job's deadline: its arrival + `base_ms` + `multiplier` × its duration + up to `jitter_ms`. All 0: none."""

    base_ms: int = 250
    multiplier: float = 3.0
    jitter_ms: int = 250

    def __bool__(self) -> bool:
        return bool(self.base_ms or self.multiplier or self.jitter_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """`churn`: `active` tenants send at a time; every `stay_ms` / `active` the oldest goes and a new one comes."""

    active: int = 5
    stay_ms: int = 2_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """All of them. Shares and weights are whole numbers; what counts is their proportion."""

    load: float | None = None
    """Work that arrives, in multiples of what the slots serve; None: `rate_per_s` says it."""
    rate_per_s: float = 120.0
    """Jobs that arrive in a second, where no load is asked for."""
    bursts: Bursts = Bursts()
    durations: Durations = Durations()
    heavy_tail: HeavyTail = HeavyTail()
    priorities: Sequence[int] = (40, 25, 20, 10, 5)
    """Shares of the priorities 0, 1, 2 …; the higher priority is the more urgent one."""
    deadlines: Deadlines = Deadlines()
    tenants: Mapping[str, int] = field(
        default_factory=lambda: {"atlas": 20, "birch": 20, "cedar": 20, "dahlia": 20, "elm": 20}
    )
    """Tenant → share of the jobs."""
    skewed: Mapping[str, int] = field(
        default_factory=lambda: {"atlas": 90, "birch": 3, "cedar": 3, "dahlia": 2, "elm": 2}
    )
    """The same, for `multi_tenant`."""
    lanes: Mapping[str, int] = field(default_factory=lambda: {"main": 1})
    """Lane → share of the jobs, of every tenant."""
    factors: Mapping[str, int] = field(
        default_factory=lambda: {"atlas": 1, "birch": 1, "cedar": 2, "dahlia": 5, "elm": 10}
    )
    """`mixed_cost`: tenant → how long its jobs run, in proportion to the others'. All send equally many."""
    churn: Churn = Churn()
