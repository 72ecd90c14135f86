"""`wfq`: self-clocked fair queueing over tenants (Golestani 1994), tagged when a job becomes pending.

A job's rank is its virtual finish F = max(V, the tenant's last F) + cost / weight; V is the F of the latest job that
was dispatched. Idle tenants bank no credit (max with V), newcomers start at V. Bound: while two tenants are both
backlogged, the services per weight that they had differ by at most c1/w1 + c2/w2, c the largest cost of each.
Caveats: the tag is given on admission, so a new weight acts only on what comes after it, and a cancelled job's share
stays charged; estimates are not corrected when the true cost is known. `tiered` tags at dispatch and has none of the
three.
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate


class Wfq(Ordered):
    """Rank = F. Last tags stand in the root's `tags` as long as they are ahead of V."""

    name = "wfq"

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        finish = max(root.v, root.tags.score(job.tenant) or 0.0) + cost / weight
        root.tags.put(job.tenant, finish)
        return finish

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        node.advance(rank)
        return 0.0
