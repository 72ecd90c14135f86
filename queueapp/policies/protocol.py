"""What a policy is: how jobs rank inside their lane, and how the pointers of lanes and tenants move.

A policy has no state of its own: it reads and writes the node that it is handed. So one object serves every node of
every pool, and a leader can keep all there is (`Node.dump`), and its successor goes on from there (`Node.restore`). The
tree (`tree.py`) calls it, and so does the leader of scheduled dispatch; users' own policies implement this protocol
(`custom.py` looks whether they do).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from queueapp.policies.keyed import KeySet
from queueapp.policies.node import Node

PRIORITY_MIN, PRIORITY_MAX = -100, 100
"""Django's range of priorities; what lies outside is clamped."""
PRIORITY_STEP = 2.0**45
"""Ranks between two priorities: more than a shard ever submits, and 200 of them stay exact in a double."""

Place = tuple[float, int]
"""Rank and number of submission of a job that waits; the least runs first."""


def clamp(priority: int) -> int:
    return min(max(priority, PRIORITY_MIN), PRIORITY_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What a policy may know of a pending job."""

    id: str
    tenant: str
    lane: str = "main"
    seq: int
    """Number of submission within the shard."""
    priority: int = 0
    tier: Literal["start", "continue"] = "start"
    cost: float = 0.0
    """Declared units; 0 = undeclared, the estimate stands for it."""
    ready_ms: int = 0
    """The moment it could first have been leased, on the server's clock: submitted, or when its time came."""
    deadline_ms: int = 0
    """The moment it should have ended by; 0 = none."""
    keys: KeySet | None = None
    """Its concurrency keys."""


class Policy(Protocol):
    """The rule of one pool. `node` is the root (children: tenants) or a tenant (children: lanes)."""

    @property
    def name(self) -> str:
        """The word in `Pool.policy`."""

    @property
    def ordered(self) -> bool:
        """The pointer is the least place below (exact order over the whole pool); else it is a turn."""

    @property
    def tiered(self) -> bool:
        """`continue` work stands in a queue of its own and is preferred 10 : 1 inside its lane."""

    @property
    def charges(self) -> bool:
        """Service is charged, so estimated costs are settled when the true ones are known."""

    def rank(self, root: Node, job: Candidate, cost: float, weight: float) -> float:
        """The place of `job` among its lane's when it becomes pending; the least runs first, ties by submission.

        `cost` is declared or estimated, `weight` the tenant's.
        """

    def enter(self, node: Node, child: str, head: Place, weight: float) -> None:
        """`child` became runnable; `head` is the least place below it."""

    def moved(self, node: Node, child: str, head: Place) -> None:
        """`child` stays runnable; the least place below it is now `head`."""

    def leave(self, node: Node, child: str) -> None:
        """`child` is runnable no more."""

    def reweighed(self, node: Node, child: str, weight: float) -> None:
        """The weight of `child`, which stays runnable, is another now."""

    def served(self, node: Node, child: str, rank: float, cost: float, weight: float) -> float:
        """The job at `rank` below `child` was picked: charge it. Answers where `child` stands, for a settlement."""

    def settled(self, node: Node, child: str, difference: float, weight: float, fallback: float) -> None:
        """The true cost of an earlier job differs from its charge by `difference` (negative: a refund)."""
