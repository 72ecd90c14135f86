"""What the admin configured, as the store keeps it: a pool, its tenants and lanes, its concurrency keys. Pure.

Durations are milliseconds. `sync` writes it with `Store.configure`; `configured.ConfigurationReads` reads it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """`rate` jobs in `period_ms`, evenly, and after a rest `burst` of them at once."""

    rate: int
    period_ms: int
    burst: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeLimits:
    """What the admin configured for a tenant (`lane=""`) or a lane of it. None clears the record."""

    tenant: str
    lane: str = ""
    weight: float = 1.0
    max_in_flight: int | None = None
    """None = no limit, 0 = closed."""
    min_share: int = 0
    """Slots that the tenant gets before others; 0 = none. A lane has none."""
    paused: bool = False
    rate: Rate | None = None
    """At which jobs come in; None = any."""
    dispatch_rate: Rate | None = None
    """At which jobs start: are leased, or under scheduled dispatch dispatched; None = any."""
    backlog_limit: int | None = None
    """Most waiting jobs of the tenant; None = any number. A lane has none."""
    clear: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """What the admin configured for the concurrency keys of one pattern."""

    pattern: str
    """Digest of the text."""
    text: str
    """The pattern as tasks name it."""
    max_in_flight: int | None = None
    """None = no limit, 0 = closed."""
    rate: Rate | None = None
    """At which jobs with the same key come in; None = any."""
    dispatch_rate: Rate | None = None
    """At which they start."""
    clear: bool = False


def described(policy: str, by: str, step_ms: int) -> str:
    """A policy with the parameter that it takes, for people."""
    match policy:
        case "edf":
            return f"edf by {by}"
        case "aging":
            return f"aging {step_ms / 1000:g} s a step"
    return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConf:
    """What the admin configured for a pool."""

    policy: str = "tiered"
    by: str = "deadline"
    """What `edf` compares; other policies ignore it."""
    step_ms: int = 60_000
    """What a step of priority is worth under `aging`; other policies ignore it."""
    paused: bool = False
    max_in_flight: int | None = None
    cost_unit: str = "ms"
    default_cost: float = 50.0
    default_weight: float = 1.0
    dispatch: Literal["direct", "scheduled"] = "direct"
    """direct: each lease walks the pool. scheduled: a leader fills `ready`, from which leases take."""
    window: int = 0
    """Most jobs in ready and active together under scheduled dispatch; 0 = as many as live workers have slots."""
    backlog_limit: int | None = None
    """Most waiting jobs of the pool; None = any number."""
    continue_weight: int = 10
    """How many parked jobs of tier continue leave the backlog for each of tier start, while both are due."""

    @property
    def rule(self) -> str:
        """The policy with the parameter that it takes."""
        return described(self.policy, self.by, self.step_ms)
