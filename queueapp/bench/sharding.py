"""The shards of one pool in a simulation: each with a tree and estimates of its own, and who is in which. Pure.

A tenant's jobs are all in one shard, which rendezvous hashing finds from its name, so that another number of shards
moves as few tenants as can be. What a shard knows of the others is nothing: fairness holds inside of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, Protocol

from queueapp.bench.choosing import Chooser, chooser
from queueapp.bench.estimating import Estimates
from queueapp.policies.charge import Charge
from queueapp.policies.protocol import Candidate, Policy
from queueapp.policies.room import Limits

Slots = Literal["shared", "split"]
"""Whose the slots are: every worker's for all shards, which a free slot asks in turn; or each shard has its part."""


class Pending(Chooser, Protocol):
    """What waits in a pool, and what its jobs have taught of their costs."""

    def learn(self, tenant: str, run_ms: float) -> None:
        """A run has completed."""


class Shard:
    """One shard: `Chooser` with estimates."""

    def __init__(self, policy: Policy, limits: Mapping[str, Limits]) -> None:
        estimates = Estimates()
        chosen = chooser(policy, limits, estimates.of)
        self.push, self.park, self.pick, self.let_go = chosen.push, chosen.park, chosen.pick, chosen.let_go
        self.learn = estimates.learn


class Shards:
    """Several of them behind shared slots: a slot that is free asks the one first that was served longest ago."""

    def __init__(self, count: int, made: Callable[[], Pending]) -> None:
        self._shards = [made() for _ in range(count)]
        self._turns = list(self._shards)

    def push(self, job: Candidate, rank: float | None = None) -> None:
        self._of(job.tenant).push(job, rank)

    def park(self, job: Candidate) -> None:
        self._of(job.tenant).park(job)

    def pick(self) -> Charge | None:
        for place, shard in enumerate(self._turns):
            if (charge := shard.pick()) is not None:
                self._turns.append(self._turns.pop(place))
                return charge
        return None

    def let_go(self, charge: Charge, run_ms: float) -> None:
        self._of(charge.tenant).let_go(charge, run_ms)

    def learn(self, tenant: str, run_ms: float) -> None:
        self._of(tenant).learn(tenant, run_ms)

    def _of(self, tenant: str) -> Pending:
        return self._shards[shard_of(tenant, len(self._shards))]


@lru_cache(maxsize=1 << 20)
def shard_of(tenant: str, shards: int) -> int:
    """The number of a tenant's shard, from 0: the one whose hash with the tenant is greatest (Thaler, Ravishankar
    1998)."""
    return max(range(shards), key=lambda shard: hashlib.sha256(f"{shard}|{tenant}".encode()).digest())


def parts(slots: int, shards: int) -> list[int]:
    """Slots of each shard where they are split: as evenly as whole numbers allow, the first ones more."""
    return [slots // shards + (shard < slots % shards) for shard in range(shards)]
