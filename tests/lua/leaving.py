"""Small words for the tests of jobs that move from one shard to another."""

from __future__ import annotations

from queueapp.store.records import KeyUse
from queueapp.store.views import JobRecord
from tests.lua.harness import Shard

KEY = KeyUse(digest="d" * 16, limit=1, pattern="p" * 16, text="customer:1")
RIPE_MS = 45_000
"""Of lua/include/transit.lua."""


def record(shard: Shard, job_id: str) -> JobRecord:
    found = shard.reads.job(job_id)
    assert found is not None
    return found


def move(shard: Shard, other: Shard, ids: list[str]) -> list[str]:
    """All three steps, `shard` verified after each."""
    words = shard.store.depart(ids, "other.0")
    assert shard.store.verify() == []
    left = shard.store.departed().jobs
    other.now_ms = shard.now_ms
    other.store.arrive([(one.id, one.packed) for one in left if one.packed is not None])
    assert other.store.verify() == []
    shard.store.arrived([(one.id, one.hop, False) for one in left])
    return words


def packed_of(shard: Shard) -> list[tuple[str, bytes]]:
    return [(one.id, one.packed or b"") for one in shard.store.departed().jobs]


def bring(shard: Shard, other: Shard) -> list[str]:
    """All that left `shard` is in `other`, which is told what was cancelled; the words of `arrived`."""
    left = shard.store.departed().jobs
    other.store.arrive([(one.id, one.packed) for one in left if one.packed is not None])
    other.store.cancel([one.id for one in left if one.cancelled])
    return shard.store.arrived([(one.id, one.hop, one.cancelled) for one in left])


def ended_as(shard: Shard, job_id: str) -> str:
    found = shard.reads.job(job_id)
    return "" if found is None else str((found.outcome or found.state).value)


def asked_back(shard: Shard, *ids: str) -> None:
    """And so long ago that nothing of them can arrive any more."""
    assert shard.store.recall([(job_id, 0) for job_id in ids]) == ["recalled"] * len(ids)
    shard.now_ms += RIPE_MS + 1
