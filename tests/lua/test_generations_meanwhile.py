"""A change of policy while work goes on: who leases, adds and gives back meanwhile, and what a large backlog costs."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import ScopeLimits
from queueapp.store.records import Returned
from tests.lua.generations import change, drained, moved_over, some, standing_anew
from tests.lua.harness import LEASE_MS, Shard, commands, completed, failed

# -- what runs meanwhile -------------------------------------------------------------------------------------------


def test_a_worker_alone_moves_what_it_wants_and_is_never_idle(shard: Shard) -> None:
    """No scheduler: each call brings over as much as it leases, and says that there is more."""
    ids = shard.add(*(shard.job(f"t{index % 90}") for index in range(200)))
    change(shard, "fifo")
    assert shard.snapshot()["wake"] == [(b"w", 0.0)]
    leased: list[str] = []
    while len(leased) < 200:
        found = shard.lease(8)
        assert len(found) == 8, f"idle after {len(leased)}"
        leased += [job.id for job in found]
    assert sorted(leased) == sorted(ids)


@pytest.mark.parametrize("how", ["check_and_lease", "cycle"])
def test_a_call_that_found_less_than_it_wants_says_that_more_may_come(shard: Shard, how: str) -> None:
    """The first of the old order are paused: call again at once, until a job that may run has come over."""
    change(shard, "fifo", 1)
    shard.add(*(shard.job("a") for _ in range(120)))
    (free,) = shard.add(shard.job("z"))
    change(shard, "tiered")
    shard.store.configure(3, scopes=[ScopeLimits(tenant="a", paused=True)])
    call = getattr(shard.store, how)
    answers = [call("w", seq, want=4, begin=0, lease_ms=LEASE_MS) for seq in range(1, 10)]
    first = next(index for index, answer in enumerate(answers) if answer.jobs)
    assert first > 3
    assert [job.id for job in answers[first].jobs] == [free]
    assert all(answer.more for answer in answers[:first])
    assert not answers[-1].more
    assert not answers[-1].runnable
    assert "wake" not in shard.snapshot()


@pytest.mark.parametrize("how", ["check_and_lease", "cycle"])
@pytest.mark.parametrize("want", [0, 3])
def test_a_worker_that_has_what_it_wants_is_not_asked_to_call_again(shard: Shard, how: str, want: int) -> None:
    shard.add(*(shard.job() for _ in range(120)))
    change(shard, "fifo")
    answer = getattr(shard.store, how)("w", 1, want=want, begin=0, lease_ms=LEASE_MS)
    assert len(answer.jobs) == want
    assert not answer.more
    assert answer.runnable


def test_a_paused_pool_moves_and_wakes_nobody(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(120)))
    change(shard, "fifo", paused=True)
    assert "wake" not in shard.snapshot()
    assert shard.lease(5) == []
    reranking = shard.reads.overview().reranking
    assert reranking is not None
    assert reranking.moved == 16
    change(shard, "fifo", 3)
    assert "wake" in shard.snapshot()


def test_new_and_returned_work_enters_the_new_generation(shard: Shard) -> None:
    change(shard, "wfq", 1)
    shard.add(*some(shard, 6))
    (returned, lost) = shard.lease(2, begin=0)
    dead = shard.add(shard.job("t9"))
    shard.store.move_to_dlq(dead, "by_hand")
    change(shard, "priority")
    late = shard.add(shard.job("t9", delay_ms=5), shard.job("t9"))
    shard.store.partition_requeue([Returned(id=returned.id, attempts=1)])
    shard.now_ms += LEASE_MS
    shard.store.partition_recover()
    shard.store.promote_due()
    shard.store.retry_from_dlq(dead)
    stand = standing_anew(shard)
    assert stand == {*late, *dead, returned.id, lost.id}


def test_a_lease_of_an_older_generation_settles_nothing_of_the_new_one(shard: Shard) -> None:
    """Its charge was made by turns that are no more."""
    shard.add(*(shard.job("a") for _ in range(3)), *(shard.job("b") for _ in range(3)))
    (old,) = shard.lease()
    change(shard, "fifo")
    moved_over(shard)
    change(shard, "tiered", 3)
    moved_over(shard)
    (new,) = shard.lease()
    shard.now_ms += 9_000
    before = shard.snapshot()
    shard.store.complete([completed(old, run_ms=9_000)])
    after = shard.snapshot()
    for key in ("walk", "lanes:a", "lanes:b", "tags", "ltags:a", "policy"):
        assert after.get(key) == before.get(key), key
    assert shard.client.hget(shard.keys.run(new.id), "gn") == b"2"
    shard.store.complete([completed(new, run_ms=9_000)])
    assert shard.snapshot()["walk"] != after["walk"]


def test_a_rank_of_an_older_generation_is_not_taken_for_one_of_the_new(shard: Shard) -> None:
    """wfq, then fifo, then wfq again: finish tags begin anew, and an old one would be far ahead of all."""
    change(shard, "wfq", 1)
    (job_id,) = shard.add(shard.job("a", cost=1_000_000, max_crashes=9))
    shard.add(*some(shard, 3))
    leased = shard.lease(4, begin=0)
    (job,) = [job for job in leased if job.id == job_id]
    shard.add(*some(shard, 3))
    change(shard, "fifo")
    moved_over(shard)
    change(shard, "wfq", 3)
    moved_over(shard)
    shard.store.configure(4, scopes=[ScopeLimits(tenant="a", weight=1_000)])
    shard.store.partition_requeue([Returned(id=job.id, attempts=job.attempts)])
    [(_, rank)] = shard.snapshot()["q:a|main"]
    assert rank == 1_000.0


def test_a_job_that_came_back_keeps_its_rank_when_the_same_rule_comes_back(shard: Shard) -> None:
    """Its row cannot tell: it says since when the job waits anew."""
    change(shard, "aging", 1)
    (first,) = shard.add(shard.job("a"))
    (job,) = shard.lease(begin=0)
    shard.now_ms += 1_000
    (second,) = shard.add(shard.job("b"))
    shard.now_ms += 1_000
    shard.store.partition_requeue([Returned(id=job.id, attempts=1)])
    for version, policy in ((2, "fifo"), (3, "aging")):
        change(shard, policy, version)
        moved_over(shard)
    assert [member[12:].decode() for key in ("a", "b") for member, _ in shard.snapshot()[f"q:{key}|main"]] == [
        first,
        second,
    ]
    assert drained(shard) == [first, second]


def test_a_job_that_was_tried_again_waits_since_then(shard: Shard) -> None:
    """Not since it was submitted: its hash says so, and what it kept from its lease."""
    shard.add(shard.job("a", max_attempts=9))
    (first,) = shard.lease()
    shard.store.fail([failed(first, retry_ms=500)])
    shard.now_ms += 300
    (second,) = shard.add(shard.job("b"))
    shard.now_ms += 300
    shard.store.promote_due()
    change(shard, "aging", 1)
    moved_over(shard)
    assert drained(shard) == [second, first.id]


# -- a large backlog -----------------------------------------------------------------------------------------------


@pytest.mark.dirty_store  # a recount of so many takes seconds
@pytest.mark.parametrize("after", ["tiered", "wfq"])
def test_a_large_backlog_moves_in_bounded_calls_while_work_goes_on(shard: Shard, after: str) -> None:
    """20,000 jobs, one tenant with nearly all of them: no call takes long, nobody is idle, a newcomer does not wait.

    Those who move it die between their shares: whoever comes next goes on.
    """
    change(shard, "fifo", 1)
    for _ in range(20):
        shard.add(*(shard.job("big") for _ in range(990)), *(shard.job(f"t{number}") for number in range(10)))
    change(shard, after)
    (newcomer,) = shard.add(shard.job("new"))
    seen: list[int] = []
    leased: list[str] = []
    shares = 0
    while (share := shard.store.rerank()).more:
        shares += 1
        assert share.moved <= 250
        assert share.gone - (seen[-1] if seen else 0) >= share.moved
        seen.append(share.gone)
        if shares % 4 == 1:
            found = shard.lease(16)
            assert len(found) == 16
            leased += [job.id for job in found]
            shard.store.complete([completed(job) for job in found])
    assert seen == sorted(seen)
    assert share.gone == share.total == 20_000
    assert shares <= 20_000 / 250 + 10
    assert newcomer in leased[:16]
    assert len(set(leased)) == len(leased)
    queues = list(shard.client.scan_iter(f"{shard.keys.prefix}*q:*"))
    assert all(key.startswith(f"{shard.keys.prefix}~q:".encode()) for key in queues)
    assert sum(shard.client.zcard(key) for key in queues) == 20_001 - len(leased) == shard.reads.overview().waiting


def test_the_commands_of_a_share_are_bounded_whatever_stands_there(shard: Shard) -> None:
    """Tenants, lanes and limits beyond number, and many whose jobs were all cancelled."""
    shard.store.configure(1, scopes=[ScopeLimits(tenant=f"p{number}", paused=True) for number in range(600)])
    shard.add(*(shard.job(f"t{number}", lane=f"l{number % 7}") for number in range(400)))
    ids = shard.add(*(shard.job(f"gone{number}") for number in range(600)))
    change(shard, "wfq")
    shard.store.cancel(ids)
    for _ in range(20):
        ran = commands(shard)
        share = shard.store.rerank(100)
        assert commands(shard) - ran <= 1_200 + 10 * share.moved
    assert not share.more
    assert len(drained(shard)) == 400


def test_a_pool_that_never_changed_pays_no_command_for_it(shard: Shard) -> None:
    """What a call needs to know stands in what it reads anyway."""
    shard.add(*some(shard))
    with shard.client.monitor() as monitor:
        shard.lease(3)
        shard.client.echo("enough")
        seen = []
        for event in monitor.listen():
            if event["command"].startswith("ECHO"):
                break
            seen.append(event["command"])
    assert not any("}:~" in command for command in seen)
    assert sum(command.startswith("HMGET") and " moved" in command for command in seen) == 1
    assert not any(b"gn" in shard.client.hgetall(key) for key in shard.client.scan_iter(f"{shard.keys.prefix}run:*"))
