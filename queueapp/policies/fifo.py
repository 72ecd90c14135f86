"""`fifo`: the order of submission over the whole pool, whoever submitted. Both tiers stand in one queue."""

from __future__ import annotations

from queueapp.policies.node import Node
from queueapp.policies.protocol import Candidate


class Fifo:
    """Every pointer is the least number of submission below it: a heap of heaps."""

    name = "fifo"
    ordered = True
    tiered = False
    charges = False

    def rank(self, job: Candidate) -> float:
        return float(job.seq)

    def enter(self, node: Node, child: str, head: float) -> None:
        node.walk.put(child, head)

    def moved(self, node: Node, child: str, head: float) -> None:
        node.walk.put(child, head)

    def leave(self, node: Node, child: str) -> None:
        node.walk.discard(child)

    def served(self, node: Node, child: str, cost: float, weight: float) -> float:
        return 0.0

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        return None
