"""complete, fail, extend_lease, partition_requeue and cycle: only the attempt that holds the lease is heard, once."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.states import State
from queueapp.store.configuration import ScopeLimits
from queueapp.store.records import Completed, Returned
from tests.lua.harness import LEASE_MS, Shard, completed, failed


def test_complete_keeps_the_result_and_drops_the_payload(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    shard.now_ms += 40
    assert shard.store.complete([completed(job, run_ms=33, result=b"[1]")]) == ["done"]
    record = shard.reads.job(job_id)
    assert record is not None
    assert (record.state, record.outcome, record.result, record.payload) == (State.ENDED, "completed", b"[1]", None)
    assert (record.task, record.tenant, record.worker) == ("shop.tasks.bill", "acme", "w1")
    assert record.ended_ms == shard.now_ms
    assert {"active", "held:w1", f"job:{job_id}"} & shard.snapshot().keys() == set()


def test_a_repeat_is_done_and_changes_nothing(shard: Shard) -> None:
    shard.add(shard.job(), shard.job())
    one, two = shard.lease(2)
    shard.store.complete([completed(one)])
    shard.store.fail([failed(two, retry_ms=50)])
    before = shard.snapshot()
    assert shard.store.complete([completed(one)]) == ["done"]
    assert shard.store.fail([failed(two, retry_ms=50)]) == ["done"]
    assert shard.snapshot() == before


def test_an_old_attempt_is_stale_for_every_verb(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_attempts=5))
    (old,) = shard.lease()
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    (new,) = shard.lease(worker="w2")
    assert new.attempts == 2
    before = shard.snapshot()
    assert shard.store.complete([Completed(id=job_id, attempts=3, run_ms=1)]) == ["stale"]
    assert shard.store.extend_lease([(job_id, 1)], LEASE_MS) == [job_id]
    assert shard.store.save(job_id, 1, {"progress": b"1"}) == "stale"
    assert shard.snapshot() == before
    assert shard.store.complete([completed(old)]) == ["stale"]
    assert shard.store.fail([failed(old)]) == ["stale"]
    assert shard.store.partition_requeue([Returned(id=job_id, attempts=1)]) == ["stale"]
    assert shard.snapshot() == before
    assert shard.store.complete([completed(new)]) == ["done"]


def test_a_job_that_is_gone_is_gone(shard: Shard) -> None:
    assert shard.store.complete([Completed(id="x" * 22, attempts=1, run_ms=1)]) == ["gone"]
    assert shard.snapshot().keys() <= {"marks"}


def test_errors_are_counted_against_max_attempts(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(max_attempts=3))
    words, spans = [], []
    for _ in range(3):
        (job,) = shard.lease()
        spans.append((shard.now_ms, shard.now_ms + 40))
        shard.now_ms += 40
        words += shard.store.fail([failed(job, retry_ms=1_000)])
        shard.now_ms += 1_000
        shard.store.promote_due()
    assert words == ["retry", "retry", "dead"]
    record = shard.reads.job(job_id)
    assert record is not None
    assert (record.state, record.reason, record.attempts, record.error_count) == (State.DEAD, "error", 3, 3)
    assert [error.attempt for error in record.errors] == [1, 2, 3]
    assert [(error.started_ms, error.at_ms) for error in record.errors] == spans, "each attempt with its two moments"
    assert record.payload == b'{"a":[1]}', "a dead letter keeps its arguments"


def test_no_retry_asked_is_dead_at_once(shard: Shard) -> None:
    shard.add(shard.job(max_attempts=9))
    (job,) = shard.lease()
    assert shard.store.fail([failed(job)]) == ["dead"]


def test_giving_back_counts_nothing_and_keeps_the_place_in_line(shard: Shard) -> None:
    first, second = shard.add(shard.job(), shard.job())
    (job,) = shard.lease()
    assert shard.store.partition_requeue([Returned(id=first, attempts=job.attempts)]) == ["done"]
    again = shard.lease(2)
    assert [job.id for job in again] == [first, second]
    assert (again[0].attempts, again[0].errors, again[0].crashes) == (2, 0, 0)


def test_an_unknown_task_waits_with_a_delay_and_dies_after_its_grace(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    give: dict[str, Any] = {"delay_ms": 60_000, "unknown_task": True, "grace_ms": 900_000}
    assert shard.store.partition_requeue([Returned(id=job_id, attempts=1, **give)]) == ["done"]
    shard.now_ms += 900_000
    shard.store.promote_due()
    (job,) = shard.lease()
    assert shard.store.partition_requeue([Returned(id=job_id, attempts=job.attempts, **give)]) == ["dead"]
    record = shard.reads.job(job_id)
    assert record is not None
    assert (record.reason, record.error_count, record.crashes) == ("unknown_task", 0, 0)
    assert shard.store.retry_from_dlq([job_id]) == ["retried"]


def test_heartbeats_move_deadlines_and_name_what_was_lost(shard: Shard) -> None:
    shard.add(shard.job(), shard.job())
    kept, ended = shard.lease(2)
    shard.store.complete([completed(ended)])
    shard.now_ms += 10_000
    assert shard.store.extend_lease([(kept.id, 1), (ended.id, 1)], LEASE_MS) == [ended.id]
    assert shard.snapshot()["active"] == [(kept.id.encode(), shard.now_ms + LEASE_MS)]


def test_an_estimate_is_settled_and_a_declared_cost_is_final(shard: Shard) -> None:
    shard.add(
        shard.job("estimated"), shard.job("estimated"), shard.job("declared", cost=10), shard.job("declared", cost=10)
    )
    jobs = {job.tenant: job for job in shard.lease(2)}
    assert dict(shard.snapshot()["walk"]) == {b"declared": 10.0, b"estimated": 50.0}
    shard.now_ms += 80
    shard.store.complete([completed(jobs["estimated"], run_ms=80), completed(jobs["declared"], run_ms=80)])
    assert dict(shard.snapshot()["walk"]) == {b"declared": 10.0, b"estimated": 80.0}
    shard.lease(1)


def test_a_long_run_is_charged_as_it_goes(shard: Shard) -> None:
    shard.add(shard.job("slow"), shard.job("slow"))
    (job,) = shard.lease()
    shard.now_ms += 20_000
    shard.store.extend_lease([(job.id, 1)], LEASE_MS)
    assert dict(shard.snapshot()["walk"]) == {b"slow": 20_000.0}
    shard.now_ms += 1_000
    shard.store.complete([completed(job, run_ms=21_000)])
    assert dict(shard.snapshot()["walk"]) == {b"slow": 21_000.0}


def test_work_given_back_is_refunded_when_its_charge_was_an_estimate(shard: Shard) -> None:
    shard.add(shard.job("a"), shard.job("a"))
    (job,) = shard.lease()
    shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
    assert dict(shard.snapshot()["walk"]) == {b"a": 0.0}


def test_the_run_time_of_a_task_is_learnt_by_an_eighth(shard: Shard) -> None:
    for run_ms, known in ((100, b"1600"), (180, b"1760"), (110, b"1760")):
        shard.add(shard.job())
        (job,) = shard.lease()
        shard.now_ms += 1_000
        shard.store.complete([completed(job, run_ms=run_ms)])
        assert shard.snapshot()["est"][b"1"].split(b"|")[0] == known


def test_cycle_does_all_parts_in_one_call(shard: Shard) -> None:
    shard.add(*(shard.job(max_attempts=2) for _ in range(4)))
    one, two, three = shard.lease(3, begin=0)
    shard.now_ms += 100
    answer = shard.store.cycle(
        "w1",
        2,
        want=5,
        begin=5,
        lease_ms=LEASE_MS,
        finished=[completed(one), failed(two, retry_ms=0)],
        extend=[(three.id, 1), (one.id, 1)],
        begun=[(three.id, 1)],
    )
    assert list(answer.finished) == ["done", "retry"]
    assert list(answer.lost) == [one.id]
    assert len(answer.jobs) == 1
    assert shard.snapshot()[f"run:{three.id}"][b"b"] == b"1"
    assert shard.store.verify() == []
    shard.now_ms += 1
    assert [job.id for job in shard.store.cycle("w1", 3, want=5, begin=5, lease_ms=LEASE_MS).jobs] == [two.id]


def test_cycle_promotes_and_recovers_a_bounded_share_without_any_scheduler(shard: Shard) -> None:
    """C022: waiting jobs live only in the store; delays and recovery go on without a scheduler."""
    shard.add(*(shard.job(delay_ms=1_000) for _ in range(20)), shard.job("lost"))
    shard.lease(1, "dead-worker")
    shard.now_ms += LEASE_MS + 1
    leased = [
        job.id for seq in (1, 2) for job in shard.store.cycle("w9", seq, want=50, begin=50, lease_ms=LEASE_MS).jobs
    ]
    assert len(set(leased)) == 21


def test_a_finish_and_the_sweep_in_one_call_count_once(shard: Shard) -> None:
    """C006: a job ended in this very call must not be recovered by the share that follows."""
    shard.add(shard.job())
    (job,) = shard.lease()
    shard.now_ms += LEASE_MS + 1
    answer = shard.store.cycle("w1", 2, want=0, begin=0, lease_ms=LEASE_MS, finished=[completed(job)])
    assert list(answer.finished) == ["done"]
    assert shard.snapshot()["stats"] == {b"enqueued": b"1", b"leased": b"1", b"completed": b"1"}


def test_saved_progress_is_kept_with_the_row(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    (job,) = shard.lease()
    assert shard.store.save(job_id, job.attempts, {"progress": b'{"done":1}'}) == "done"
    shard.store.complete([completed(job)])
    record = shard.reads.job(job_id)
    assert record is not None
    assert record.data == {"progress": b'{"done":1}'}


def test_a_waiter_hears_of_the_end(shard: Shard) -> None:
    one, two = shard.add(shard.job(), shard.job())
    assert shard.store.await_result(one, "web1") is False
    assert shard.store.await_result(two, "web1") is False
    first, second = shard.lease(2)
    shard.store.complete([completed(first)])
    shard.store.fail([failed(second)])
    assert shard.snapshot()["done:web1"] == [one.encode(), two.encode()]
    assert shard.store.await_result(one, "web1") is True
    assert shard.store.await_result("nobody", "web1") is True


@pytest.mark.parametrize("ending", ["complete", "fail", "retry", "requeue", "recover", "cycle"])
def test_c074_every_ending_frees_its_slots(shard: Shard, ending: str) -> None:
    """C074: slots freed on some paths and skipped on others block a tenant for good."""
    scopes = [ScopeLimits(tenant="acme", max_in_flight=2), ScopeLimits(tenant="acme", lane="main", max_in_flight=2)]
    shard.store.configure(1, scopes=scopes)
    shard.add(*(shard.job(max_attempts=9) for _ in range(3)))
    for job in shard.lease(2):
        if ending == "complete":
            shard.store.complete([completed(job)])
        elif ending in ("fail", "retry"):
            shard.store.fail([failed(job, retry_ms=5 if ending == "retry" else None)])
        elif ending == "requeue":
            shard.store.partition_requeue([Returned(id=job.id, attempts=job.attempts)])
        elif ending == "cycle":
            shard.seqs["w1"] += 1
            shard.store.cycle("w1", shard.seqs["w1"], want=0, begin=0, lease_ms=LEASE_MS, finished=[completed(job)])
    if ending == "recover":
        shard.now_ms += LEASE_MS + 1
        shard.store.partition_recover()
    assert not {key for key in shard.snapshot() if key.startswith("slots:")}
    assert len(shard.lease(3)) == (2 if ending in ("requeue", "recover") else 1)
