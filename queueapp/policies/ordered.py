"""What the ordered policies share: every pointer is the least place below it, so that the walk finds the pool's first.

A place is `(rank, seq)`: equal ranks go by submission, across lanes and tenants. A heap of heaps, exact to the job.
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.protocol import Place


class Ordered:
    """A policy is complete with a `name` and a `rank`. Nothing is charged."""

    ordered = True
    tiered = False
    charges = False

    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        node.walk.put(child, *head)

    def moved(self, node: Node, child: str, head: Place) -> None:
        node.walk.put(child, *head)

    def leave(self, node: Node, child: str) -> None:
        node.walk.discard(child)

    def reweighed(self, node: Node, child: str, weight: float) -> None:
        """Order by rank knows no weights, or has them in the ranks of what waits already."""

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        return 0.0

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        return None
