"""What the store learns of run times, written once more in plain Python. `pair.py` gives it to the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

DEFAULT_COST = 50.0
RUNS_KNOWN = 8
"""A tenant's own estimate of a task counts from so many runs on."""


@dataclass(slots=True)
class Estimates:
    """Learnt run times by task, and by task and tenant where they differ: averages in sixteenths of a millisecond."""

    learnt: dict[str, int] = field(default_factory=dict)
    own: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Average and number of runs, which counts no further than to that from which on the average is used."""

    def cost(self, task: str, tenant: str) -> float:
        average, runs = self.own.get((task, tenant), (0, 0))
        if runs == RUNS_KNOWN:
            return average / 16
        return self.learnt[task] / 16 if task in self.learnt else DEFAULT_COST

    def learn(self, task: str, tenant: str, run_ms: int) -> None:
        seen, known = run_ms * 16, self.learnt.get(task)
        if (task, tenant) in self.own:
            average, runs = self.own[task, tenant]
            runs = min(runs + 1, RUNS_KNOWN)
            self.own[task, tenant] = (_moved(average, seen, runs), runs)
        elif known is not None and max(seen, known, 16) >= 2 * max(min(seen, known), 16):
            self.own[task, tenant] = (seen, 1)
        self.learnt[task] = seen if known is None else _moved(known, seen, 8)


def _moved(average: int, seen: int, factor: int) -> int:
    return average + math.floor((seen - average) / factor + 0.5)
