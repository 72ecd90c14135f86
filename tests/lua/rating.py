"""Words for the tests of dispatch rates: rates set, work done at a moment, who waits for a token until when."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.codec import digest
from queueapp.store.configuration import KeyLimits, Rate, ScopeLimits
from queueapp.store.records import LeasedJob
from tests.lua.harness import LEASE_MS, START_MS, Shard

POLICIES = ["tiered", "ring", "fifo", "priority", "edf", "aging", "wfq"]
each_policy = pytest.mark.parametrize("policy", POLICIES)
SECOND = Rate(rate=1, period_ms=1_000)


def limit(shard: Shard, rate: Rate | None, *, tenant: str = "acme", lane: str = "", **more: Any) -> None:
    shard.versions += 1
    scope = ScopeLimits(tenant=tenant, lane=lane, dispatch_rate=rate, **more)
    shard.store.configure(shard.versions, scopes=[scope])


def limit_key(shard: Shard, name: str, rate: Rate | None, *, ceiling: int | None = None) -> None:
    shard.versions += 1
    change = KeyLimits(pattern=digest(name), text=name, max_in_flight=ceiling, dispatch_rate=rate)
    shard.store.configure(shard.versions, keys=[change])


def work(shard: Shard, want: int = 10, worker: str = "w1") -> list[LeasedJob]:
    """A worker's call: what is due comes first."""
    shard.seqs[worker] = shard.seqs.get(worker, 0) + 1
    answer = shard.store.cycle(worker, shard.seqs[worker], want=want, begin=want, lease_ms=LEASE_MS)
    return list(answer.jobs)


def who(jobs: list[LeasedJob]) -> str:
    return "".join(job.tenant[0] for job in jobs)


def timers(shard: Shard) -> dict[str, int]:
    found: Any = shard.client.zrange(shard.keys["timers"], 0, -1, withscores=True)
    return {member.decode(): int(moment) - START_MS for member, moment in found}
