"""One level of the pointer walk: a virtual clock, the runnable children, and the tags of those that left.

The root is a node over tenants; each tenant with work is a node over its lanes. The arithmetic is start-time fair
queueing (Goyal, Vin, Cheng 1996) with tags given at dispatch, operation for operation as `store/lua` does it, so that
both agree to the last bit of a double. Not thread-safe: one caller at a time, as the store's scripts run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from typing import Any

TAGS_DROPPED_PER_LIFT = 64
"""Most stale tags that one lift forgets: a bound on the work of one call."""


class Pointers:
    """Members by score, the least first, equal scores by `tie`, then by member."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._entries: dict[str, tuple[float, int, str]] = {}
        self._heap: list[tuple[float, int, str]] = []  # of the entries, and of some that were overtaken

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, member: str) -> bool:
        return member in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def score(self, member: str) -> float | None:
        entry = self._entries.get(member)
        return None if entry is None else entry[0]

    def place(self, member: str) -> tuple[float, int] | None:
        """Score and tie."""
        entry = self._entries.get(member)
        return None if entry is None else entry[:2]

    def put(self, member: str, score: float, tie: int = 0) -> None:
        entry, entries = (score, tie, member), self._entries
        if entries.get(member) == entry:
            return
        entries[member] = entry
        if len(self._heap) > 2 * len(entries) + 64:
            self._heap = list(entries.values())
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, entry)

    def discard(self, member: str) -> float | None:
        """Take `member` out; its score, or None when it was not there."""
        entry = self._entries.pop(member, None)
        return None if entry is None else entry[0]

    def first(self, but: Collection[str] = ()) -> tuple[float, int, str] | None:
        """The least `(score, tie, member)`, which stays; the least of those that are not in `but`."""
        if but:
            return min((entry for member, entry in self._entries.items() if member not in but), default=None)
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            if entries.get(entry[2]) is entry:
                return entry
            heapq.heappop(heap)
        return None

    def pop_until(self, bound: float, limit: int) -> list[str]:
        """Take out at most `limit` members whose score is at most `bound`, lowest first."""
        taken: list[str] = []
        while len(taken) < limit and (least := self.first()) is not None and least[0] <= bound:
            del self._entries[least[2]]
            taken.append(least[2])
        return taken

    def dump(self) -> list[tuple[str, float, int]]:
        """All of it, for `restore`: member, score, tie. Which were put first does not matter and is not told."""
        return [(member, score, tie) for score, tie, member in self._entries.values()]

    def restore(self, dumped: list[tuple[str, float, int]]) -> None:
        self._entries = {str(member): (float(score), int(tie), str(member)) for member, score, tie in dumped}
        self._heap = list(self._entries.values())
        heapq.heapify(self._heap)


def _ignore(_child: str) -> None:
    return None


class Node:
    """`v` never decreases; `walk` holds the runnable children by start tag, `tags` the others that are ahead of `v`.

    `forgotten` is told of every child whose tag the clock has overtaken. `state` is the policy's own: child → number,
    dropped with the child's tag; `root` is the node at the top of the tree, where it keeps what all nodes share.
    `passed` are children of the walk that have no turn in this call. They hold the clock back all the same.
    """

    __slots__ = ("_forgotten", "passed", "root", "state", "tags", "v", "walk")

    def __init__(self, forgotten: Callable[[str], None] = _ignore, root: Node | None = None) -> None:
        self.v = 0.0
        self.walk = Pointers()
        self.tags = Pointers()
        self.state: dict[str, float] = {}
        self.passed: set[str] = set()
        self.root = self if root is None else root
        self._forgotten = forgotten

    def turn(self) -> tuple[float, int, str] | None:
        """The first child that is not passed over."""
        return self.walk.first(self.passed)

    def enter(self, child: str) -> None:
        """`child` became runnable: it starts at the clock, or at its own tag when it had run ahead."""
        start = max(self.v, self.tags.discard(child) or 0.0)
        self.walk.put(child, start)
        self.lift()

    def leave(self, child: str) -> None:
        """`child` is runnable no more: what it has had beyond the clock is remembered until the clock gets there."""
        finish = self.walk.discard(child)
        if finish is None:
            return
        if finish > self.v:
            self.tags.put(child, finish)
        self.lift(finish)

    def add(self, child: str, amount: float, fallback: float) -> float:
        """Move `child` by `amount` (negative: a refund), in or out of the walk; its new position.

        `fallback` is where a child stood that is in neither: its tag was overtaken.
        """
        position = self.walk.score(child)
        if position is not None:
            position += amount
            self.walk.put(child, position)
            self.lift()
            return position
        tag = self.tags.discard(child)
        finish = (tag if tag is not None and tag > self.v else fallback) + amount
        self.remember(child, finish)
        return finish

    def remember(self, child: str, tag: float) -> None:
        """`child` stands outside the walk until the clock gets to `tag`; it is forgotten when that is so already."""
        if tag > self.v:
            self.tags.put(child, tag)
        self.lift(tag)
        if child not in self.tags:
            self._forget(child)

    def advance(self, to: float) -> None:
        """Bring the clock up to `to`; tags that it has overtaken are forgotten."""
        self.v = max(self.v, to)
        if len(self.tags):
            for child in self.tags.pop_until(self.v, TAGS_DROPPED_PER_LIFT):
                self._forget(child)

    def lift(self, finish: float | None = None) -> None:
        """Bring the clock up to the least start tag, or at the end of a busy period to the last finish tag."""
        least = self.walk.first()
        self.advance(least[0] if least is not None else self.v if finish is None else finish)

    def dump(self) -> dict[str, Any]:
        """What a later `restore` goes on from to the last bit, in JSON's own types: all that a policy keeps."""
        return {"v": self.v, "walk": self.walk.dump(), "tags": self.tags.dump(), "state": dict(self.state)}

    def restore(self, dumped: dict[str, Any]) -> None:
        """Be the node that was dumped. ValueError, TypeError or KeyError for what is no dump."""
        self.v = float(dumped["v"])
        self.walk.restore(dumped["walk"])
        self.tags.restore(dumped["tags"])
        self.state = {str(child): float(number) for child, number in dumped["state"].items()}

    def _forget(self, child: str) -> None:
        self.state.pop(child, None)
        self._forgotten(child)
