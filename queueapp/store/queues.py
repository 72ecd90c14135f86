"""The queues of a shard as readers see them: those of the policy in force and, after a change of policy, those of the
one before, until all of its work has moved over (lua/include/generations.lua). Used by `Reads` and what stands on it.

A queue is named as the glossary spells it, `q:<tenant>|<lane>`; with `<` before it, the queue of the policy before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys
from queueapp.store.rows import child_of
from queueapp.store.views import Change

EARLIER = "<"
PAGE = 1_000
"""Lanes of a tenant, or sub-lanes, that one command reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generations:
    """Which generation of the waiting work there is."""

    number: int
    policy: bytes | None
    """Its policy; None: the default."""
    earlier: bytes | None
    """The policy of the generation before, while work may stand in it."""

    def every(self) -> list[tuple[str, int, bytes | None]]:
        """(prefix of its queues' names, number, policy) of each; the earlier one first, so that who reads page by page
        misses no job that moves over meanwhile.
        """
        found: list[tuple[str, int, bytes | None]] = [("", self.number, self.policy)]
        return [(EARLIER, self.number - 1, self.earlier), *found] if self.earlier is not None else found

    def tiers(self) -> list[str]:
        """What the names of queues begin with, in the order of `every`: fresh work, then what continues."""
        return [prefix + tier for prefix, *_ in self.every() for tier in ("q", "qc")]


def change_of(old: bytes | None, moved: bytes | None) -> Change | None:
    """The change of policy that is on its way; None when none is, or only leftovers are cleared away."""
    if old is None:
        return None
    policy, _, _, total, phase, _ = old.decode().split("|")
    if phase not in "wls":
        return None
    return Change(policy=policy, moved=min(int(moved or 0), int(total)), total=int(total))


@dataclass(frozen=True, slots=True)
class QueueReads:
    """Reads of one shard's queues."""

    client: redis.Redis
    keys: ShardKeys

    def generations(self) -> Generations:
        with translate_errors():
            stored: Any = self.client.hmget(self.keys["conf"], "gen", "policy", "old", "moved")
        number, policy, *change = stored
        earlier = change_of(*change)
        return Generations(
            number=int(number or 0), policy=policy, earlier=None if earlier is None else earlier.policy.encode()
        )

    def sizes(self, queues: Sequence[str], generations: Generations) -> list[int]:
        """How many jobs stand in each of these queues."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for queue in queues:
                number = generations.number - queue.startswith(EARLIER)
                pipeline.zcard(self.keys.in_line(queue.removeprefix(EARLIER), number))
            return [int(size) for size in pipeline.execute()] if queues else []

    def lanes(self, tenants: Sequence[str], generations: Generations) -> dict[str, list[str]]:
        """All lanes of each of these tenants with work that may run, by name. One round trip for each generation and
        `PAGE` lanes of a tenant; a lane that has such work all the while is among them.
        """
        found: dict[str, set[str]] = {tenant: set() for tenant in tenants}
        for _, number, policy in generations.every():
            left = dict.fromkeys(found, 0)
            while left:
                with translate_errors():
                    pipeline = self.client.pipeline(transaction=False)
                    for tenant, cursor in left.items():
                        pipeline.zscan(self.keys.in_line(f"lanes:{tenant}", number), cursor, count=PAGE)
                    answers: Sequence[tuple[int, Any]] = pipeline.execute()
                for tenant, (_, members) in zip(left, answers, strict=True):
                    found[tenant].update(child_of(member, policy) for member, _ in members)
                left = {tenant: then for tenant, (then, _) in zip(left, answers, strict=True) if then}
        return {tenant: sorted(names) for tenant, names in found.items()}

    def sub_lanes(
        self, asked: Sequence[tuple[str, str, str]], generations: Generations, *, lane: str = ""
    ) -> list[list[str]]:
        """Where jobs with concurrency keys stand: for each (tenant, tier, name) the next up to `PAGE` of `<lane>|@<ks>`
        behind that name, in the order of their names. The tiers are those of `Generations.tiers`. One round trip.
        """
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for tenant, tier, after in asked:
                number, name = generations.number - tier.startswith(EARLIER), tier.removeprefix(EARLIER)
                begin = f"{name}:{tenant}|{lane}|" if lane else f"{name}:{tenant}|"
                first = f"({name}:{tenant}|{after}" if after else f"[{begin}"
                # `}` is the byte behind `|`
                pipeline.zrangebylex(self.keys.in_line("sublanes", number), first, f"({begin[:-1]}}}", 0, PAGE)
            found: Sequence[Sequence[bytes]] = pipeline.execute() if asked else []
        return [[name.decode().partition("|")[2] for name in names] for names in found]

    def are_parked(self, queues: Sequence[str], generations: Generations) -> list[bool]:
        """Which of these sub-lanes wait for a key, so that no member of their lane stands for them."""
        with translate_errors():
            pipeline = self.client.pipeline(transaction=False)
            for queue in queues:
                number = generations.number - queue.startswith(EARLIER)
                pipeline.hexists(self.keys.in_line("parked", number), queue.removeprefix(EARLIER))
            return [bool(found) for found in pipeline.execute()] if queues else []
