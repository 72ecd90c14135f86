"""What jobs waited for, in four parts. Pure; written only by `lua/include/waited.lua`, read by `rows` and `service`.

The parts of a job add up exactly to what lies between its submission and its newest lease, but for the time that
earlier attempts took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Milliseconds by what was waited for. Of one job over all its attempts, of one lease, or summed over many."""

    schedule_ms: int = 0
    """For its own moment: run_after, delay, a debounce; of a parked job the moment from which it kept its rate."""
    backoff_ms: int = 0
    """From the end of an attempt until the next might begin: the backoff of a retry, the delay after a worker did not
    know the task, the time as a dead letter."""
    limits_ms: int = 0
    """For its own limits: its tenant or lane was paused, at its ceiling or without a token, or a concurrency key of it
    was full."""
    line_ms: int = 0
    """In line, all the rest: others had their turn, no slot was free, or the pool was paused or at its ceiling."""

    @property
    def total_ms(self) -> int:
        return self.schedule_ms + self.backoff_ms + self.limits_ms + self.line_ms

    def __add__(self, other: Waits) -> Waits:
        return Waits(**{name: getattr(self, name) + getattr(other, name) for name in NAMES})

    def in_seconds(self) -> dict[str, float]:
        """The parts by name, as they are told: `{"schedule": 0.0, "backoff": …, "limits": …, "line": …}`."""
        return {part: getattr(self, name) / 1000 for part, name in zip(PARTS, NAMES, strict=True)}


NONE = Waits()
NAMES = tuple(part.name for part in fields(Waits))
PARTS = tuple(name.removesuffix("_ms") for name in NAMES)
"""Their words, in every skin and as the label of a metric."""


def _within(total_ms: int, schedule_ms: int, backoff_ms: int, limits_ms: int) -> Waits:
    """The parts of `total_ms`; the line is what is left. None is below 0, although a clock that was set back may make
    the whole shorter than its parts."""
    rest = max(0, total_ms)
    parts = []
    for part_ms in (schedule_ms, backoff_ms, limits_ms):
        parts.append(min(max(0, part_ms), rest))
        rest -= parts[-1]
    schedule, backoff, limits = parts
    return Waits(schedule_ms=schedule, backoff_ms=backoff, limits_ms=limits, line_ms=rest)


def waits_of_job(submitted_ms: int, leased_ms: int, run: Mapping[str, str]) -> Waits | None:
    """Of a job by its run hash; None while it was never leased."""
    if not leased_ms:
        return None
    schedule, backoff, limits, attempts = (int(run.get(name, 0)) for name in ("ws", "wb", "wl", "wa"))
    return _within(leased_ms - submitted_ms - attempts, schedule, backoff, limits)


def waits_of_lease(told: str, ready_ms: int, leased_ms: int) -> Waits:
    """Of one lease, as a reply tells it: `schedule|backoff|limits`, "" = it stood in line alone."""
    schedule, backoff, limits = (int(part) for part in told.split("|")) if told else (0, 0, 0)
    return _within(schedule + backoff + max(0, leased_ms - ready_ms), schedule, backoff, limits)


def unpacked(text: bytes) -> Waits:
    """A sum of the store: `schedule|backoff|limits|line`; empty = none."""
    return Waits(**dict(zip(NAMES, map(int, text.split(b"|")), strict=True))) if text else NONE
