"""Words for the tests of a change of policy while work waits."""

from __future__ import annotations

from typing import Any

from queueapp.policies.registry import DIRECT
from queueapp.store.configuration import PoolConf
from queueapp.store.leader_records import Term
from queueapp.store.records import NewJob
from tests.lua.harness import Shard

POLICIES = sorted(DIRECT)


def state(shard: Shard, job_id: str) -> str:
    record = shard.reads.job(job_id)
    assert record is not None
    return record.state.value


def drained(shard: Shard) -> list[str]:
    order = []
    while found := shard.lease(7):
        order += [job.id for job in found]
    return order


def change(shard: Shard, policy: str, version: int = 2, **options: Any) -> None:
    shard.store.configure(version, pool=PoolConf(policy=policy, **options))


def moved_over(shard: Shard, most: int = 250) -> int:
    """All shares that it takes; how many jobs the last order still had."""
    moved = 0
    while (share := shard.store.rerank(most)).more:
        moved += share.moved
    assert not any(key.startswith("~") != (generation(shard) % 2 == 1) for key in in_line(shard))
    return moved + share.moved


def in_line(shard: Shard) -> list[str]:
    kinds = (
        "walk",
        "lanes",
        "q",
        "qc",
        "tags",
        "ltags",
        "heads",
        "policy",
        "sublanes",
        "parked",
        "blocked",
        "waitkeys",
    )
    return [key for key in shard.snapshot() if key.removeprefix("~").split(":")[0] in kinds]


def standing_anew(shard: Shard) -> set[str]:
    """The jobs of the first generation after none."""
    queues = (members for key, members in shard.snapshot().items() if key.startswith("~q:"))
    return {member.decode() for members in queues for member, _ in members}


def generation(shard: Shard) -> int:
    return int(shard.client.hget(shard.keys["conf"], "gen") or 0)


def some(shard: Shard, number: int = 12, **options: Any) -> list[NewJob]:
    return [shard.job(f"t{index % 3}", lane=f"l{index % 2}", priority=index % 5, **options) for index in range(number)]


def led(shard: Shard, policy: str, version: int) -> Term:
    change(shard, policy, version, dispatch="scheduled")
    return shard.store.lead_acquire("me", f"nonce{version}", 60_000)
