"""What a lease of leadership predicts: for how long nobody dispatches when its holder dies, stops or freezes. Pure.

Of a holder that dies a standby hears by its presence: it looks ten times a second, give or take a tenth, and looks
again 30 ms after it first saw nobody there; how long the lease is plays no part. One that freezes keeps its socket,
and without presence a death shows no more than that: then the lease has to end. What is left of it at the blow is at
most all of it and at least what a renewal that was due would have made good; when it has ended a standby asks at
once, in any case after a retry. A holder that is stopped gives its lease back. Whoever leads then needs a moment, the
hand-over, for its first dispatch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from queueapp.scheduler.leadership import PROBE_S

GONE_MS, AGAIN_MS = 25.0, 30.0
"""Of `lua/lead.lua`: twice seen absent, so far apart at least; and when to look again."""
LATEST = 1.1
"""A look that comes late by its jitter, in parts of the pause."""
HAND_OVER_MS = 30.0
"""From the lease to the first dispatch: what is promised of a clean stop as a whole, which is little else."""
GRACE_MS = 1_000
"""Above the lease and a retry, for a process that has to wake up on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """How a pool's schedulers lead."""

    ttl_ms: int
    renewal_ms: int
    retry_ms: int
    presence: str = "auto"
    """`off`: the death of a holder shows by the end of its lease alone."""

    @property
    def ttl_s(self) -> float:
        return self.ttl_ms / 1000

    @property
    def watched(self) -> bool:
        return self.presence != "off"

    @property
    def limit_ms(self) -> float:
        """So long a trial waits for somebody to follow; whoever has not by then is censored."""
        return self.ttl_ms + self.retry_ms + GRACE_MS

    @property
    def settings(self) -> dict[str, object]:
        """What a scheduler's DUCTOR setting says of it."""
        return {
            "LEADER_TTL_SECONDS": self.ttl_s,
            "LEADER_RENEW_SECONDS": self.renewal_ms / 1000,
            "LEADER_RETRY_SECONDS": self.retry_ms / 1000,
            "LEADER_PRESENCE": self.presence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """From and to how many milliseconds an outage should last; both infinite: nobody should follow."""

    low_ms: float
    high_ms: float

    def holds(self, outage_ms: float | None) -> bool:
        """None: nobody followed."""
        return self.low_ms <= (math.inf if outage_ms is None else outage_ms) <= self.high_ms


def predicted(arm: str, lease: Lease) -> Window | None:
    """The window of an arm of `bench failover`; None where no lease changes hands (none, direct, worker)."""
    ends = Window(low_ms=lease.ttl_ms - lease.renewal_ms, high_ms=lease.ttl_ms + lease.retry_ms)
    match arm:
        case "graceful":
            return Window(low_ms=0, high_ms=HAND_OVER_MS)
        case "crash" if lease.watched:
            seen_ms = PROBE_S * 1000 * LATEST + AGAIN_MS + HAND_OVER_MS
            return Window(low_ms=min(GONE_MS, ends.low_ms), high_ms=min(seen_ms, ends.high_ms))
        case "crash" | "pause":
            return ends
        case "single":
            return Window(low_ms=math.inf, high_ms=math.inf)
    return None
