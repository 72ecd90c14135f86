"""Policies as users write them, for the tests of scheduled dispatch: an ordered one, one with tags, a rotating one."""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.ordered import Ordered
from queueapp.policies.protocol import Candidate, Place
from queueapp.policies.ring import Ring
from queueapp.policies.tiered import Tiered
from queueapp.policies.wfq import Wfq


class Nearest(Ordered):
    """Rank = priority first, cost second: many ties, and an order in the lane that is not that of submission."""

    name = "nearest"

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return cost - 10 * job.priority


class OwnWfq(Wfq):
    """Ranks by tags that the root keeps, with the weight of the tenant."""

    name = "own_wfq"


class OwnRing(Ring):
    name = "own_ring"


class OwnShares(Tiered):
    """Start-time fair queueing, without the two queues of `tiered`."""

    name = "own_shares"
    tiered = False

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float(job.seq)

    def moved(self, node: Node, child: str, head: Place) -> None:
        """As in `tiered`."""


OWN = {each.name: f"{each.__module__}.{each.__qualname__}" for each in (Nearest, OwnWfq, OwnRing, OwnShares)}
