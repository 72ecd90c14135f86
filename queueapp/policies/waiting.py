"""Who waits for one concurrency key, and who of them is offered a slot first.

Tasks may give one key different limits: those that wait are kept by the limit that they compare with, so that one whose
limit has room never waits behind others whose limit has none. Where tenants take turns, they do so for the key, too: a
turn of a tenant costs what its lease was charged, by its weight; within a tenant the rank decides. Under ordered
policies the rank decides over all. `keyed.py` calls this; `store/lua/include/waiters.lua` does the same in the store.
Not thread-safe.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from queueapp.policies.node import Pointers

LIMITS_LOOKED_AT = 64
"""Different limits of one key that a look compares with, the highest first: a bound on the work of one call."""
ALL = "*"
"""The group of all tenants, where they take no turns. No tenant is called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """At most `limit` leased jobs share a digest, unless another limit is configured for the pattern."""

    digest: str
    limit: int
    pattern: str = ""


class Waiters:
    """Sub-lanes that wait for one key: by the limit they compare with, in groups by turn, in each by rank.

    The turns are start tags as in `node.py`: `v` is the turn of the waiter that was woken last, `tags` are the turns of
    tenants that were served since somebody waits. Both go when nobody waits any more.
    """

    __slots__ = ("_groups", "_jobs", "_tags", "_turns", "_v")

    def __init__(self, *, turns: bool) -> None:
        self._turns = turns
        self._v = 0.0
        self._tags: dict[str, float] = {}
        self._groups: dict[Key, Pointers] = {}
        self._jobs: dict[tuple[Key, str], Pointers] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def limits(self) -> Iterator[Key]:
        """The limits that waiters compare with."""
        return iter(self._groups)

    def put(self, key: Key, tenant: str, name: str, head: tuple[float, int]) -> None:
        """A sub-lane waits from now on, or has a new head."""
        group = tenant if self._turns else ALL
        groups = self._groups.setdefault(key, Pointers())
        if group not in groups:
            groups.put(group, self._turn(group) if self._turns else 0.0)
            self._jobs[key, group] = Pointers()
        self._jobs[key, group].put(name, *head)

    def discard(self, key: Key, tenant: str, name: str) -> None:
        group = tenant if self._turns else ALL
        waiting = self._jobs[key, group]
        waiting.discard(name)
        if not waiting:
            del self._jobs[key, group]
            self._groups[key].discard(group)
            if not self._groups[key]:
                del self._groups[key]

    def first(self, fits: Callable[[Key], bool]) -> tuple[str, float] | None:
        """Name and turn of the first sub-lane whose limit has room."""
        found = []
        for key in heapq.nlargest(LIMITS_LOOKED_AT, self._groups, key=lambda key: key.limit):
            group = self._groups[key].first() if fits(key) else None
            if group is not None:
                head = self._jobs[key, group[2]].first()
                assert head is not None, "a group is there for its waiters"
                found.append((group[0], group[2], head))
        if not found:
            return None
        turn, _, (_, _, name) = min(found)
        return name, turn

    def began(self, turn: float) -> None:
        """A waiter with this turn was woken: whoever comes now is not before it."""
        self._v = max(self._v, turn)

    def charge(self, tenant: str, amount: float) -> None:
        """Jobs of `tenant` were leased."""
        tag = self._tags[tenant] = self._turn(tenant) + amount
        for groups in self._groups.values():
            if tenant in groups:
                groups.put(tenant, tag)

    def __iter__(self) -> Iterator[str]:
        """Names in the order of their turns as they stand now."""
        listed = [
            (groups.score(group) or 0.0, group, self._jobs[key, group].place(name) or (0.0, 0), name)
            for key, groups in self._groups.items()
            for group in groups
            for name in self._jobs[key, group]
        ]
        return (name for *_, name in sorted(listed))

    def _turn(self, tenant: str) -> float:
        return max(self._v, self._tags.get(tenant, 0.0))
