"""Each policy in the store where it could go wrong: ties, kept and renewed ranks, parameters, what is left behind."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.errors import InvalidOption
from queueapp.policies.registry import DIRECT, POLICIES
from queueapp.store.configuration import PoolConf
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed, failed
from tests.lua.ordering import TIED, drained, every_policy, every_tied, given_back, row, under

# -- ties --------------------------------------------------------------------------------------------------------


@every_tied
def test_equal_ranks_go_by_submission_across_tenants_and_lanes(shard: Shard, policy: str) -> None:
    under(shard, policy)
    names = [("z", "b"), ("m", "a"), ("a", "z"), ("q", "q")]
    wanted = shard.add(*(shard.job(tenant, lane=lane, cost=1, deadline_ms=START_MS + 5) for tenant, lane in names))
    assert [job_id for _, _, job_id in shard.store.peek(9)] == wanted
    assert drained(shard) == wanted


@every_tied
def test_equal_ranks_of_two_lanes_go_by_submission(shard: Shard, policy: str) -> None:
    under(shard, policy)
    wanted = shard.add(*(shard.job("a", lane=lane, cost=1, deadline_ms=START_MS + 5) for lane in "zbazab"))
    order = drained(shard)
    assert order == wanted


@every_tied
def test_a_pointer_follows_its_head_to_the_next_of_the_same_rank(shard: Shard, policy: str) -> None:
    under(shard, policy)
    deadline_ms = START_MS + 5
    first, second, third = shard.add(
        shard.job("z", deadline_ms=deadline_ms),
        shard.job("a", deadline_ms=deadline_ms),
        shard.job("z", deadline_ms=deadline_ms),
    )
    before = shard.snapshot()["heads"][b"z"]
    shard.store.cancel([first])
    assert shard.snapshot()["heads"][b"z"] != before
    assert drained(shard) == [second, third]
    assert not {"heads", "heads:z", "heads:a", "walk"} & shard.snapshot().keys()


def test_a_tenant_keeps_the_place_of_a_suspect_that_is_passed_over(shard: Shard) -> None:
    """Its pointer is put right in the same call, because of an expired neighbour, while the suspect is hidden."""
    under(shard, "edf")
    deadline_ms = START_MS + 10**6
    (suspect,) = shard.add(shard.job("z", lane="a", deadline_ms=deadline_ms, max_crashes=9))
    for _ in range(2):
        shard.lease(worker="crashing")
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    shard.add(shard.job("y", deadline_ms=1))
    shard.lease(worker="busy")
    shard.add(
        shard.job("z", lane="b", deadline_ms=2, expires_after_ms=10), shard.job("z", lane="b", deadline_ms=deadline_ms)
    )
    shard.now_ms += 10
    assert shard.lease(worker="busy") == []
    assert shard.store.verify() == []
    assert drained(shard)[0] == suspect


@pytest.mark.parametrize("policy", sorted(DIRECT - set(TIED)))
def test_where_ranks_do_not_tie_members_stay_plain(shard: Shard, policy: str) -> None:
    under(shard, policy)
    (job_id,) = shard.add(shard.job())
    found = shard.snapshot()
    assert [member for member, _ in found["q:acme|main"]] == [job_id.encode()]
    assert [member for member, _ in found["walk"]] == [b"acme"]
    assert "heads" not in found


@every_tied
def test_what_reads_queues_and_walks_sees_ids_and_lanes(shard: Shard, policy: str) -> None:
    under(shard, policy)
    ids = shard.add(*(shard.job("a", lane=lane, cost=number) for number, lane in enumerate(["x", "x", "y"], 1)))
    assert shard.reads.queues.lanes(["a"], shard.reads.queues.generations()) == {"a": ["x", "y"]}
    page = shard.reads.browse("q:a|x", count=1)
    assert page.ids == ids[:1]
    assert shard.reads.browse("q:a|x", count=9, after=page.cursor, tenant="a").ids == ids[1:2]
    assert shard.reads.oldest().jobs[0].id == ids[0]


@every_policy
def test_a_broken_row_at_the_head_is_set_aside(shard: Shard, policy: str) -> None:
    under(shard, policy)
    bad, good = shard.add(shard.job("a"), shard.job("a"))
    shard.client.set(shard.keys.job(bad), "nonsense")
    assert drained(shard) == [good]
    assert shard.client.smembers(shard.keys["quarantine"]) == {bad.encode()}
    shard.client.delete(shard.keys.job(bad))


@every_policy
def test_an_expired_head_is_dropped_when_it_is_met(shard: Shard, policy: str) -> None:
    under(shard, policy)
    _, good = shard.add(shard.job("a", expires_after_ms=10), shard.job("a"))
    shard.now_ms += 10
    assert drained(shard) == [good]


# -- places in line ----------------------------------------------------------------------------------------------


def test_a_job_has_its_place_in_its_row_from_the_moment_it_waits(shard: Shard) -> None:
    now, later = shard.add(shard.job(), shard.job(delay_ms=1_000))
    assert row(shard, now).startswith(b"p1000000000001")
    assert row(shard, later).startswith(b"s1000000000000")
    shard.now_ms += 1_000
    shard.store.promote_due()
    assert row(shard, later).startswith(b"p1000000000003")


def test_a_retry_and_a_redriven_job_get_a_new_place(shard: Shard) -> None:
    retried, dead = shard.add(shard.job(max_attempts=2), shard.job())
    jobs = shard.lease(2)
    shard.store.fail([failed(jobs[0], retry_ms=5), failed(jobs[1])])
    shard.now_ms += 5
    shard.store.promote_due()
    assert row(shard, retried).startswith(b"h1000000000003")
    shard.store.retry_from_dlq([dead])
    assert row(shard, dead).startswith(b"h1000000000004")
    assert drained(shard) == [retried, dead]


@every_policy
@pytest.mark.parametrize("how", ["given back", "lost"])
def test_who_comes_back_stands_where_it_stood(shard: Shard, policy: str, how: str) -> None:
    """Also where time, an estimate or V went on meanwhile: the rank of the lease is kept."""
    under(shard, policy, by="latest_start", step_ms=10)
    jobs = [shard.job("a", deadline_ms=START_MS + 9_000, max_crashes=9) for _ in range(4)]
    ids = shard.add(*jobs)
    first, second = shard.lease(2, begin=0)
    shard.now_ms += 5_000
    shard.store.complete([completed(second, run_ms=4_000)])
    if how == "given back":
        given_back(shard, first.id)
    else:
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    assert drained(shard) == [ids[0], *ids[2:]]


@every_policy
@pytest.mark.parametrize("other", sorted(DIRECT))
def test_who_comes_back_under_another_policy_is_ranked_by_that_one(shard: Shard, policy: str, other: str) -> None:
    under(shard, policy, by="latest_start")
    (first,) = shard.add(shard.job("a", priority=5, deadline_ms=START_MS + 100))
    (job,) = shard.lease(begin=0)
    under(shard, other, 2)
    (second,) = shard.add(shard.job("a", priority=5, deadline_ms=START_MS + 100))
    given_back(shard, job.id)
    want = [second, first] if other == "wfq" != policy else [first, second]
    assert drained(shard) == want, "only under wfq is the place one of the moment"


def test_only_ranks_that_no_row_can_tell_are_kept_with_the_lease(shard: Shard) -> None:
    kept = {}
    for version, (policy, by) in enumerate(
        [("wfq", "deadline"), ("edf", "latest_start"), ("aging", "deadline"), ("edf", "deadline"), ("fifo", "deadline")]
    ):
        under(shard, policy, version + 1, by=by)
        (job_id,) = shard.add(shard.job(cost=7, deadline_ms=START_MS + 100))
        (job,) = shard.lease(worker=f"w{version}")
        kept[policy, by] = shard.client.hget(shard.keys.run(job_id), "r")
        shard.store.complete([completed(job)])
    assert kept == {
        ("wfq", "deadline"): b"wfq|7",
        ("edf", "latest_start"): b"edf:latest_start|%d" % (START_MS + 93),
        ("aging", "deadline"): b"aging:60000|%d" % START_MS,
        ("edf", "deadline"): None,
        ("fifo", "deadline"): None,
    }


def test_a_rank_of_an_earlier_lease_is_not_taken_for_that_of_a_later_one(shard: Shard) -> None:
    under(shard, "wfq")
    (old,) = shard.add(shard.job("a", cost=1, max_crashes=9))
    (job,) = shard.lease(begin=0)
    given_back(shard, old)
    (job,) = shard.lease(begin=0)
    under(shard, "fifo", 2)
    given_back(shard, old, job.attempts)
    (job,) = shard.lease(begin=0)
    assert shard.client.hget(shard.keys.run(old), "r") is None
    given_back(shard, old, job.attempts)
    assert drained(shard) == [old]


# -- parameters --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"policy": "edf"}, {"policy": "edf", "by": "latest_start"}),
        ({"policy": "aging"}, {"policy": "aging", "step_ms": 1_000}),
        ({"policy": "wfq"}, {"policy": "ring"}),
    ],
)
def test_what_orders_anew_begins_a_generation_where_work_waits_and_none_where_not(
    shard: Shard, before: dict[str, Any], after: dict[str, Any]
) -> None:
    under(shard, **before)
    under(shard, version=2, **after)
    assert b"gen" not in shard.snapshot()["conf"]
    shard.add(shard.job())
    under(shard, version=3, **before)
    assert shard.snapshot()["conf"][b"gen"] == b"1"
    assert shard.reads.configured() == PoolConf(**before)


@pytest.mark.parametrize("policy", [*sorted(POLICIES.keys() - DIRECT), "fifa"])
def test_a_policy_that_the_scripts_do_not_know_is_refused_by_name(shard: Shard, policy: str) -> None:
    with pytest.raises(InvalidOption, match=policy):
        under(shard, policy)
    assert shard.snapshot() == {}


def test_a_parameter_of_another_policy_changes_at_any_time(shard: Shard) -> None:
    under(shard, "fifo")
    shard.add(shard.job())
    under(shard, "fifo", 2, by="latest_start", step_ms=5)
    assert shard.reads.configured() == PoolConf(policy="fifo", by="latest_start", step_ms=5)


# -- what it costs, and what `verify` sees -----------------------------------------------------------------------------


def commands(shard: Shard) -> int:
    stats: dict[str, dict[str, int]] = shard.client.info("commandstats")
    outer = ("cmdstat_fcall", "cmdstat_function|load", "cmdstat_info")
    return sum(found["calls"] for name, found in stats.items() if name not in outer)


@every_policy
def test_no_policy_needs_many_commands_a_job(shard: Shard, policy: str) -> None:
    """Fifty tenants in batches of 250 and 16, the worst that a batch can meet: every job is of another tenant."""
    under(shard, policy)
    shard.store.peek(1)
    before = commands(shard)
    for _ in range(2):
        shard.add(*(shard.job(f"t{number % 50}", deadline_ms=START_MS + number) for number in range(250)))
    enqueued = commands(shard)
    jobs = [job for _ in range(30) for job in shard.lease(16)]
    leased = commands(shard)
    shard.now_ms += 50
    for first in range(0, 480, 16):
        shard.store.complete([completed(job) for job in jobs[first : first + 16]])
    ended = commands(shard)
    assert (enqueued - before) / 500 < 2.7
    assert (leased - enqueued) / 480 < 11.5
    assert (ended - leased) / 480 < 7.5


def broken(shard: Shard) -> list[str]:
    found: list[str] = shard.store.verify()
    return found


@pytest.mark.dirty_store
def test_verify_sees_a_pointer_that_is_not_its_head(shard: Shard) -> None:
    under(shard, "edf")
    shard.add(shard.job("a", deadline_ms=1), shard.job("a", deadline_ms=1))
    assert broken(shard) == []
    shard.client.zrem(shard.keys["walk"], "000000000001a")
    shard.client.zadd(shard.keys["walk"], {"000000000002a": 1})
    shard.client.hset(shard.keys["heads"], "a", "000000000002")
    assert broken(shard) == ["walk: pointer of a is not its head"]


@pytest.mark.dirty_store
@pytest.mark.parametrize("of", ["heads", "heads:a"])
def test_verify_sees_a_head_that_no_walk_has_and_a_member_that_none_names(shard: Shard, of: str) -> None:
    under(shard, "wfq")
    shard.add(shard.job("a"))
    shard.client.hset(shard.keys[of], "ghost", "000000000001")
    walk = "walk" if of == "heads" else "lanes:a"
    assert f"{of} does not name just the members of {walk}" in broken(shard)
    shard.client.delete(shard.keys[of])
    assert f"{of} does not name just the members of {walk}" in broken(shard)


@pytest.mark.dirty_store
def test_verify_sees_a_member_whose_place_is_not_that_of_its_row(shard: Shard) -> None:
    under(shard, "aging")
    (job_id,) = shard.add(shard.job("a"))
    shard.client.setrange(shard.keys.job(job_id), 0, "p1000000000009")
    assert f"{job_id} stands at 000000000001, its row says 000000000009" in broken(shard)
    shard.client.setrange(shard.keys.job(job_id), 0, "p1000000000000")
    assert f"{job_id} is pending without a place" in broken(shard)
