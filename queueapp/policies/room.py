"""Who has room: limits of tenants and lanes, the slots that they hold, their tokens. `tree` keeps one of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from queueapp.policies.slots import Slots
from queueapp.policies.tokens import DispatchRate, Tokens

Scope = tuple[str, str]
"""A tenant and its lane; the lane is empty for the tenant itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is configured for a tenant or for a lane of it. `ceiling` None = no limit, 0 = closed.

    `min_share`, of a tenant: so many slots it gets before the others, as long as it has work for them.
    """

    weight: float = 1.0
    ceiling: int | None = None
    paused: bool = False
    min_share: int = 0
    dispatch: DispatchRate | None = None
    """At which jobs are leased; None = any."""


UNLIMITED = Limits()
"""Where nothing is configured."""


class Room:
    """What is configured for a pool's tenants and lanes, and what of it is used. `now_ms` is the store's clock."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.tokens = Tokens()
        self.minima: dict[str, int] = {}
        """Guaranteed slots of the tenants that have any."""
        self._limits: dict[Scope, Limits] = {}
        self._timers: dict[Scope, int] = {}
        """Tenants and lanes that are out of the walk for want of a token → when they have one."""

    def limits(self, tenant: str, lane: str = "") -> Limits:
        return self._limits.get((tenant, lane), UNLIMITED)

    def configured(self) -> Iterator[Scope]:
        """The scopes that have limits of their own."""
        return iter(self._limits)

    def configure(self, tenant: str, lane: str, limits: Limits, now_ms: int) -> None:
        self._limits[tenant, lane] = limits
        self._timers.pop((tenant, lane), None)
        if limits.dispatch is not None:
            self.tokens.free((tenant, lane), limits.dispatch, now_ms)  # what is owed is converted now
        if limits.min_share and not lane:
            self.minima[tenant] = limits.min_share
        elif not lane:
            self.minima.pop(tenant, None)

    def has(self, tenant: str, lane: str, now_ms: int) -> bool:
        """Whether it may run another job. One that only lacks a token is noted, for `due`."""
        limits = self._limits.get((tenant, lane))
        if limits is None:
            return True
        if limits.paused or (limits.ceiling is not None and self.slots.used(tenant, lane) >= limits.ceiling):
            return False
        if limits.dispatch is None or self.tokens.free((tenant, lane), limits.dispatch, now_ms):
            return True
        self._timers[tenant, lane] = self.tokens.moment((tenant, lane), limits.dispatch, now_ms)
        return False

    def due(self, most: int, now_ms: int) -> list[Scope]:
        """Those that have a token again, in the order of the store; they are not told again."""
        found = sorted(
            (moment, f"l:{tenant}|{lane}" if lane else f"t:{tenant}", (tenant, lane))
            for (tenant, lane), moment in self._timers.items()
            if moment <= now_ms
        )[:most]
        for _, _, scope in found:
            del self._timers[scope]
        return [scope for _, _, scope in found]

    def lease(self, job_id: str, tenant: str, lane: str, now_ms: int) -> None:
        """A job takes its slots, and its tokens where there are rates."""
        self.slots.take(job_id, tenant, lane)
        for scope in ((tenant, ""), (tenant, lane)):
            if (rate := self.limits(*scope).dispatch) is not None:
                self.tokens.take(scope, rate, now_ms)
