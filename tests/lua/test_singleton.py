"""Singletons: held from acceptance to the end, however it comes, and given back by nobody but their holder."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.states import Outcome, State
from queueapp.store.configuration import Rate, ScopeLimits
from queueapp.store.records import KeyUse, NewJob, SingletonMode, SingletonUse
from tests.lua.harness import LEASE_MS, Shard, completed, failed


def single(shard: Shard, mode: SingletonMode = "skip", name: str = "nightly", **options: Any) -> NewJob:
    own = KeyUse(digest=name, text=f"singleton {name}", limit=1, pattern="singleton")
    keys = () if mode == "skip" else (own,)
    return shard.job(singleton=SingletonUse(digest=name, mode=mode), keys=keys, **options)


def send(shard: Shard, job: NewJob) -> tuple[str, str]:
    [answer] = shard.store.enqueue([job])
    return answer.outcome, answer.id


def begin(shard: Shard, mode: SingletonMode = "skip", **options: Any) -> NewJob:
    """The first job of a singleton, accepted."""
    job = single(shard, mode, **options)
    assert send(shard, job) == ("enqueued", job.id)
    return job


def is_free(shard: Shard) -> bool:
    return shard.client.exists(shard.keys["single:acme|nightly"]) == 0


@pytest.mark.parametrize("mode", ["skip", "next"])
def test_while_one_waits_another_is_skipped(shard: Shard, mode: SingletonMode) -> None:
    first = begin(shard, mode)
    before = shard.snapshot()
    assert send(shard, single(shard, mode)) == ("skipped", first.id)
    assert shard.snapshot() == before
    assert send(shard, single(shard, mode, name="other"))[0] == "enqueued"
    assert send(shard, single(shard, mode, tenant="other"))[0] == "enqueued"


def test_while_one_runs_another_is_skipped(shard: Shard) -> None:
    first = begin(shard)
    shard.lease()
    assert send(shard, single(shard)) == ("skipped", first.id)


def end_by(shard: Shard, how: str, job_id: str) -> None:
    if how == "cancelled":
        shard.store.cancel([job_id])
        return
    if how == "expired":
        shard.now_ms += 60_000
        shard.store.promote_due()
        return
    if how == "moved":
        shard.store.move_to_dlq([job_id], "why")
        return
    if how == "expired at the pick":
        shard.now_ms += 60_000
        shard.lease()
        return
    [job] = shard.lease()
    if how == "completed":
        shard.store.complete([completed(job)])
    if how == "completed by cycle":
        shard.store.cycle("w1", 99, want=0, begin=0, lease_ms=LEASE_MS, finished=[completed(job)])
    if how == "dead":
        shard.store.fail([failed(job)])
    if how == "worker lost":
        shard.now_ms += LEASE_MS + 1
        shard.store.partition_recover()


ENDS = [
    "cancelled",
    "expired",
    "expired at the pick",
    "moved",
    "completed",
    "completed by cycle",
    "dead",
    "worker lost",
]


@pytest.mark.parametrize("mode", ["skip", "replace", "next"])
@pytest.mark.parametrize("how", ENDS)
def test_whatever_ends_the_job_gives_it_back(shard: Shard, how: str, mode: SingletonMode) -> None:
    job = begin(shard, mode, expires_after_ms=60_000, max_crashes=1)
    end_by(shard, how, job.id)
    assert is_free(shard)
    assert "once" not in shard.snapshot()
    assert send(shard, single(shard, mode))[0] == "enqueued"


def test_retries_and_recovery_hold_it(shard: Shard) -> None:
    first = begin(shard, max_attempts=3)
    [job] = shard.lease()
    shard.store.fail([failed(job, retry_ms=1_000)])
    assert send(shard, single(shard)) == ("skipped", first.id)
    shard.now_ms += 1_000
    shard.store.promote_due()
    shard.lease()
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    assert send(shard, single(shard)) == ("skipped", first.id)
    [job] = shard.lease()
    shard.store.complete([completed(job)])
    assert is_free(shard)


def test_c085_a_dead_letter_holds_nothing(shard: Shard) -> None:
    """C085: A job that fails for good keeps its lock, so the periodic job runs once and never again."""
    for _ in range(5):
        begin(shard)
        [job] = shard.lease()
        shard.store.fail([failed(job)])
        shard.now_ms += 5_000
    assert shard.reads.overview().dead == 5


def test_c090_deleting_a_dead_letter_frees_nothing_that_a_newer_job_holds(shard: Shard) -> None:
    """C090: Deleting an old failed job removes the dedup marker that now belongs to a newer delayed job."""
    first = begin(shard)
    [job] = shard.lease()
    shard.store.fail([failed(job)])
    second = begin(shard, delay_ms=60_000)
    assert shard.store.discard([first.id]) == ["discarded"]
    assert send(shard, single(shard)) == ("skipped", second.id)


def test_a_redrive_takes_it_again_or_is_skipped(shard: Shard) -> None:
    first = begin(shard)
    [job] = shard.lease()
    shard.store.fail([failed(job)])
    second = begin(shard)
    before = shard.snapshot()
    assert shard.store.retry_from_dlq([first.id]) == ["skipped"]
    assert shard.snapshot() == before
    shard.store.cancel([second.id])
    assert shard.store.retry_from_dlq([first.id]) == ["retried"]
    assert send(shard, single(shard)) == ("skipped", first.id)
    [job] = shard.lease()
    shard.store.complete([completed(job)])
    assert is_free(shard)


def test_of_two_dead_letters_of_one_singleton_one_is_redriven(shard: Shard) -> None:
    ids = []
    for _ in range(2):
        ids.append(begin(shard).id)
        [job] = shard.lease()
        shard.store.fail([failed(job)])
    assert shard.store.retry_from_dlq(ids) == ["retried", "skipped"]


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_replace_ends_the_one_that_waits(shard: Shard, delay_ms: int) -> None:
    first = begin(shard, "replace", delay_ms=delay_ms)
    second = single(shard, "replace")
    assert send(shard, second) == ("enqueued", second.id)
    gone = shard.reads.job(first.id)
    assert gone is not None
    assert (gone.state, gone.outcome) == (State.ENDED, Outcome.REPLACED)
    assert [job.id for job in shard.lease(5)] == [second.id]
    assert send(shard, first) == ("enqueued", first.id)  # a repeat of what was accepted then


def test_replace_of_a_parked_one(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=1_000))])
    shard.add(shard.job())
    first = single(shard, "replace", parks=True)
    assert send(shard, first)[0] == "parked"
    second = single(shard, "replace", parks=True)
    assert send(shard, second)[0] == "parked"
    assert "bl:acme" in shard.snapshot()
    assert shard.client.zrange(shard.keys["backlog"], 0, -1) == [second.id.encode()]


def test_a_job_of_replace_comes_next_after_one_that_runs(shard: Shard) -> None:
    begin(shard, "replace")
    [running] = shard.lease()
    second, third = single(shard, "replace"), single(shard, "replace")
    assert send(shard, second) == ("enqueued", second.id)
    assert shard.lease(5, worker="w2") == []
    assert send(shard, third) == ("enqueued", third.id)
    shard.store.complete([completed(running)])
    assert [job.id for job in shard.lease(5, worker="w2")] == [third.id]


def test_replace_tells_the_one_that_runs_to_stop_once(shard: Shard) -> None:
    begin(shard, "replace")
    shard.store.register("w1", {}, 60_000)
    [running] = shard.lease()
    second, third = single(shard, "replace"), single(shard, "replace")
    send(shard, second)
    told_ms = shard.now_ms
    told = shard.reads.job(running.id)
    assert told is not None
    assert (told.cancelling, told.cancelling_ms) == (True, told_ms)
    assert shard.client.hget(shard.keys["worker:w1"], "stop") == running.id.encode()
    shard.now_ms += 10
    send(shard, third)
    assert shard.client.hget(shard.keys.run(running.id), "cx") == str(told_ms).encode()
    before = shard.snapshot()
    send(shard, third)
    assert shard.snapshot() == before, "a repeat tells nobody anew"
    assert shard.store.complete([completed(running)]) == ["cancelled"]
    assert [job.id for job in shard.lease(5, worker="w2")] == [third.id]
    assert shard.store.verify() == []


@pytest.mark.parametrize("mode", ["skip", "next"])
def test_other_modes_tell_nobody_to_stop(shard: Shard, mode: SingletonMode) -> None:
    begin(shard, "next")
    [running] = shard.lease()
    send(shard, single(shard, mode))
    left = shard.reads.job(running.id)
    assert left is not None
    assert not left.cancelling


def test_a_replacement_that_is_not_to_be_tells_nobody_to_stop(shard: Shard) -> None:
    """It is refused above a rate; and behind one that lets nobody wait it is skipped."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=1_000))])
    begin(shard, "replace")
    [running] = shard.lease()
    assert send(shard, single(shard, "replace"))[0] == "throttled"
    shard.now_ms += 1_000
    first = begin(shard, "skip", name="other")
    [other] = shard.lease()
    shard.now_ms += 1_000
    assert send(shard, single(shard, "replace", name="other")) == ("skipped", first.id)
    for job in (running, other):
        left = shard.reads.job(job.id)
        assert left is not None
        assert not left.cancelling


@pytest.mark.dirty_store
@pytest.mark.parametrize("mode", ["skip", "replace", "next"])
@pytest.mark.parametrize("how", ["gone", "nonsense", "wrong type", "no hash"])
def test_who_cannot_be_read_holds_nothing(shard: Shard, how: str, mode: SingletonMode) -> None:
    """The next job is accepted whole: it stands in its queue, and a repeat finds it there."""
    bad = begin(shard, "skip")
    shard.store.await_result(bad.id, "web1")
    key = shard.keys.job(bad.id)
    if how == "no hash":
        shard.client.setrange(key, 0, "h")
    else:
        shard.client.delete(key)
    if how == "nonsense":
        shard.client.set(key, "somebody else's")
    elif how == "wrong type":
        shard.client.lpush(key, "x")
    job = begin(shard, mode)
    assert send(shard, job) == ("enqueued", job.id)
    assert shard.snapshot()["single:acme|nightly"] == job.id.encode()
    assert shard.snapshot()["once"].keys() == {job.id.encode()}
    assert shard.snapshot()["done:web1"] == [bad.id.encode()]
    [running] = shard.lease(5)
    assert running.id == job.id
    assert shard.snapshot()["quarantine"] == {bad.id.encode()}
    shard.store.complete([completed(running)])
    assert is_free(shard)
    assert all(bad.id in problem for problem in shard.store.verify())


@pytest.mark.dirty_store
def test_one_that_runs_holds_it_whatever_became_of_its_row(shard: Shard) -> None:
    begin(shard, "next")
    [running] = shard.lease()
    shard.client.delete(shard.keys.job(running.id))
    assert send(shard, single(shard, "next")) == ("skipped", running.id)
    shard.store.complete([completed(running)])
    assert is_free(shard)


def test_next_keeps_one_that_runs_and_one_that_waits(shard: Shard) -> None:
    begin(shard, "next")
    [running] = shard.lease()
    second = single(shard, "next")
    assert send(shard, second) == ("enqueued", second.id)
    assert send(shard, single(shard, "next")) == ("skipped", second.id)
    assert shard.lease(5, worker="w2") == []
    shard.store.complete([completed(running)])
    [running] = shard.lease(5, worker="w2")
    assert running.id == second.id
    third = single(shard, "next")
    assert send(shard, third) == ("enqueued", third.id)


def test_behind_one_that_lets_nobody_wait_another_is_skipped(shard: Shard) -> None:
    first = begin(shard, "skip")
    shard.lease()
    assert send(shard, single(shard, "replace")) == ("skipped", first.id)
    assert send(shard, single(shard, "next")) == ("skipped", first.id)


@pytest.mark.parametrize(
    ("mode", "outcomes", "ran"),
    [
        ("skip", ["enqueued", "skipped", "skipped"], [0]),
        ("next", ["enqueued", "skipped", "skipped"], [0]),
        ("replace", ["enqueued", "enqueued", "enqueued"], [2]),
    ],
)
def test_jobs_of_one_call_know_of_each_other(
    shard: Shard, mode: SingletonMode, outcomes: list[str], ran: list[int]
) -> None:
    jobs = [single(shard, mode) for _ in range(3)]
    assert [answer.outcome for answer in shard.store.enqueue(jobs)] == outcomes
    assert [job.id for job in shard.lease(5)] == [jobs[number].id for number in ran]


def test_a_replacement_that_is_refused_replaces_nothing(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=60_000))])
    begin(shard, "replace")
    before = shard.snapshot()
    assert send(shard, single(shard, "replace"))[0] == "throttled"
    assert shard.snapshot() == before


def test_a_replacement_needs_no_room_of_its_own(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", backlog_limit=1)])
    begin(shard, "replace")
    assert send(shard, single(shard, "replace"))[0] == "enqueued"
    assert send(shard, shard.job())[0] == "backlog_full"
