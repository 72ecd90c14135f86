"""`ring`: one job of each tenant in turn, and of its lanes in turn again. Weights and costs do not count.

Bound: while a tenant has work that may run, at most one job of every other tenant runs between two of its own, and a
newcomer waits for one round. Caveat: a tenant with long jobs gets more time than one with short ones; `tiered` and
`drr` count cost.
"""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate, Place


class Ring:
    """A child's pointer is the number of the turn at which it went to the end of the ring: `v` counts them."""

    name = "ring"
    ordered = False
    tiered = False
    charges = False

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        return float(job.seq)

    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        self._to_the_end(node, child)

    def moved(self, node: Node, child: str, head: Place) -> None:
        """A new head changes nothing: the turn is the child's."""

    def leave(self, node: Node, child: str) -> None:
        node.walk.discard(child)

    def reweighed(self, node: Node, child: str, weight: float) -> None:
        """Every child has one turn, whatever its weight."""

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        self._to_the_end(node, child)
        return 0.0

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        """Turns cost the same, however long the job."""

    def _to_the_end(self, node: Node, child: str) -> None:
        node.v += 1
        node.walk.put(child, node.v)
