"""save: what a running job tells of itself, under its lease; and the checkpoint, which is for its next run alone."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.records import Returned
from tests.lua.harness import LEASE_MS, Shard, completed, failed


def checkpoint(shard: Shard, job_id: str) -> bytes | None:
    return shard.reads.checkpoint(job_id)


def saved(shard: Shard, value: bytes = b'{"page":7}', **options: Any) -> str:
    """A running job that has saved a checkpoint."""
    (job_id,) = shard.add(shard.job(**options))
    (job,) = shard.lease()
    assert shard.store.save(job.id, job.attempts, {"checkpoint": value}) == "done"
    return job_id


def test_a_checkpoint_stands_apart_from_what_people_read(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.lease()
    assert shard.store.save(job_id, 1, {"progress": b"1", "checkpoint": b"2"}) == "done"
    record = shard.reads.job(job_id)
    assert record is not None
    assert record.data == {"progress": b"1"}
    assert checkpoint(shard, job_id) == b"2"
    shard.store.save(job_id, 1, {"checkpoint": b"3"})
    assert checkpoint(shard, job_id) == b"3"


@pytest.mark.parametrize("how", ["failed", "given back", "lost"])
def test_the_next_run_finds_it(shard: Shard, how: str) -> None:
    job_id = saved(shard, max_attempts=2)
    (job,) = [job for job in [shard.reads.job(job_id)] if job is not None]
    if how == "failed":
        shard.store.fail([failed(shard.store.cycle("w1", 1, want=1, begin=0, lease_ms=LEASE_MS).jobs[0], retry_ms=0)])
        shard.store.promote_due()
    elif how == "given back":
        shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
    else:
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    (again,) = shard.lease(worker="other")
    assert (again.id, again.attempts) == (job_id, 2)
    assert checkpoint(shard, job_id) == b'{"page":7}'
    assert shard.store.save(job_id, 1, {"checkpoint": b"late"}) == "stale", "the run before has lost its lease"
    assert checkpoint(shard, job_id) == b'{"page":7}'


def test_a_dead_letter_keeps_it_and_a_redrive_finds_it(shard: Shard) -> None:
    job_id = saved(shard)
    shard.store.fail([failed(shard.store.cycle("w1", 1, want=1, begin=0, lease_ms=LEASE_MS).jobs[0])])
    assert checkpoint(shard, job_id) == b'{"page":7}'
    shard.store.retry_from_dlq([job_id])
    (again,) = shard.lease()
    assert checkpoint(shard, again.id) == b'{"page":7}'


@pytest.mark.parametrize("how", ["completed", "cancelled", "expired", "discarded", "trimmed"])
def test_it_goes_with_its_job(shard: Shard, how: str) -> None:
    job_id = saved(shard, max_attempts=2, expires_after_ms=50_000 if how == "expired" else 0)
    (job,) = shard.store.cycle("w1", 1, want=1, begin=0, lease_ms=LEASE_MS).jobs
    if how == "completed":
        shard.store.complete([completed(job)])
    elif how == "cancelled":
        shard.store.fail([failed(job, retry_ms=1_000)])
        assert shard.store.cancel([job_id]) == ["cancelled"]
    elif how == "expired":
        shard.store.fail([failed(job, retry_ms=0)])
        shard.now_ms += 60_000
        assert shard.store.promote_due().expired == 1
    else:
        shard.store.fail([failed(job)])
        if how == "discarded":
            shard.store.discard([job_id])
        else:
            shard.now_ms += 100
            shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=1, dead_max=0, replay_window_ms=1)
    assert checkpoint(shard, job_id) is None
    assert not [name for name in shard.snapshot() if name.startswith("checkpoint:")]


def test_after_the_end_nothing_is_saved(shard: Shard) -> None:
    job_id = saved(shard)
    (job,) = shard.store.cycle("w1", 1, want=1, begin=0, lease_ms=LEASE_MS).jobs
    shard.store.complete([completed(job)])
    assert shard.store.save(job_id, 1, {"checkpoint": b"9"}) == "stale"
    assert checkpoint(shard, job_id) is None
