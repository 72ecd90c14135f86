"""One level of the pointer walk: a virtual clock, the runnable children, and the tags of those that left.

The root is a node over tenants; each tenant with work is a node over its lanes. The arithmetic is start-time fair
queueing (Goyal, Vin, Cheng 1996) with tags given at dispatch, operation for operation as `store/lua` does it, so that
both agree to the last bit of a double. Not thread-safe: one caller at a time, as the store's scripts run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

TAGS_DROPPED_PER_LIFT = 64
"""Most stale tags that one lift forgets: a bound on the work of one call."""


class Pointers:
    """Members by score, the least first, equal scores by member: what the server calls a sorted set."""

    __slots__ = ("_heap", "_scores")

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # may hold entries that `_scores` has overtaken

    def __len__(self) -> int:
        return len(self._scores)

    def __contains__(self, member: str) -> bool:
        return member in self._scores

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def score(self, member: str) -> float | None:
        return self._scores.get(member)

    def put(self, member: str, score: float) -> None:
        if self._scores.get(member) == score:
            return
        self._scores[member] = score
        if len(self._heap) > 2 * len(self._scores) + 64:
            self._heap = [(kept, name) for name, kept in self._scores.items()]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (score, member))

    def discard(self, member: str) -> float | None:
        """Take `member` out; its score, or None when it was not there."""
        return self._scores.pop(member, None)

    def first(self) -> tuple[float, str] | None:
        """The least `(score, member)`, which stays."""
        heap = self._heap
        while heap:
            score, member = heap[0]
            if self._scores.get(member) == score:
                return heap[0]
            heapq.heappop(heap)
        return None

    def pop_until(self, bound: float, limit: int) -> list[str]:
        """Take out at most `limit` members whose score is at most `bound`, lowest first."""
        taken: list[str] = []
        while len(taken) < limit and (least := self.first()) is not None and least[0] <= bound:
            del self._scores[least[1]]
            taken.append(least[1])
        return taken


def _ignore(_child: str) -> None:
    return None


class Node:
    """`v` never decreases; `walk` holds the runnable children by start tag, `tags` the others that are ahead of `v`.

    `forgotten` is told of every child whose tag the clock has overtaken.
    """

    __slots__ = ("_forgotten", "tags", "v", "walk")

    def __init__(self, forgotten: Callable[[str], None] = _ignore) -> None:
        self.v = 0.0
        self.walk = Pointers()
        self.tags = Pointers()
        self._forgotten = forgotten

    def enter(self, child: str) -> None:
        """`child` became runnable: it starts at the clock, or at its own tag when it had run ahead."""
        start = max(self.v, self.tags.discard(child) or 0.0)
        self.walk.put(child, start)
        self._lift()

    def leave(self, child: str) -> None:
        """`child` is runnable no more: what it has had beyond the clock is remembered until the clock gets there."""
        finish = self.walk.discard(child)
        if finish is None:
            return
        if finish > self.v:
            self.tags.put(child, finish)
        self._lift(finish)

    def add(self, child: str, amount: float, fallback: float) -> float:
        """Move `child` by `amount` (negative: a refund), in or out of the walk; its new position.

        `fallback` is where a child stood that is in neither: its tag was overtaken.
        """
        position = self.walk.score(child)
        if position is not None:
            position += amount
            self.walk.put(child, position)
            self._lift()
            return position
        tag = self.tags.discard(child)
        finish = (tag if tag is not None and tag > self.v else fallback) + amount
        if finish > self.v:
            self.tags.put(child, finish)
        self._lift(finish)
        if child not in self.tags:
            self._forgotten(child)
        return finish

    def _lift(self, finish: float | None = None) -> None:
        """Bring the clock up to the least start tag, or at the end of a busy period to the last finish tag."""
        least = self.walk.first()
        if least is not None:
            self.v = max(self.v, least[0])
        elif finish is not None:
            self.v = max(self.v, finish)
        for child in self.tags.pop_until(self.v, TAGS_DROPPED_PER_LIFT):
            self._forgotten(child)
