"""How long the oldest pending job of a pool has waited. Called by the overview, and so by every scrape of metrics.

A reading looks at the head of each priority of each lane, blocked and paused tenants included, who stand in no walk. It
asks the store at most four times, each for about three milliseconds of the server's time. A pool with some 500 tenants
at work is done with the first, and the answer is exact. In a larger one the next reading goes on where this one
stopped, and the oldest jobs that were found are looked at again each time: the answer is never too large, and is right
when each tenant had its turn, after about T / 2,000 readings by one process for T tenants. Any thread may call it.
"""

from __future__ import annotations

from dataclasses import dataclass

from queueapp.store.reads import Reads
from queueapp.store.views import StandingJob

CALLS = 4
REMEMBERED = 32
"""Lanes with the oldest jobs, looked at in every reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongestWait:
    """The wait of the oldest pending job that was found; 0 = none is pending."""

    ms: int
    exact: bool
    """All lanes with work were looked at, at one moment. False: at least so long."""
    job: StandingJob | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """Where a round over a large pool stands."""

    first: int = 0
    lane: int = 0
    cursor: str = "0"
    lanes: tuple[tuple[str, str], ...] = ()


_sweeps: dict[str, _Sweep] = {}
"""By prefix of the shard. Two threads may do the same part twice, which harms nothing."""


def longest_wait(reads: Reads) -> LongestWait:
    """At most four round trips."""
    sweep = _sweeps.get(reads.keys.prefix, _Sweep())
    found: dict[str, StandingJob] = {}
    first, lane, cursor, lanes = sweep.first, sweep.lane, sweep.cursor, sweep.lanes
    exact = (first, lane, cursor) == (0, 0, "0")
    now_ms = 0
    for call in range(CALLS):
        answer = reads.oldest(first=first, lane=lane, cursor=cursor, lanes=lanes)
        found |= {job.id: job for job in answer.jobs}
        first, lane, cursor, lanes, now_ms = answer.first, answer.lane, answer.cursor, (), answer.now_ms
        if first < 0 and cursor == "-1":
            exact = exact and call == 0
            first, lane, cursor = 0, 0, "0"
            break
    else:
        exact = False
    oldest = sorted(found.values(), key=lambda job: job.since_ms)
    known = dict.fromkeys((job.tenant, job.lane) for job in oldest)
    _sweeps[reads.keys.prefix] = _Sweep(first=first, lane=lane, cursor=cursor, lanes=tuple(known)[:REMEMBERED])
    if not oldest:
        return LongestWait(ms=0, exact=exact, job=None)
    return LongestWait(ms=max(0, now_ms - oldest[0].since_ms), exact=exact, job=oldest[0])
