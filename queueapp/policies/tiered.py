"""`tiered`, the default: hierarchical start-time fair queueing over tenants and again over lanes, tagged at dispatch.

The turn is tagged, not the job: a change of weight, a cancel or a pause acts at once on all that is queued. Idle
children bank no credit and newcomers start at the clock (`Node.enter`). While two tenants are both in the walk their
charged services per weight stay within c1/w1 + c2/w2 of each other, for any number of workers
(`tests/unit/test_policies.py` holds it to that).
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.protocol import PRIORITY_STEP, Candidate, Place, clamp


class Tiered:
    """Pointers are start tags; inside a lane the higher priority goes first, then the earlier submission."""

    name = "tiered"
    ordered = False
    tiered = True
    charges = True

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return job.seq - clamp(job.priority) * PRIORITY_STEP

    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        node.enter(child)

    def moved(self, node: Node, child: str, head: Place) -> None:
        """A new head changes nothing: the turn is the child's, whatever job it is for."""

    def leave(self, node: Node, child: str) -> None:
        node.leave(child)

    def reweighed(self, node: Node, child: str, weight: float) -> None:
        """The next charge counts the new weight; what was served before stays as it was charged."""

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        return node.add(child, cost / weight, node.v)

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        node.add(child, difference / weight, fallback)
