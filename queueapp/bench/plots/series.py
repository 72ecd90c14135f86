"""What plots ask of a run's results: its cells by arm, workload and load, the repetitions of each together. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from queueapp.bench.intervals import Interval, interval
from queueapp.bench.plots.look import NOBODY, Mark, mark, policy_order
from queueapp.bench.results.reading import CellRow, PriorityRow, RunResults, TenantRow

DECISIVE_LOAD = 1.25
"""Where a run has several loads, plots of one load show the nearest to this: there policies differ most."""
DISPATCHES = ("direct", "scheduled", "none", "simulated")

EXECUTIONS = {"sleep": "sleeping jobs", "cpu": "computing jobs", "virtual": "in virtual time"}


@dataclass(frozen=True, slots=True)
class Arm:
    """A policy under one kind of dispatch."""

    policy: str
    dispatch: str

    @property
    def mark(self) -> Mark:
        return NOBODY if self.dispatch == "none" else mark(self.policy)

    @property
    def filled(self) -> bool:
        """Of its markers: those of scheduled dispatch are hollow."""
        return self.dispatch != "scheduled"

    @property
    def order(self) -> tuple[bool, tuple[int, str], int]:
        """Policies as in every plot, the control arm last."""
        return self.dispatch == "none", policy_order(self.policy), DISPATCHES.index(self.dispatch)


@dataclass(frozen=True, slots=True)
class Spot:
    """Where repetitions of each other lie."""

    arm: Arm
    workload: str
    load: float


class Series:
    """The results of a run, as plots read them. A cell of which no job is done with has no figures and is left out."""

    def __init__(self, results: RunResults) -> None:
        self.results = results
        self._spots: dict[Spot, list[CellRow]] = {}
        for row in results.cells:
            if row.figures["completed"] or row.figures["dead"]:
                self._spots.setdefault(_spot(row), []).append(row)
        self.arms = sorted({spot.arm for spot in self._spots}, key=lambda arm: arm.order)
        self.workloads = list(dict.fromkeys(spot.workload for spot in self._spots))
        self._tenants: dict[str, list[TenantRow]] = {}
        for tenant in results.tenants:
            self._tenants.setdefault(tenant.cell, []).append(tenant)
        self._priorities: dict[str, list[PriorityRow]] = {}
        for priority in results.priorities:
            self._priorities.setdefault(priority.cell, []).append(priority)

    # -- what there is -----------------------------------------------------------------------------------------------

    def loads(self, workload: str) -> list[float]:
        return sorted({spot.load for spot in self._spots if spot.workload == workload})

    @property
    def swept(self) -> list[str]:
        """Workloads that were run under several loads."""
        return [workload for workload in self.workloads if len(self.loads(workload)) > 1]

    def load(self, workload: str) -> float:
        """The one at which a plot of one load shows the workload."""
        return min(self.loads(workload), key=lambda load: (abs(load - DECISIVE_LOAD), load))

    @property
    def dispatches(self) -> list[str]:
        return sorted({arm.dispatch for arm in self.arms}, key=DISPATCHES.index)

    def label(self, arm: Arm) -> str:
        """As short as the run allows: the dispatch is told only where there are several."""
        if arm.dispatch == "none":
            return "none: as they come"
        return arm.policy if len(self.dispatches) == 1 else f"{arm.policy}, {arm.dispatch}"

    def rows(self, arm: Arm, workload: str, load: float | None = None) -> Sequence[CellRow]:
        """The repetitions there; none where the arm was not run so."""
        return self._spots.get(Spot(arm, workload, self.load(workload) if load is None else load), ())

    def present(self, workload: str) -> list[Arm]:
        return [arm for arm in self.arms if self.rows(arm, workload)]

    def values(self, arm: Arm, workload: str, figure: str, load: float | None = None) -> list[float]:
        """One of each repetition, less those in which the figure has no value."""
        found = (row.figures[figure] for row in self.rows(arm, workload, load))
        return [value for value in found if math.isfinite(value)]

    def interval(self, arm: Arm, workload: str, figure: str, load: float | None = None) -> Interval | None:
        """None where there is nothing to show."""
        values = self.values(arm, workload, figure, load)
        return interval(values) if values else None

    def panels(self, figure: str) -> list[str]:
        """Workloads in which any arm has a value of it."""
        return [name for name in self.workloads if any(self.values(arm, name, figure) for arm in self.arms)]

    # -- of tenants and priorities -------------------------------------------------------------------------------------

    def tenants(self, arm: Arm, workload: str, time: str) -> dict[str, list[float]]:
        """Of each tenant that has any, one value of each repetition; `time` is a field of `Times`."""
        found: dict[str, list[float]] = {}
        for cell in self.rows(arm, workload):
            for row in self._tenants.get(cell.name, ()):
                if math.isfinite(value := float(getattr(row.times, time))):
                    found.setdefault(row.tenant, []).append(value)
        return found

    def tenant_count(self, workload: str) -> int:
        """Those that might have sent something: the n of Jain's floor."""
        cells = [row for arm in self.arms for row in self.rows(arm, workload)]
        return max(len(self._tenants.get(row.name, ())) for row in cells)

    def big(self, workload: str) -> str | None:
        """The tenant that sends far more than the others, if any does."""
        cells = [row for arm in self.arms for row in self.rows(arm, workload)]
        return next((row.setting.big for row in cells if row.setting.big), None)

    def starving_ms(self, workload: str) -> int:
        """How long a job waits at least that counts as starved."""
        return max(row.setting.starving_ms for arm in self.arms for row in self.rows(arm, workload))

    def priorities(self, arm: Arm, workload: str) -> dict[int, list[float]]:
        """p95 waits in ms by priority, one of each repetition."""
        found: dict[int, list[float]] = {}
        for cell in self.rows(arm, workload):
            for row in self._priorities.get(cell.name, ()):
                if math.isfinite(row.times.wait_p95_ms):
                    found.setdefault(row.priority, []).append(row.times.wait_p95_ms)
        return found

    # -- words -------------------------------------------------------------------------------------------------------

    def conditions(self, workloads: Iterable[str], *, swept: bool = False) -> str:
        """What a plot of these workloads is of: profile, jobs, slots, load, repetitions, seeds."""
        names = set(workloads)
        settings = [row.setting for spot, rows in self._spots.items() if spot.workload in names for row in rows]
        if not swept:
            settings = [one for one in settings if one.load == self.load(one.workload)]
        parts = [
            f"profile {_several(one.profile for one in settings)}",
            f"{_several(f'{one.jobs:,}' for one in settings)} jobs a cell",
            _several(EXECUTIONS.get(one.execution, one.execution) for one in settings),
            f"{_several(f'{one.slots:,}' for one in settings)} slots",
            f"load {_several(f'{load:.3g}' for load in sorted({one.load for one in settings}))}",
            _repetitions([one.seed for one in settings], max(one.repetition for one in settings)),
            f"dispatch {_several(one.dispatch for one in settings)}",
        ]
        if self.dispatches == ["simulated"]:
            parts.pop()  # virtual time says it already
        return " · ".join(parts)

    @property
    def once(self) -> bool:
        """Nothing was repeated."""
        return all(len(rows) == 1 for rows in self._spots.values())


def _spot(row: CellRow) -> Spot:
    return Spot(Arm(row.setting.policy, row.setting.dispatch), row.setting.workload, row.setting.load)


def _several(values: Iterable[str]) -> str:
    known = list(dict.fromkeys(values))
    return " / ".join(known) if len(known) <= 3 else f"{known[0]} to {known[-1]}"


def _repetitions(seeds: Sequence[int], most: int) -> str:
    if most == 1:
        return f"one repetition, seed {min(seeds)}"
    return f"{most} repetitions, seeds {min(seeds)} to {max(seeds)}"
