"""`aging`: priority that improves with waiting, without ever ranking anew.

A step of priority is worth `step_ms` of waiting: rank = moment of readiness - priority * step. Because all ranks grow
old at the same speed, the order of two waiting jobs never changes. Bound: a job is overtaken only by jobs that became
ready less than (their priority - its own) * `step_ms` after it, so at most 200 steps after it. Caveat: order within a
millisecond is by submission; a clock that steps back moves newcomers ahead by that much.
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate, clamp

STEP_MS = 60_000
"""One minute of waiting for one step of priority."""


class Aging(Ordered):
    """Rank = `ready_ms` - p * `step_ms`."""

    name = "aging"

    def __init__(self, step_ms: int = STEP_MS) -> None:
        self.step_ms = step_ms

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float(job.ready_ms - clamp(job.priority) * self.step_ms)
