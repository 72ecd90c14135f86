"""`priority`: the higher priority first over the whole pool, equal ones by submission. There is no ageing, on purpose.

Bound: a job waits for at most the work of its own and higher priorities that was submitted before it, and for all of
the higher ones after it. Caveat: under a steady flood of higher priorities the lowest never runs; `aging` is the policy
that bounds the wait, and the oldest wait shows in `ductor status` either way.
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import PRIORITY_MAX, PRIORITY_STEP, Candidate, clamp


class Priority(Ordered):
    """Rank = (100 - p) * 2^45 + seq: exact in a double for every priority and every number of submission."""

    name = "priority"

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return (PRIORITY_MAX - clamp(job.priority)) * PRIORITY_STEP + job.seq
