"""Clock, wake-ups, waiters, idempotency keys, workers and leaders at their limits."""

from __future__ import annotations

import pytest

from queueapp.errors import Fenced, LeaseHeld, StaleCall
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed, failed

DAY_MS = 86_400_000


def disarm(shard: Shard) -> None:
    """A parked worker took every token."""
    shard.client.delete(shard.keys["wake"])


def tokens(shard: Shard) -> set[bytes]:
    return set(dict(shard.snapshot().get("wake", [])))


def test_the_clock_is_written_once_a_second_at_most(shard: Shard) -> None:
    written = []
    for _ in range(9):
        shard.add(shard.job())
        written.append(int(shard.snapshot()["marks"][b"clock"]) - START_MS)
        shard.now_ms += 250
    assert written == [0, 0, 0, 0, 1_000, 1_000, 1_000, 1_000, 2_000]


def test_a_job_that_expires_earlier_than_was_known_wakes_a_worker(shard: Shard) -> None:
    """Or nobody would look before the moment that the workers were told last."""
    shard.add(shard.job(delay_ms=60_000, expires_after_ms=50_000))
    disarm(shard)
    shard.add(shard.job(delay_ms=60_000, expires_after_ms=51_000))
    assert tokens(shard) == set()
    shard.add(shard.job(delay_ms=60_000, expires_after_ms=10_000))
    assert tokens(shard) == {b"t"}


def test_a_retry_that_expires_earlier_than_was_known_wakes_a_worker(shard: Shard) -> None:
    shard.add(shard.job(expires_after_ms=60_000, max_attempts=3))
    (job,) = shard.lease()
    shard.add(shard.job("z", delay_ms=1))
    disarm(shard)
    shard.store.fail([failed(job, retry_ms=1_000)])
    assert tokens(shard) == {b"t"}


def test_a_repeat_after_the_row_is_gone_is_no_second_job(shard: Shard) -> None:
    """The idempotency key outlives the row, and knows that it stands for this very id."""
    job = shard.job(idempotency="digest")
    shard.add(job)
    shard.store.complete([completed(shard.lease()[0])])
    shard.now_ms += 60_000
    shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=0, dead_max=0)
    assert f"run:{job.id}" not in shard.snapshot()
    (answer,) = shard.store.enqueue([job])
    assert (answer.outcome, answer.id) == ("enqueued", job.id)
    assert shard.lease(1, "w2") == []


def test_every_process_that_waits_for_a_job_hears_of_its_end(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    for waiter in ("web1", "web2", "web1", "web"):
        shard.store.await_result(job_id, waiter)
    shard.store.complete([completed(shard.lease()[0])])
    for waiter in ("web1", "web2", "web"):
        assert shard.snapshot()[f"done:{waiter}"] == [job_id.encode()]


def test_sixteen_processes_may_wait_for_one_job(shard: Shard) -> None:
    """One more takes the place of the oldest, which asks again by itself."""
    (job_id,) = shard.add(shard.job())
    for number in range(17):
        assert shard.store.await_result(job_id, f"web{number}") is False
    shard.store.complete([completed(shard.lease()[0])])
    told = {key for key in shard.snapshot() if key.startswith("done:")}
    assert told == {f"done:web{number}" for number in range(1, 17)}


def test_a_waiter_that_stopped_listening_costs_a_bounded_list(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.client.rpush(shard.keys["done:web1"], *(f"{number:022d}" for number in range(10_000)))
    shard.store.await_result(job_id, "web1")
    shard.store.complete([completed(shard.lease()[0])])
    told = shard.snapshot()["done:web1"]
    assert (len(told), told[-1]) == (10_000, job_id.encode())


def test_estimates_that_nobody_used_for_thirty_days_are_forgotten(shard: Shard) -> None:
    for days, task in ((0, "old.task"), (20, "new.task")):
        shard.now_ms = START_MS + days * DAY_MS
        shard.add(shard.job(task=task))
        shard.store.complete([completed(job) for job in shard.lease()])
    assert shard.snapshot()["est"].keys() == {b"1", b"2"}
    for days, kept in ((30, {b"1", b"2"}), (31, {b"2"})):
        shard.now_ms = START_MS + days * DAY_MS
        shard.store.trim(result_ttl_ms=DAY_MS, result_max=9, dead_ttl_ms=DAY_MS, dead_max=9)
        assert shard.snapshot()["est"].keys() == kept


def test_a_late_call_of_a_worker_that_took_its_leave_is_refused(shard: Shard) -> None:
    """It would lease for a process that is gone."""
    shard.add(shard.job(), shard.job())
    shard.store.complete([completed(job) for job in shard.lease()])
    shard.store.forget("w1")
    assert "workers" not in shard.snapshot()
    assert 0 < shard.client.pttl(shard.keys["worker:w1"]) <= 60_000
    with pytest.raises(StaleCall):
        shard.store.check_and_lease("w1", 2, want=1, begin=1, lease_ms=LEASE_MS)


def test_one_call_leases_a_hundred_jobs_at_most(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(250)))
    assert [len(shard.lease(9_000)) for _ in range(3)] == [100, 100, 50]


def test_a_term_that_was_given_up_has_ended_for_good(shard: Shard) -> None:
    """A late repeat of its acquisition must not bring it back."""
    shard.store.lead_acquire("host-a", "nonce-a", 5_000)
    shard.store.lead_release("nonce-a")
    with pytest.raises(Fenced):
        shard.store.lead_acquire("host-a", "nonce-a", 5_000)


def test_a_lease_of_leadership_longer_than_the_longest_still_excludes(shard: Shard) -> None:
    assert shard.store.lead_acquire("host-a", "nonce-a", 700_000).ttl_ms == 600_000
    with pytest.raises(LeaseHeld):
        shard.store.lead_acquire("host-b", "nonce-b", 700_000)
