"""A pool whose policy the store does not know: the leader picks, the store takes or says why not."""

from __future__ import annotations

from queueapp.store.configuration import ScopeLimits
from queueapp.store.leader_records import MirrorLane, Taken
from tests.lua.harness import Shard
from tests.lua.keyed import keyed
from tests.lua.mirroring import lead, limits, outcomes, pick


def test_the_first_job_of_each_pick_is_taken(shard: Shard) -> None:
    term = lead(shard)
    ids = shard.add(shard.job("a", cost=2), shard.job("a", cost=7), shard.job("b", cost=4))
    shard.admit(term)
    answer = pick(shard, term, "b", "a")
    assert answer.taken == [
        Taken(
            tenant="b",
            lane="main",
            outcome="taken",
            id=ids[2],
            rank=3.0,
            cost=4.0,
            lane_now=MirrorLane(
                tenant="b", lane="main", runs=False, rank=0, seq=0, cost=0, tenant_weight=1, lane_weight=1
            ),
            tenant_runs=False,
        ),
        Taken(
            tenant="a",
            lane="main",
            outcome="taken",
            id=ids[0],
            rank=1.0,
            cost=2.0,
            lane_now=MirrorLane(
                tenant="a", lane="main", runs=True, rank=2.0, seq=2, cost=7.0, tenant_weight=1, lane_weight=1
            ),
            tenant_runs=True,
        ),
    ]
    assert (answer.jobs, answer.entered, answer.runnable) == (2, [], True)
    assert [job.id for job in shard.lease(5)] == [ids[2], ids[0]]


def test_a_lane_may_be_named_repeatedly(shard: Shard) -> None:
    term = lead(shard)
    ids = shard.add(*(shard.job("a") for _ in range(2)))
    shard.admit(term)
    answer = pick(shard, term, "a", "a", "a")
    assert outcomes(answer) == [("a", "taken"), ("a", "taken"), ("a", "empty")]
    assert [job.id for job in shard.lease(5)] == ids


def test_why_a_pick_was_in_vain(shard: Shard) -> None:
    term = lead(shard)
    limits(shard, ScopeLimits(tenant="paused", paused=True), ScopeLimits(tenant="full", max_in_flight=1))
    shard.add(*(shard.job(tenant) for tenant in ("paused", "full", "full")))
    shard.add(keyed(shard, "k", tenant="keys"), keyed(shard, "k", tenant="keys"))
    shard.admit(term)
    answer = pick(shard, term, "paused", "full", "full", "keys", "keys", "nobody")
    assert outcomes(answer) == [
        ("paused", "blocked"),
        ("full", "taken"),
        ("full", "blocked"),
        ("keys", "taken"),
        ("keys", "blocked"),
        ("nobody", "empty"),
    ]
    assert answer.taken[2].lane_now is not None
    assert (answer.taken[2].lane_now.runs, answer.taken[2].tenant_runs) == (True, False)


def test_a_full_window_and_a_full_pool_leave_picks_unasked(shard: Shard) -> None:
    term = lead(shard, max_in_flight=2)
    shard.add(*(shard.job("a") for _ in range(4)))
    shard.admit(term)
    assert outcomes(pick(shard, term, "a", "a", window=1)) == [("a", "taken"), ("a", "unasked")]
    assert outcomes(pick(shard, term, "a", "a", window=9)) == [("a", "taken"), ("a", "unasked")]


def test_a_job_that_expired_makes_way_for_the_next(shard: Shard) -> None:
    term = lead(shard)
    [brief, good] = shard.add(shard.job("a", expires_after_ms=10), shard.job("a"))
    shard.admit(term)
    shard.now_ms += 10
    [taken] = pick(shard, term, "a").taken
    assert taken.id == good
    assert brief


def test_guaranteed_minima_go_before_the_picks(shard: Shard) -> None:
    term = lead(shard)
    limits(shard, ScopeLimits(tenant="small", min_share=1))
    shard.add(*(shard.job("big") for _ in range(2)), *(shard.job("small") for _ in range(2)))
    shard.admit(term)
    answer = pick(shard, term, "big", "big")
    assert [(one.tenant, one.minimum) for one in answer.taken] == [("small", True), ("big", False), ("big", False)]
