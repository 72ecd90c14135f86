"""cancel: a waiting job has ended at once, in whatever state it waits; a running one is told, and ends with its lease.

Whatever ends that lease, the job ends as cancelled, once; until then its worker has it, with slots, keys and singleton.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from queueapp.states import Outcome, State
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.records import KeyUse, LeasedJob, Returned, SingletonUse
from queueapp.store.views import JobRecord
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import keyed


def record(shard: Shard, job_id: str) -> JobRecord:
    found = shard.reads.job(job_id)
    assert found is not None
    return found


def outcome(shard: Shard, job_id: str) -> tuple[State, Outcome | None]:
    found = record(shard, job_id)
    return found.state, found.outcome


CANCELLED = (State.ENDED, Outcome.CANCELLED)


def cycle(shard: Shard, worker: str = "w1", **said: Any) -> list[str]:
    """The jobs that an answer to this worker names as told to stop."""
    shard.seqs[worker] = shard.seqs.get(worker, 0) + 1
    answer = shard.store.cycle(worker, shard.seqs[worker], want=0, begin=0, lease_ms=LEASE_MS, **said)
    return list(answer.cancelled)


# -- a job that waits ------------------------------------------------------------------------------------------------


def pending(shard: Shard) -> str:
    return shard.add(shard.job())[0]


def scheduled(shard: Shard) -> str:
    return shard.add(shard.job(delay_ms=1_000))[0]


def retrying(shard: Shard) -> str:
    (job_id,) = shard.add(shard.job(max_attempts=3))
    assert shard.store.fail([failed(shard.lease()[0], retry_ms=500)]) == ["retry"]
    return job_id


def parked(shard: Shard) -> str:
    shard.store.configure(7, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=1_000))])
    first, second = shard.store.enqueue([shard.job(parks=True) for _ in range(2)])
    assert second.outcome == "parked"
    shard.store.cancel([first.id])
    return second.id


def of_ingress(shard: Shard) -> str:
    shard.schedule()
    return shard.add(shard.job())[0]


def ready(shard: Shard) -> str:
    term = shard.schedule()
    (job_id,) = shard.add(shard.job())
    assert shard.dispatch(term).jobs == 1
    return job_id


def blocked(shard: Shard) -> str:
    """In a sub-lane that stepped aside, because its key is full; the holder ends before the test looks."""
    first, second = shard.add(keyed(shard, "k"), keyed(shard, "k"))
    (holder,) = shard.lease(2)
    assert (holder.id, "parked" in shard.snapshot()) == (first, True)
    shard.store.complete([completed(holder)])
    return second


def still_blocked(shard: Shard) -> str:
    _, second = shard.add(keyed(shard, "k"), keyed(shard, "k"))
    shard.lease(2)
    assert "parked" in shard.snapshot()
    return second


def of_the_old_policy(shard: Shard) -> str:
    """Where it stood when the pool's policy changed: nothing has moved over yet."""
    (job_id,) = shard.add(shard.job())
    shard.store.configure(9, pool=PoolConf(policy="fifo"))
    assert shard.reads.queues.generations().earlier is not None
    return job_id


def with_a_key_of_the_old_policy(shard: Shard) -> str:
    job_id = still_blocked(shard)
    shard.store.configure(9, pool=PoolConf(policy="fifo"))
    assert shard.reads.queues.generations().earlier is not None
    return job_id


WAYS_TO_WAIT: Sequence[Callable[[Shard], str]] = (
    pending,
    scheduled,
    retrying,
    parked,
    of_ingress,
    ready,
    blocked,
    still_blocked,
    of_the_old_policy,
    with_a_key_of_the_old_policy,
)


@pytest.mark.parametrize("waits", WAYS_TO_WAIT, ids=lambda way: way.__name__)
def test_c120_a_job_that_waits_has_ended_at_once_and_never_starts(shard: Shard, waits: Callable[[Shard], str]) -> None:
    """C120: cancellation lives in worker memory. Right: it is a state of the store."""
    job_id = waits(shard)
    shard.store.await_result(job_id, "web")
    assert shard.store.cancel([job_id]) == ["cancelled"]
    assert outcome(shard, job_id) == CANCELLED
    assert shard.client.lrange(shard.keys["done:web"], 0, -1) == [job_id.encode()]
    assert shard.store.cancel([job_id]) == ["already"]
    shard.now_ms += 60_000
    shard.store.promote_due()
    shard.store.backlog_promote(1)
    while shard.store.rerank().more:
        pass
    if waits in (of_ingress, ready):
        shard.dispatch(shard.term())
    assert job_id not in {leased.id for leased in shard.lease(9, worker="late")}
    assert outcome(shard, job_id) == CANCELLED


# -- a job that runs -------------------------------------------------------------------------------------------------


def running(shard: Shard, worker: str = "w1", **options: Any) -> LeasedJob:
    (job_id,) = shard.add(shard.job(**options))
    shard.store.register(worker, {}, 60_000)
    (job,) = shard.lease(worker=worker)
    assert job.id == job_id
    return job


def returned(job: LeasedJob, **options: Any) -> Returned:
    return Returned(id=job.id, attempts=job.attempts, **options)


def lost(shard: Shard) -> None:
    shard.now_ms += LEASE_MS


def recovered(shard: Shard) -> list[str]:
    lost(shard)
    moved = shard.store.partition_recover()
    assert (moved.pending, moved.dead) == (0, 0)
    return ["cancelled"] * moved.cancelled


def recovered_by_a_worker(shard: Shard) -> list[str]:
    lost(shard)
    cycle(shard, "other")
    return ["cancelled"]


ENDS: dict[str, Callable[[Shard, LeasedJob], list[str]]] = {
    "completed": lambda shard, job: list(shard.store.complete([completed(job, result=b"1")])),
    "failed": lambda shard, job: list(shard.store.fail([failed(job)])),
    "failed, to be tried again": lambda shard, job: list(shard.store.fail([failed(job, retry_ms=10)])),
    "given back": lambda shard, job: list(shard.store.partition_requeue([returned(job)])),
    "given back for later": lambda shard, job: list(shard.store.partition_requeue([returned(job, delay_ms=50)])),
    "unknown task": lambda shard, job: list(
        shard.store.partition_requeue([returned(job, delay_ms=50, unknown_task=True, grace_ms=0)])
    ),
    "lease over": lambda shard, job: recovered(shard),
    "lease over, met by a worker": lambda shard, job: recovered_by_a_worker(shard),
}
AGAIN = {"lease over": "stale", "lease over, met by a worker": "stale"}
"""What the worker's own word is answered after the job has ended so; otherwise it is a repeat."""


@pytest.mark.parametrize("max_crashes", [1, 3])
@pytest.mark.parametrize("how", ENDS)
def test_whatever_ends_its_lease_a_job_that_was_told_to_stop_ends_as_cancelled_once(
    shard: Shard, how: str, max_crashes: int
) -> None:
    shard.store.configure(3, scopes=[ScopeLimits(tenant="acme", max_in_flight=1)])
    own = KeyUse(digest="s", text="s", limit=1, pattern="s")
    single = SingletonUse(digest="s", mode="next")
    job = running(shard, keys=(own,), singleton=single, max_attempts=5, max_crashes=max_crashes)
    shard.store.save(job.id, 1, {"checkpoint": b"1"})
    shard.store.await_result(job.id, "web")
    (later,) = shard.add(shard.job(keys=(own,)))
    assert shard.store.cancel([job.id, job.id]) == ["stopping", "stopping"]
    first_told_ms = shard.now_ms
    shard.now_ms += 5
    assert shard.store.cancel([job.id]) == ["stopping"]
    told = record(shard, job.id)
    assert (told.state, told.cancelling, told.cancelling_ms) == (State.ACTIVE, True, first_told_ms)
    assert shard.client.zcard(shard.keys["slots:t:acme"]) == 1, "its body still runs"
    assert shard.lease(worker="other") == []
    assert ENDS[how](shard, job) == ["cancelled"]
    ended = record(shard, job.id)
    assert ((ended.state, ended.outcome), ended.cancelling, ended.result) == (CANCELLED, False, None)
    assert shard.client.exists(shard.keys["single:acme|s"]) == 0
    assert shard.client.lrange(shard.keys["done:web"], 0, -1) == [job.id.encode()]
    assert [leased.id for leased in shard.lease(worker="other")] == [later], "slot and key are free"
    stats = shard.snapshot()["stats"]
    assert stats[b"cancelled"] == b"1"
    assert not {b"completed", b"dead", b"retried", b"returned"} & stats.keys()
    before = shard.snapshot()
    again = AGAIN.get(how, "done")
    assert shard.store.complete([completed(job)]) == [again]
    assert shard.store.partition_requeue([returned(job)]) == [again]
    assert shard.store.cancel([job.id]) == ["already"]
    assert shard.store.retry_from_dlq([job.id]) == ["already"]
    assert shard.snapshot() == before


def test_who_is_first_wins(shard: Shard) -> None:
    job = running(shard)
    assert shard.store.complete([completed(job, result=b"1")]) == ["done"]
    assert shard.store.cancel([job.id]) == ["already"]
    assert outcome(shard, job.id) == (State.ENDED, Outcome.COMPLETED)


def test_a_job_that_was_retried_can_be_cancelled_in_its_next_attempt(shard: Shard) -> None:
    job = running(shard, max_attempts=2)
    shard.store.fail([failed(job, retry_ms=0)])
    shard.store.promote_due()
    (again,) = shard.lease()
    shard.store.cancel([job.id])
    assert shard.store.complete([completed(job)]) == ["done"], "the attempt before ended before"
    assert shard.store.complete([completed(again)]) == ["cancelled"]
    assert outcome(shard, job.id) == CANCELLED


@pytest.mark.parametrize("fails", [False, True])
def test_its_run_is_charged_and_what_it_raised_is_kept(shard: Shard, fails: bool) -> None:
    job = running(shard)
    shard.store.cancel([job.id])
    shard.now_ms += 500
    finish = failed if fails else completed
    assert shard.store.cycle("w1", 9, want=0, begin=0, lease_ms=LEASE_MS, finished=[finish(job, cost=7)]).finished == [
        "cancelled"
    ]
    ended = record(shard, job.id)
    assert ended.charged == 7
    assert [error.kind for error in ended.errors] == (["error"] if fails else [])
    assert ended.error_count == 0, "no budget plays a part"


def test_a_run_that_was_cut_short_teaches_nothing_about_its_task(shard: Shard) -> None:
    first = running(shard)
    shard.now_ms += 900
    shard.store.complete([completed(first, run_ms=800)])
    learnt = dict(shard.snapshot()["est"])
    second = running(shard)
    shard.store.cancel([second.id])
    shard.now_ms += 900
    shard.store.complete([completed(second, run_ms=1)])
    assert shard.snapshot()["est"] == learnt


# -- how its worker hears of it --------------------------------------------------------------------------------------


def test_every_answer_to_its_worker_names_it_until_it_has_ended(shard: Shard) -> None:
    one, two = running(shard), running(shard)
    other = running(shard, worker="w2")
    assert cycle(shard) == []
    shard.store.cancel([one.id])
    shard.store.cancel([two.id, other.id])
    for _ in range(2):
        assert cycle(shard) == [one.id, two.id]
    again = shard.store.cycle("w1", shard.seqs["w1"], want=0, begin=0, lease_ms=LEASE_MS)
    assert list(again.cancelled) == [one.id, two.id], "a repeat, too"
    assert cycle(shard, finished=[completed(one)]) == [one.id, two.id], "as it was when the call came"
    assert cycle(shard) == [two.id]
    shard.store.partition_requeue([returned(two)])
    assert cycle(shard) == []
    assert cycle(shard, "w2") == [other.id]
    assert b"stop" not in shard.snapshot()["worker:w1"]


def test_a_worker_that_waits_for_work_is_woken_and_no_other(shard: Shard) -> None:
    job = running(shard)
    running(shard, worker="w2")
    assert cycle(shard, "w2") == []
    shard.store.cancel([job.id])
    assert shard.client.zrange(shard.keys["stop:w1"], 0, -1) == [b"c"]
    assert 0 < shard.client.pttl(shard.keys["stop:w1"]) <= 60_000
    assert not shard.client.exists(shard.keys["stop:w2"])


def test_a_worker_that_had_been_forgotten_hears_of_it_when_it_extends_the_lease(shard: Shard) -> None:
    job = running(shard)
    shard.client.delete(shard.keys["worker:w1"])  # it was silent for longer than its registration lasts
    assert shard.store.cancel([job.id]) == ["stopping"]
    assert not shard.client.exists(shard.keys["stop:w1"], shard.keys["worker:w1"])
    assert cycle(shard) == []
    assert cycle(shard, extend=[(job.id, 1)]) == [job.id]
    assert record(shard, job.id).state is State.ACTIVE, "the lease is extended as before"


def test_what_was_leased_by_a_call_whose_reply_was_lost_is_named_in_the_repeat(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.store.register("w1", {}, 60_000)
    shard.store.cycle("w1", 1, want=1, begin=0, lease_ms=LEASE_MS)
    shard.store.cancel([job_id])
    answer = shard.store.cycle("w1", 1, want=1, begin=0, lease_ms=LEASE_MS)
    assert [job.id for job in answer.jobs] == list(answer.cancelled) == [job_id]


def test_verify_sees_a_request_that_went_astray(shard: Shard) -> None:
    job = running(shard)
    shard.store.cancel([job.id])
    shard.client.hset(shard.keys["worker:w1"], "stop", "x" * 22)
    assert shard.store.verify() == [f"worker:w1 names {'x' * 22}, which it shall not stop"]
    shard.client.hdel(shard.keys["worker:w1"], "stop")
    shard.store.complete([completed(job)])
    shard.client.hset(shard.keys.run(job.id), "o", "completed")
    assert shard.store.verify() == [f"{job.id} was told to stop and is in state e"]
    shard.client.hset(shard.keys.run(job.id), "o", "cancelled")
    shard.client.set(shard.keys[f"checkpoint:{job.id}"], "1")
    assert shard.store.verify() == [f"{job.id} has ended but keeps its checkpoint"]
    shard.client.delete(shard.keys[f"checkpoint:{job.id}"])
