"""Two runs side by side, seed by seed: by how much each figure differs, and whether that is more than noise. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from queueapp.bench.intervals import CONFIDENCE, WORSE, Change, Interval, change, interval
from queueapp.bench.results.reading import CellRow, RunResults
from queueapp.bench.results.rows import InvalidResults
from queueapp.bench.results.summary import Arm, arm
from queueapp.bench.statistics import mean, ratio

FIGURES = (
    "latency_mean_ms",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_p99_ms",
    "tail_ratio",
    "wait_max_ms",
    "miss_rate",
    "starved",
    "dead",
    "throughput_per_s",
    "utilisation",
    "jain_service",
    "jain_count",
)
"""What is compared."""
LATE_MS = 100.0
"""A sender that was later than this is worth a word."""
IDENTITY = (
    "ductor",
    "revision",
    "python",
    "django",
    "redis_py",
    "hiredis",
    "server",
    "append_only_file",
    "cpus",
    "processor",
    "machine",
    "platform",
)
SETTINGS = ("profile", "jobs", "slots", "workers", "execution", "starving_ms", "failures", "limits")
"""In these two runs may differ and be compared: it is told."""
NEITHER = ("tail_ratio", "utilisation")
"""Neither direction is worse for itself: a tail ratio rises when the median falls, and slots are less busy where jobs
run shorter. What makes them worse is in another figure, the p99 or the throughput."""
Verdict = Literal["", "worse", "better", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of one arm in both runs, on the seeds that both have."""

    arm: Arm
    figure: str
    base: Interval
    other: Interval
    kind: Literal["ratio", "difference"]
    """`difference` where the base is 0 in some repetition, as of a count of the dead: there is no ratio to it."""
    change: Interval
    """The mean over the seeds of other / base, or of other - base."""

    @property
    def verdict(self) -> Verdict:
        """Empty where the difference may be noise. A single repetition never says more than that."""
        none = 1 if self.kind == "ratio" else 0
        if math.isnan(self.change.half_width) or self.change.low <= none <= self.change.high:
            return ""
        if self.figure in NEITHER:
            return "other"
        less = self.change.mean < none
        return "worse" if less == (WORSE.get(self.figure) == "lower") else "better"

    @property
    def judged(self) -> bool:
        """Whether chance might have marked it: it has an interval, and the repetitions are not all the same."""
        return self.change.half_width > 0

    @property
    def percent(self) -> float:
        """How much of the base it has grown or shrunk by, without a sign; infinite where the base was 0."""
        if self.kind == "ratio":
            return abs(self.change.mean - 1) * 100
        return abs(ratio(self.change.mean, self.base.mean)) * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs."""

    base: RunResults
    other: RunResults
    pairs: Mapping[Arm, Sequence[tuple[CellRow, CellRow]]]
    """Of each arm, the cells with one seed, in the order of the seeds."""
    figures: Sequence[Compared]

    @property
    def marked(self) -> list[Compared]:
        return [one for one in self.figures if one.verdict]

    @property
    def by_chance(self) -> float:
        """So many marks are to be expected where nothing differs at all."""
        return sum(one.judged for one in self.figures) * (1 - CONFIDENCE)

    def worse(self, percent: float) -> list[str]:
        """A sentence for each figure that is worse beyond noise, and by more than `percent` of the base."""
        return [
            f"{_told(one.arm)}: {one.figure} is {one.other}, in the base {one.base}: worse by {one.percent:.1f} %."
            for one in self.marked
            if one.verdict == "worse" and one.percent > percent
        ]

    def broken(self) -> list[str]:
        """A sentence for each pair of which only the base is whole, and for whatever was lost or recorded twice."""
        return [
            f"{_told(key)}, seed {new.setting.seed}: {fault}; in the base it is not so."
            for key, pairs in self.pairs.items()
            for old, new in pairs
            for fault in sorted({*_faults(new)} - {*_faults(old)})
        ]


def compare(base: RunResults, other: RunResults) -> Comparison:
    """Raises InvalidResults where the two have no arm and seed in common."""
    pairs = _pairs(base.cells, other.cells)
    if not pairs:
        told = ", ".join(sorted({_told(arm(cell.setting)) for cell in base.cells})[:5]) or "no cells"
        raise InvalidResults(
            f"{other.directory} has no policy, dispatch, workload, load and seed in common with {base.directory}, "
            f"which has {told}: name runs that have some cells in common."
        )
    figures = [_compared(key, name, cells) for key, cells in pairs.items() for name in FIGURES]
    return Comparison(base=base, other=other, pairs=pairs, figures=figures)


def _pairs(base: Sequence[CellRow], other: Sequence[CellRow]) -> dict[Arm, list[tuple[CellRow, CellRow]]]:
    known = {(arm(cell.setting), cell.setting.seed): cell for cell in other}
    found: dict[Arm, list[tuple[CellRow, CellRow]]] = {}
    for cell in sorted(base, key=lambda cell: cell.setting.seed):
        key = arm(cell.setting)
        if (match := known.get((key, cell.setting.seed))) is not None:
            found.setdefault(key, []).append((cell, match))
    order = list(dict.fromkeys(arm(cell.setting) for cell in base))
    return {key: found[key] for key in order if key in found}


def _compared(key: Arm, name: str, cells: Sequence[tuple[CellRow, CellRow]]) -> Compared:
    base = [old.figures[name] for old, _ in cells]
    other = [new.figures[name] for _, new in cells]
    kind: Literal["ratio", "difference"] = "difference" if 0 in base else "ratio"
    found: Change = change(base, other)
    return Compared(
        arm=key,
        figure=name,
        base=interval(base),
        other=interval(other),
        kind=kind,
        change=found.ratio if kind == "ratio" else interval(new - old for old, new in zip(base, other, strict=True)),
    )


def _faults(cell: CellRow) -> Iterator[str]:
    if cell.timed_out:
        yield "it was not done in time"
    elif cell.unfinished:
        yield "jobs are unfinished"
    if cell.lost:
        yield "jobs were lost"
    if cell.recorded_twice:
        yield "outcomes were recorded twice"


def _told(key: Arm) -> str:
    return f"{key.policy}, {key.dispatch}, {key.workload}, load {key.load:.3g}"


# -- what else differs -----------------------------------------------------------------------------------------------


def notes(found: Comparison) -> Iterator[str]:
    """What to know before one reads the figures: in what the runs differ, and which cells are not in them."""
    identities = [{**_values(found.base), **_settings(found, 0)}, {**_values(found.other), **_settings(found, 1)}]
    for name, value in identities[0].items():
        if value != identities[1].get(name):
            yield f"{name} differs: {value}, then {identities[1].get(name)}"
    paired = [pair for pairs in found.pairs.values() for pair in pairs]
    if any(old.setting.workload_digest != new.setting.workload_digest for old, new in paired):
        yield "the jobs are not the same for the same seed: what differs may be the workload's doing"
    for place, one in enumerate((found.base, found.other)):
        alone, cells = len(one.cells) - len(paired), [pair[place] for pair in paired]
        if alone:
            yield f"{one.directory} has {alone} cells that the other has not: they are left out"
        if any(cell.state != "complete" for cell in cells):
            yield f"{one.directory} has unfinished cells: their figures are of a part of the jobs"
        if not one.finished:
            yield f"{one.directory} was broken off: these are the cells that it had"
    late = [mean(pair[place].figures["producer_lag_ms_max"] for pair in paired) for place in (0, 1)]
    if any(value > LATE_MS for value in late):
        yield f"the sender was late, by {late[0]:.0f} and {late[1]:.0f} ms at worst in the mean of the cells"
    if max(map(len, found.pairs.values())) < 2:
        yield "there is one repetition of each cell: nothing says how much is noise, so nothing is marked"


def _values(one: RunResults) -> dict[str, str]:
    return {name: _join(run.identity.get(name) for run in one.runs) for name in IDENTITY}


def _settings(found: Comparison, place: int) -> dict[str, str]:
    cells = [pair[place] for pairs in found.pairs.values() for pair in pairs]
    return {name: _join(getattr(cell.setting, name) for cell in cells) for name in SETTINGS}


def _join(values: Iterable[object]) -> str:
    return " and ".join(dict.fromkeys(str(value) for value in values))
