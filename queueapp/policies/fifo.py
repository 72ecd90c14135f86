"""`fifo`: the order of submission over the whole pool, whoever submitted. Both tiers stand in one queue.

Bound: none between tenants; who submits most is served most. Caveat: one tenant's flood is drained before the others'
single jobs. It is the arm that fairness is measured against.
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate


class Fifo(Ordered):
    """Rank = number of submission."""

    name = "fifo"

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float(job.seq)
