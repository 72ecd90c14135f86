"""Since when a leased job could have been leased: what the wait in the queue is measured from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queueapp.store.records import LeasedJob, Returned
from tests.lua.harness import LEASE_MS, START_MS, Shard, failed

WAIT_MS = 7_000


def submitted(shard: Shard) -> int:
    """A job that may run at once: ready when it was submitted."""
    shard.add(shard.job())
    return shard.now_ms


def delayed(shard: Shard) -> int:
    """A job for later is ready when it is due, not when somebody promotes it."""
    shard.add(shard.job(delay_ms=60_000))
    shard.now_ms += 61_000
    shard.store.promote_due()
    return START_MS + 60_000


def retried(shard: Shard) -> int:
    """A failed attempt is ready again when its delay is over."""
    shard.add(shard.job(max_attempts=2))
    (job,) = shard.lease()
    shard.now_ms += 500
    shard.store.fail([failed(job, retry_ms=10_000)])
    ready_ms = shard.now_ms + 10_000
    shard.now_ms = ready_ms + 250
    shard.store.promote_due()
    return ready_ms


def given_back(shard: Shard) -> int:
    """One that goes back unrun is ready from then on."""
    shard.add(shard.job())
    (job,) = shard.lease()
    shard.now_ms += 500
    shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
    return shard.now_ms


def given_back_for_later(shard: Shard) -> int:
    """A task that nobody here knew is ready when its delay is over."""
    shard.add(shard.job())
    (job,) = shard.lease()
    shard.now_ms += 500
    back = Returned(id=job.id, attempts=1, delay_ms=2_000, unknown_task=True, grace_ms=900_000)
    shard.store.partition_requeue([back])
    ready_ms = shard.now_ms + 2_000
    shard.now_ms = ready_ms + 100
    shard.store.promote_due()
    return ready_ms


def lost(shard: Shard) -> int:
    """One whose worker was lost is ready from the moment that this was noticed."""
    shard.add(shard.job())
    shard.lease()
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    return shard.now_ms


def brought_back(shard: Shard) -> int:
    """A dead letter that is retried is ready from then on, also when it was once for later."""
    (job_id,) = shard.add(shard.job(delay_ms=1_000))
    shard.now_ms += 1_000
    shard.store.promote_due()
    (job,) = shard.lease()
    shard.store.fail([failed(job)])
    shard.now_ms += 3_600_000
    assert shard.store.retry_from_dlq([job_id]) == ["retried"]
    return shard.now_ms


@pytest.mark.parametrize(
    "story",
    [submitted, delayed, retried, given_back, given_back_for_later, lost, brought_back],
    ids=lambda f: f.__name__,
)
def test_a_lease_tells_since_when_the_job_was_ready(shard: Shard, story: Callable[[Shard], int]) -> None:
    ready_ms = story(shard)
    shard.now_ms += WAIT_MS
    (job,) = shard.lease(worker="w2")
    assert job.ready_ms == ready_ms
    assert job.submitted_ms == START_MS
    assert lease_again(shard) == job, "a repeat of the call whose reply was lost"


def lease_again(shard: Shard) -> LeasedJob:
    (job,) = shard.store.check_and_lease("w2", shard.seqs["w2"], want=1, begin=1, lease_ms=LEASE_MS).jobs
    return job
