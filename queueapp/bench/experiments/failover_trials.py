"""The trials of `bench failover`: their rows, the figures that they make, and what of them was promised. Pure.

A row is one trial, and every row has the same keys. Who draws them goes by `arm`, `ttl_s` (null: no lease plays a
part), `outage_ms`, and `censored`: nobody had followed after `limit_ms`, and `outage_ms` is null. Percentiles count
such a trial as longer than any other; one that falls on it is null.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queueapp.bench.experiments.failover_windows import Lease, Window, predicted
from queueapp.bench.harness import Figure
from queueapp.bench.statistics import median, percentile

ARMS = ("none", "graceful", "crash", "single", "pause", "direct", "worker")
ALL = "all"
WORKER = "worker"
"""The arm in which no leader is hurt."""
SHORTEST_S, LONGEST_S = 0.2, 60.0
"""Of LEADER_TTL_SECONDS."""
CRASH_MEDIAN_MS, CRASH_WORST_MS, GRACEFUL_MEDIAN_MS, DIRECT_MS, WORKER_MS = 150.0, 500.0, 30.0, 100.0, 1500.0


def arms_of(text: str) -> list[str]:
    """The arms of `a,b` or `all`. ValueError names the one that does not exist, and those that do."""
    found = list(ARMS) if text == ALL else list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        if name not in ARMS:
            raise ValueError(f"{name!r} is no arm: give some of {', '.join(ARMS)}, or {ALL}")
    return found


def ttls_of(text: str) -> list[float]:
    """The seconds of `a,b`, each a length that a lease of leadership can have. ValueError names the one that is not."""
    found = []
    for part in text.split(","):
        try:
            seconds = float(part)
        except ValueError:
            seconds = math.nan
        if not SHORTEST_S <= seconds <= LONGEST_S:
            raise ValueError(
                f"{part.strip()!r} is no length of a lease: give seconds from {SHORTEST_S:g} to {LONGEST_S:g}, like 2,5"
            )
        found.append(seconds)
    return list(dict.fromkeys(found))


@dataclass(slots=True, kw_only=True)
class Trial:
    """What one blow did."""

    arm: str
    number: int
    """From 1, in its arm and under its lease."""
    lease: Lease | None
    """None: in the arm `worker`."""
    outage_ms: float | None = None
    """None: nobody dispatched again by itself."""
    natural_gap_ms: float | None = None
    """The longest gap of the time before the blow; None where nobody looked, as are the counts."""
    jobs: int = 0
    lost: int | None = None
    """Jobs that had not completed a minute after the trial."""
    recorded_twice: int | None = None
    """Completions that the store counted beyond one for each job."""
    stale_writes: int | None = None
    """Jobs that were dispatched under a term that another had followed."""

    @property
    def window(self) -> Window | None:
        return None if self.lease is None else predicted(self.arm, self.lease)

    def row(self) -> dict[str, Any]:
        lease, window = self.lease, self.window
        return {
            "arm": self.arm,
            "ttl_s": lease and lease.ttl_s,
            "presence": lease and lease.presence,
            "trial": self.number,
            "outage_ms": self.outage_ms,
            "censored": self.outage_ms is None,
            "limit_ms": lease and lease.limit_ms,
            "predicted_low_ms": window and window.low_ms,
            "predicted_high_ms": window and window.high_ms,
            "inside": window and window.holds(self.outage_ms),
            "natural_gap_ms": self.natural_gap_ms,
            "jobs": self.jobs,
            "lost": self.lost,
            "recorded_twice": self.recorded_twice,
            "stale_writes": self.stale_writes,
        }


def figures(trials: Sequence[Trial], leases: Sequence[Lease]) -> dict[str, Figure]:
    """Those of all trials, of each arm, and, under several leases, of each arm under each; null: an arm was not run."""
    found = _counts("", trials)
    for arm in ARMS:
        own = [trial for trial in trials if trial.arm == arm]
        found |= _measured(f"{arm}_", own)
        if len(leases) > 1 and arm != WORKER:
            for lease in leases:
                found |= _measured(f"{arm}_ttl{lease.ttl_s:g}_", [trial for trial in own if trial.lease == lease])
    return found


def _measured(prefix: str, trials: Sequence[Trial]) -> dict[str, Figure]:
    windows = [trial.window for trial in trials if trial.window is not None]
    return {
        f"{prefix}trials": len(trials) or None,
        f"{prefix}recovered": sum(trial.outage_ms is not None for trial in trials) if trials else None,
        f"{prefix}ms_p50": outage_ms(trials, 50),
        f"{prefix}ms_p90": outage_ms(trials, 90),
        f"{prefix}ms_max": outage_ms(trials, 100),
        f"{prefix}predicted_low_ms": min((window.low_ms for window in windows), default=None),
        f"{prefix}predicted_high_ms": max((window.high_ms for window in windows), default=None),
        f"{prefix}inside": inside(trials),
        f"{prefix}jobs": sum(trial.jobs for trial in trials) if trials else None,
        **_counts(prefix, trials),
    }


def _counts(prefix: str, trials: Sequence[Trial]) -> dict[str, Figure]:
    gaps = [trial.natural_gap_ms for trial in trials if trial.natural_gap_ms is not None]
    return {
        f"{prefix}natural_gap_ms": median(gaps) if gaps else None,
        f"{prefix}lost": _total(trial.lost for trial in trials),
        f"{prefix}recorded_twice": _total(trial.recorded_twice for trial in trials),
        f"{prefix}stale_writes": _total(trial.stale_writes for trial in trials),
    }


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def outage_ms(trials: Sequence[Trial], percent: float) -> float | None:
    """A percentile of the outages; None where it falls on a trial after which nobody followed, and for no trials."""
    known = [trial.outage_ms for trial in trials if trial.outage_ms is not None]
    if not known or math.ceil((len(trials) - 1) * percent / 100) >= len(known):
        return None
    return percentile([*known, *[max(known)] * (len(trials) - len(known))], percent)


def inside(trials: Sequence[Trial]) -> int | None:
    """How many outages were as their lease predicts; None where none predicts anything."""
    return _total(None if trial.window is None else int(trial.window.holds(trial.outage_ms)) for trial in trials)


# -- of one arm under one lease ------------------------------------------------------------------------------------


def told(trials: Sequence[Trial]) -> str:
    """One line for people."""
    arm, window = trials[0].arm, trials[0].window
    middle, p90, worst = (outage_ms(trials, percent) for percent in (50, 90, 100))
    text = f"  {arm:<9}{len(trials)} trials: "
    if all(trial.outage_ms is None for trial in trials):
        text += "never recovered by itself"
    else:
        text += f"median {_ms(middle)}, p90 {_ms(p90)}, worst {_ms(worst)} ms"
    if window is not None and math.isfinite(window.high_ms):
        text += f"; predicted {window.low_ms:.0f} to {window.high_ms:.0f}, {inside(trials)} inside"
    counts = _counts("", trials)
    if counts["lost"] is not None:
        text += (
            f"; longest gap before {counts['natural_gap_ms']:.0f} ms; {sum(trial.jobs for trial in trials):,} jobs, "
            f"{counts['lost']} lost, {counts['recorded_twice']} recorded twice, {counts['stale_writes']} stale writes"
        )
    return text


def _ms(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f}"


def missed(trials: Sequence[Trial]) -> list[str]:
    """A sentence for each promise that was not kept."""
    arm, lease, found = trials[0].arm, trials[0].lease, []
    name = arm if lease is None else f"{arm}, lease of {lease.ttl_s:g} s"
    counts = _counts("", trials)
    lost, twice, stale = counts["lost"], counts["recorded_twice"], counts["stale_writes"]
    if lost or twice or stale:
        found.append(f"{name}: {lost} jobs were lost, {twice} recorded twice, {stale} dispatched under an old term.")
    recovered = sum(trial.outage_ms is not None for trial in trials)
    if arm == "single":
        if recovered:
            found.append(f"{name}: somebody dispatched although no scheduler was left.")
        return found
    if recovered < len(trials):
        found.append(f"{name}: after {len(trials) - recovered} of {len(trials)} blows nobody followed.")
        return found
    for what, percent, most in promised(arm, lease, counts["natural_gap_ms"] or 0.0):
        outage = outage_ms(trials, percent) or 0.0
        if outage > most:
            found.append(f"{name}: the {what} outage is {outage:.0f} ms; at most {most:.0f} ms are promised.")
    return found


def promised(arm: str, lease: Lease | None, natural_gap_ms: float) -> Sequence[tuple[str, float, float]]:
    """What of the outages, as a percentile, is at most so many milliseconds."""
    checks: Mapping[str, Sequence[tuple[str, float, float]]] = {
        "graceful": [("median", 50, GRACEFUL_MEDIAN_MS)],
        "direct": [("median", 50, max(DIRECT_MS, 2 * natural_gap_ms))],
        "worker": [("worst", 100, WORKER_MS)],
    }
    if lease is None or arm in checks or arm == "none":
        return checks.get(arm, ())
    if arm == "crash" and lease.watched:
        return [("median", 50, CRASH_MEDIAN_MS), ("worst", 100, CRASH_WORST_MS)]
    return [("worst", 100, lease.limit_ms)]
