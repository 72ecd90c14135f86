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
            return [int(size) for size in pipeline.execute()]

    def lanes(self, tenant: str, count: int, generations: Generations) -> list[str]:
        """Lanes of a tenant with work that may run, by name; at most `count` of each generation."""
        every = generations.every()
        with translate_errors():
            pipeline = self.client.pipeline(transaction=True)
            for _, number, _ in every:
                pipeline.zrange(self.keys.in_line(f"lanes:{tenant}", number), 0, count - 1)
            found = pipeline.execute()
        names = {
            child_of(member, policy) for members, (_, _, policy) in zip(found, every, strict=True) for member in members
        }
        return sorted(names)

    def sub_lanes(self, tenant: str, count: int, generations: Generations) -> dict[tuple[str, str], bool]:
        """Where jobs with concurrency keys stand: (`<lane>|@<ks>`, q or qc, perhaps behind `<`) → a member of the lane
        stands for them, so that they do not wait for a key. At most `count`.
        """
        found: dict[tuple[str, str], bool] = {}
        for prefix, number, _ in generations.every():
            sub_lanes, parked = self.keys.in_line("sublanes", number), self.keys.in_line("parked", number)
            with translate_errors():
                pipeline = self.client.pipeline(transaction=False)
                for tier in ("q", "qc"):  # `}` is the byte behind `|`
                    pipeline.zrangebylex(sub_lanes, f"[{tier}:{tenant}|", f"({tier}:{tenant}}}", 0, count)
                names = [name for part in pipeline.execute() for name in part][: count - len(found)]
                digests: Any = self.client.hmget(parked, names) if names else []
            for name, digest in zip(names, digests, strict=True):
                tier, _, place = name.decode().partition(":")
                found[place.partition("|")[2], prefix + tier] = digest is None
        return found
