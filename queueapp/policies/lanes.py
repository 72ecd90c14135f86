"""The pending jobs of a lane, and the lanes of a tenant: what the tree keeps below its root."""

from __future__ import annotations

from dataclasses import dataclass, field

from queueapp.policies.node import Node, Pointers
from queueapp.policies.protocol import Place

BOOST = 10
"""`continue` jobs of a lane in a row that may pass its waiting `start` jobs."""


@dataclass(slots=True)
class Lane:
    """The pending jobs of one lane by rank. `boost` counts the `continue` jobs that passed in a row."""

    fresh: Pointers = field(default_factory=Pointers)
    continued: Pointers = field(default_factory=Pointers)
    boost: int = 0

    def __len__(self) -> int:
        return len(self.fresh) + len(self.continued)

    def head(self) -> Place:
        """The least place of the lane, which is not empty."""
        fresh, continued = self.fresh.first(), self.continued.first()
        if fresh is None or (continued is not None and continued < fresh):
            fresh = continued
        assert fresh is not None, "who asks for its head knows that the lane has one"
        return fresh[:2]

    def turn(self) -> Pointers:
        """The queue whose turn it is: 10 continued jobs to one fresh one, while both wait."""
        return self.continued if len(self.continued) and (not len(self.fresh) or self.boost < BOOST) else self.fresh

    def served(self, queue: Pointers) -> None:
        """A job of `queue` is about to be taken."""
        self.boost = self.boost + 1 if queue is self.continued and len(self.fresh) else 0


@dataclass(slots=True)
class TenantWork:
    """A tenant with waiting jobs, or with a tag at the root. `lanes` are those with pending jobs."""

    node: Node
    lanes: dict[str, Lane] = field(default_factory=dict)
    waiting: int = 0
    """Pending jobs, and those that wait for their time."""
