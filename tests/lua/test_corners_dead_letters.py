"""Dead letters: what leads there, what an operator's retry makes of them, and how long they stay."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.states import State
from queueapp.store.records import Failed, Returned
from queueapp.store.views import JobRecord
from tests.lua.harness import LEASE_MS, Shard, failed
from tests.lua.test_dead_letters import dead_job
from tests.lua.test_recover import lose

UNKNOWN: dict[str, Any] = {"delay_ms": 10, "unknown_task": True, "grace_ms": 900_000}


def record_of(shard: Shard, job_id: str) -> JobRecord:
    record = shard.reads.job(job_id)
    assert record is not None
    return record


def give_back(shard: Shard) -> str:
    """The next job is leased by a worker that does not know its task; the word of the answer."""
    (job,) = shard.lease()
    (word,) = shard.store.partition_requeue([Returned(id=job.id, attempts=job.attempts, **UNKNOWN)])
    shard.now_ms += 10
    shard.store.promote_due()
    return word


@pytest.mark.parametrize("verb", ["cancel", "move_to_dlq"])
def test_a_retried_continuation_leaves_the_queue_it_stands_in(shard: Shard, verb: str) -> None:
    """It is a start now: it must not be looked for among the continuations."""
    job_id = dead_job(shard, tier="continue")
    shard.store.retry_from_dlq([job_id])
    if verb == "cancel":
        assert shard.store.cancel([job_id]) == ["cancelled"]
    else:
        assert shard.store.move_to_dlq([job_id], "by_hand") == ["moved"]
    assert not {"walk", "q:acme|main", "qc:acme|main"} & shard.snapshot().keys()


@pytest.mark.parametrize("late_ms", [0, 5_000])
def test_a_retried_job_has_no_expiry_any_more(shard: Shard, late_ms: int) -> None:
    """An operator wants it to run, before or after the moment at which it would have expired."""
    job_id = dead_job(shard, expires_after_ms=1_000)
    shard.now_ms += late_ms
    assert shard.store.retry_from_dlq([job_id]) == ["retried"]
    assert shard.store.verify() == []
    shard.now_ms += 5_000
    assert shard.store.promote_due().expired == 0
    assert [job.id for job in shard.lease()] == [job_id]


def test_a_retried_job_shows_no_trace_of_its_death(shard: Shard) -> None:
    job_id = dead_job(shard)
    assert (record_of(shard, job_id).reason, record_of(shard, job_id).ended_ms) == ("error", shard.now_ms)
    shard.store.retry_from_dlq([job_id])
    record = record_of(shard, job_id)
    assert (record.state, record.reason, record.outcome, record.ended_ms) == (State.PENDING, "", None, 0)
    assert not {b"o", b"te", b"uk", b"sp"} & shard.snapshot()[f"run:{job_id}"].keys()
    assert len(record.errors) == 1, "its history stays"


def test_a_retried_job_of_an_unknown_task_has_its_whole_grace_again(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    assert give_back(shard) == "done"
    shard.now_ms += 900_000
    assert give_back(shard) == "dead"
    shard.store.retry_from_dlq([job_id])
    assert give_back(shard) == "done"


def test_the_grace_of_an_unknown_task_begins_anew_once_somebody_knew_it(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_attempts=5))
    assert give_back(shard) == "done"
    shard.store.fail([failed(shard.lease()[0], retry_ms=1_000_000)])
    shard.now_ms += 1_000_000
    shard.store.promote_due()
    assert give_back(shard) == "done"
    assert record_of(shard, job_id).state is State.PENDING


def test_a_retry_that_would_come_after_the_expiry_is_a_death_now(shard: Shard) -> None:
    late, early = shard.add(*(shard.job(max_attempts=5, expires_after_ms=10_000) for _ in range(2)))
    one, two = shard.lease(2)
    assert shard.store.fail([failed(one, retry_ms=10_000), failed(two, retry_ms=9_999)]) == ["dead", "retry"]
    assert record_of(shard, late).state is State.DEAD
    assert record_of(shard, early).state is State.SCHEDULED


def test_a_job_that_waits_for_a_retry_still_expires(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_attempts=5, expires_after_ms=10_000))
    assert shard.store.fail([failed(shard.lease()[0], retry_ms=1_000)]) == ["retry"]
    assert dict(shard.snapshot()["expiring"]) == {job_id.encode(): shard.now_ms + 10_000}
    shard.now_ms += 1_000
    assert shard.store.promote_due().pending == 1
    shard.now_ms += 9_000
    assert shard.store.promote_due().expired == 1
    assert record_of(shard, job_id).outcome == "expired"


def test_a_job_that_expired_unrun_still_tells_what_it_was(shard: Shard) -> None:
    by_sweep, by_pick = shard.add(
        shard.job("a", lane="slow", delay_ms=500, expires_after_ms=100), shard.job("b", expires_after_ms=900)
    )
    submitted = shard.now_ms
    shard.now_ms += 100
    assert shard.store.promote_due().expired == 1
    shard.now_ms += 800
    assert shard.lease() == []
    for job_id, tenant, lane in ((by_sweep, "a", "slow"), (by_pick, "b", "main")):
        record = record_of(shard, job_id)
        assert (record.outcome, record.tenant, record.lane) == ("expired", tenant, lane)
        assert (record.task, record.submitted_ms) == ("shop.tasks.bill", submitted)


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_each_job_has_a_crash_budget_of_its_own(shard: Shard, budget: int) -> None:
    (job_id,) = shard.add(shard.job(max_crashes=budget))
    starts = sum(len(lose(shard, f"w{number}")) for number in range(8))
    assert (starts, record_of(shard, job_id).reason) == (budget, "worker_lost")


def test_the_newest_twenty_attempts_are_remembered(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_attempts=30))
    for _ in range(25):
        shard.store.fail([failed(shard.lease()[0], retry_ms=1)])
        shard.now_ms += 1
        shard.store.promote_due()
    record = record_of(shard, job_id)
    assert record.error_count == 25
    assert [error.attempt for error in record.errors] == list(range(6, 26))


def test_the_first_start_stays_known(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_attempts=5))
    first = shard.now_ms
    for _ in range(3):
        shard.store.fail([failed(shard.lease()[0], retry_ms=1_000)])
        shard.now_ms += 1_000
        shard.store.promote_due()
    shard.lease()
    record = record_of(shard, job_id)
    assert (record.first_leased_ms, record.leased_ms) == (first, first + 3_000)


def test_a_late_repeat_of_an_enqueue_finds_the_dead_letter(shard: Shard) -> None:
    """Although no dead letter is to be kept: inside the replay window it stays, and nothing runs a second time."""
    job = shard.job()
    shard.add(job)
    shard.store.fail([failed(shard.lease()[0])])
    shard.store.trim(result_ttl_ms=1, result_max=1, dead_ttl_ms=0, dead_max=0)
    shard.store.enqueue([job])
    assert shard.lease(1, "w2") == []


def test_a_worker_with_a_bar_in_its_name_is_named_in_the_errors(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.store.fail([failed(shard.lease(1, "a|b")[0])])
    assert record_of(shard, job_id).errors[0].worker == "a|b"


def test_an_error_that_is_no_json_can_still_be_read(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    shard.store.fail([Failed(id=job_id, attempts=job.attempts, run_ms=1, error=b"boom |x\n\xff")])
    (error,) = record_of(shard, job_id).errors
    assert error.detail == {"message": "boom |x\n\ufffd"}


def test_what_a_lost_worker_says_late_does_not_make_the_next_attempt_begin(shard: Shard) -> None:
    """It says that its attempt began; the job is another worker's by then, and lies there unbegun."""
    (job_id,) = shard.add(shard.job())
    shard.lease(1, "w1", begin=0)
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    shard.lease(1, "w2", begin=0)
    shard.store.cycle("w1", 2, want=0, begin=0, lease_ms=LEASE_MS, begun=[(job_id, 1)])
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    assert record_of(shard, job_id).crashes == 0
