"""cancel, move_to_dlq, retry_from_dlq, discard: verbs of an operator's hand, one word per id, idempotent."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.states import State
from tests.lua.harness import LEASE_MS, Shard, completed, failed


def dead_job(shard: Shard, **options: Any) -> str:
    (job_id,) = shard.add(shard.job(**options))
    (job,) = shard.lease()
    assert shard.store.fail([failed(job)]) == ["dead"]
    return job_id


def test_c120_waiting_jobs_are_cancelled_at_once_and_never_start(shard: Shard) -> None:
    """C120: cancellation lives in worker memory. Right: it is a state of the store."""
    pending, scheduled = shard.add(shard.job(), shard.job(delay_ms=1_000))
    (retrying,) = shard.add(shard.job("other", max_attempts=2))
    running, other = shard.lease(2)
    assert running.id == pending
    shard.store.fail([failed(other, retry_ms=500)])
    (waiting,) = shard.add(shard.job())
    words = shard.store.cancel([pending, scheduled, retrying, waiting, "nobody"])
    assert words == ["stopping", "cancelled", "cancelled", "cancelled", "gone"]
    assert shard.store.cancel([scheduled]) == ["already"]
    shard.now_ms += 5_000
    shard.store.promote_due()
    assert shard.lease(9) == []
    record = shard.reads.job(retrying)
    assert record is not None
    assert (record.state, record.outcome) == (State.ENDED, "cancelled")


def test_c126_each_dead_letter_is_retried_once(shard: Shard) -> None:
    """C126: 'retry all failed' pressed twice doubles the work."""
    ids = [dead_job(shard) for _ in range(20)]
    assert shard.store.retry_from_dlq(ids) == ["retried"] * 20
    assert shard.store.retry_from_dlq(ids) == ["already"] * 20
    assert "dead" not in shard.snapshot()
    assert len(shard.lease(50)) == 20


def test_a_retried_dead_letter_has_fresh_budgets_and_a_growing_fence(shard: Shard) -> None:
    job_id = dead_job(shard, max_attempts=1)
    (later,) = shard.add(shard.job())
    shard.store.retry_from_dlq([job_id])
    leased = shard.lease(2)
    assert [job.id for job in leased] == [later, job_id], "a new place in line"
    again = leased[1]
    assert (again.attempts, again.errors, again.crashes) == (2, 0, 0)
    assert shard.store.fail([failed(again)]) == ["dead"]


def test_dead_letters_go_back_one_after_the_other_at_a_gap(shard: Shard) -> None:
    ids = [dead_job(shard) for _ in range(4)]
    assert shard.store.retry_from_dlq(ids, first_ms=0, gap_ms=500) == ["retried"] * 4
    assert shard.store.retry_from_dlq(ids, first_ms=0, gap_ms=500) == ["already"] * 4
    records = [record for record in shard.reads.jobs(ids) if record is not None]
    assert [record.state for record in records] == [State.PENDING, *[State.SCHEDULED] * 3]
    assert [record.due_ms - shard.now_ms for record in records[1:]] == [500, 1_000, 1_500]
    assert shard.store.verify() == []
    (later,) = shard.add(shard.job())
    shard.now_ms += 1_000
    shard.store.promote_due()
    assert [job.id for job in shard.lease(9)] == [ids[0], later, ids[1], ids[2]], "a place in line when it is due"
    shard.now_ms += 500
    shard.store.promote_due()
    (last,) = shard.lease(9)
    assert (last.id, last.attempts, last.errors) == (ids[3], 2, 0)


def test_a_redriven_job_that_waits_for_its_time_can_be_cancelled(shard: Shard) -> None:
    ids = [dead_job(shard) for _ in range(2)]
    shard.store.retry_from_dlq(ids, first_ms=500)
    assert shard.store.cancel(ids) == ["cancelled"] * 2


def test_discard_removes_the_payload_and_nothing_runs_again(shard: Shard) -> None:
    job_id = dead_job(shard)
    assert shard.store.discard([job_id]) == ["discarded"]
    assert shard.store.discard([job_id]) == ["already"]
    assert shard.store.retry_from_dlq([job_id]) == ["already"]
    record = shard.reads.job(job_id)
    assert record is not None
    assert (record.outcome, record.payload) == ("discarded", None)


def test_an_operator_moves_waiting_jobs_aside_with_a_reason(shard: Shard) -> None:
    pending, scheduled, running = shard.add(shard.job("b"), shard.job(delay_ms=9), shard.job("a"))
    shard.lease()
    assert shard.store.move_to_dlq([pending, scheduled, running], "looks_wrong") == ["moved", "moved", "active"]
    record = shard.reads.job(pending)
    assert record is not None
    assert (record.state, record.reason, record.tenant, record.attempts) == (State.DEAD, "looks_wrong", "b", 0)
    assert shard.store.retry_from_dlq([pending]) == ["retried"]
    assert shard.store.move_to_dlq([pending], "again") == ["moved"]


def test_dead_letters_are_read_by_page_and_tenant(shard: Shard) -> None:
    ids = []
    for number in range(6):
        ids.append(dead_job(shard, tenant="ab"[number % 2]))
        shard.now_ms += 10
    assert list(shard.reads.browse("dead", newest=True, count=4).ids) == ids[:1:-1]
    assert list(shard.reads.browse("dead:b", newest=True, skip=1, count=9).ids) == [ids[3], ids[1]]


@pytest.mark.parametrize("verb", ["cancel", "retry_from_dlq", "discard"])
def test_every_verb_answers_for_every_state(shard: Shard, verb: str) -> None:
    """C151: a stated table of allowed actions, an idempotent repeat, no exception."""
    dead = dead_job(shard)
    ended, active, pending, scheduled = shard.add(
        shard.job("a"), shard.job("b"), shard.job("c"), shard.job(delay_ms=LEASE_MS)
    )
    for job in shard.lease(2):
        if job.id == ended:
            shard.store.complete([completed(job)])
    table = {
        "cancel": ["already", "already", "stopping", "cancelled", "cancelled", "gone"],
        "retry_from_dlq": ["retried", "already", "already", "already", "already", "gone"],
        "discard": ["discarded", "already", "already", "already", "already", "gone"],
    }
    assert getattr(shard.store, verb)([dead, ended, active, pending, scheduled, "nobody"]) == table[verb]
