"""Words for the tests of what is ready: where a job stands, what is held, what is armed."""

from __future__ import annotations

from typing import Any

from queueapp.states import State
from queueapp.store.configuration import ScopeLimits
from tests.lua.harness import Shard


def state(shard: Shard, job_id: str) -> State:
    record = shard.reads.job(job_id)
    assert record is not None
    return record.state


def ready(shard: Shard) -> list[str]:
    members: Any = shard.client.zrange(shard.keys["ready"], 0, -1)
    return [member.decode() for member in members]


def armed(shard: Shard, key: str) -> bool:
    return bool(shard.client.exists(shard.keys[key]))


def slots(shard: Shard, scope: str) -> int:
    return int(shard.client.zcard(shard.keys[f"slots:{scope}"]))


def waiting(shard: Shard) -> int:
    return int(shard.client.hget(shard.keys["counts"], "w") or 0)


def limits(shard: Shard, *scopes: ScopeLimits) -> None:
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=scopes)


def units(shard: Shard, tenant: str) -> tuple[float, int]:
    """What the tenant has had in this minute: units and jobs."""
    packed: Any = shard.client.hget(shard.keys[f"served:{shard.now_ms // 60_000}"], tenant)
    had, jobs, *_ = packed.decode().split("|")
    return float(had), int(jobs)
