"""What the store counted of one minute, as `lua/include/service.lua` packs it: the pool's, and each tenant's. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from queueapp.store.waits import NONE, Waits, unpacked


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What the pool served in one minute, to all tenants together."""

    start_ms: int
    units: float
    jobs: int
    most_in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one tenant had in one minute, or in several (lua/include/service.lua)."""

    units: float = 0.0
    """Charges and their corrections; can be negative when what was charged earlier was corrected here."""
    jobs: int = 0
    largest: float = 0.0
    """The largest charge of one job that was leased by its tenant's turn."""
    corrections: int = 0
    """Of such jobs."""
    minimum_jobs: int = 0
    """How many of the jobs were leased for a guaranteed minimum, which moves no turn."""
    minimum_largest: float = 0.0
    entered_ms: int = 0
    """When it last entered the walk after a pause, a ceiling or a key had held it back; 0 = it did not."""
    waits: Waits = NONE
    """What the jobs that were leased had waited for."""

    @classmethod
    def unpacked(cls, packed: bytes, start_ms: int) -> Part:
        had, _, waited = packed.partition(b";")
        units, jobs, largest, corrections, *more = had.split(b"|")
        minimum_jobs, minimum_largest, entered = more or (b"0", b"0", b"")
        return cls(
            units=float(units),
            jobs=int(jobs),
            largest=float(largest),
            corrections=int(corrections),
            minimum_jobs=int(minimum_jobs),
            minimum_largest=float(minimum_largest),
            entered_ms=start_ms + int(entered) if entered else 0,
            waits=unpacked(waited),
        )
