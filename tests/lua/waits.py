"""Words for the tests of what a job waited for."""

from __future__ import annotations

from typing import Any

from queueapp.store.configuration import ScopeLimits
from queueapp.store.served import Part
from queueapp.store.waits import Waits
from tests.lua.harness import Shard


def waits(shard: Shard, job_id: str) -> Waits | None:
    record = shard.reads.job(job_id)
    assert record is not None
    return record.waits


def limit(shard: Shard, tenant: str = "acme", lane: str = "", **options: Any) -> None:
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=[ScopeLimits(tenant=tenant, lane=lane, **options)])


def summed(shard: Shard, tenant: str = "acme") -> Waits:
    """Of all jobs of a tenant that were leased in the last hour."""
    packed = [shard.client.hget(shard.keys[f"served:{shard.now_ms // 60_000 - back}"], tenant) for back in range(60)]
    return sum((Part.unpacked(one, 0).waits for one in packed if one is not None), Waits())  # type: ignore[arg-type]  # redis-py has one type for sync and async


def blocks(shard: Shard) -> dict[str, str]:
    stored: Any = shard.client.hgetall(shard.keys["blocks"])
    return {scope.decode(): packed.decode() for scope, packed in stored.items()}
