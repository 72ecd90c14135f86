"""What each policy does in the store that no other does: priority, edf, aging, wfq, ring."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import ScopeLimits
from tests.lua.harness import START_MS, Shard, completed, failed
from tests.lua.ordering import drained, given_back, under

# -- priority, edf, aging ----------------------------------------------------------------------------------------


def test_priority_goes_over_the_whole_pool_and_is_clamped(shard: Shard) -> None:
    under(shard, "priority")
    low, first, top, second, over, under_it = shard.add(
        shard.job("a", priority=-100),
        shard.job("b", priority=3),
        shard.job("c", priority=100, lane="slow"),
        shard.job("d", priority=3),
        shard.job("e", priority=7_000),
        shard.job("f", priority=-7_000),
    )
    assert drained(shard) == [top, over, first, second, low, under_it]


def test_edf_runs_jobs_without_a_deadline_last_by_submission(shard: Shard) -> None:
    under(shard, "edf")
    none, late, other, soon = shard.add(
        shard.job("a", priority=100),
        shard.job("b", deadline_ms=START_MS + 900_000_000),
        shard.job("a", priority=-100),
        shard.job("b", deadline_ms=1),
    )
    assert drained(shard) == [soon, late, none, other]


def test_edf_by_latest_start_takes_the_estimate_of_the_moment_it_became_pending(shard: Shard) -> None:
    under(shard, "edf", by="latest_start", default_cost=50)
    early, declared = shard.add(
        shard.job("a", deadline_ms=START_MS + 1_000), shard.job("b", cost=60, deadline_ms=START_MS + 1_000)
    )
    assert [job_id for _, _, job_id in shard.store.peek(2)] == [declared, early]
    (job,) = shard.lease()
    shard.now_ms += 500
    shard.store.complete([completed(job, run_ms=500)])
    (later,) = shard.add(shard.job("c", deadline_ms=START_MS + 1_300))
    assert drained(shard) == [later, early]


def test_aging_lets_a_step_of_priority_be_worth_its_time(shard: Shard) -> None:
    under(shard, "aging", step_ms=1_000)
    (old,) = shard.add(shard.job("a"))
    shard.now_ms += 1_999
    (soon,) = shard.add(shard.job("b", priority=2))
    shard.now_ms += 2
    (late,) = shard.add(shard.job("c", priority=2))
    assert drained(shard) == [soon, old, late]


def test_aging_counts_from_the_moment_a_job_was_due(shard: Shard) -> None:
    under(shard, "aging", step_ms=1_000)
    (parked,) = shard.add(shard.job("a", delay_ms=500))
    shard.now_ms += 800
    (fresh,) = shard.add(shard.job("b"))
    shard.now_ms += 100
    shard.store.promote_due()
    (retried,) = shard.add(shard.job("c", priority=100, max_attempts=2))
    shard.store.fail([failed(shard.lease()[0], retry_ms=200)])
    shard.now_ms += 400
    shard.store.promote_due()
    (last,) = shard.add(shard.job("d", priority=100))
    assert drained(shard) == [retried, last, parked, fresh]


# -- wfq ---------------------------------------------------------------------------------------------------------


def tags(shard: Shard) -> dict[bytes, float]:
    return dict(shard.snapshot().get("tags", []))


def test_wfq_starts_a_newcomer_at_the_clock(shard: Shard) -> None:
    under(shard, "wfq")
    shard.add(*(shard.job("a", cost=10) for _ in range(10)))
    assert [job.tenant for job in shard.lease(5)] == ["a"] * 5
    shard.add(*(shard.job("b", cost=10) for _ in range(3)))
    assert tags(shard) == {b"a": 100.0, b"b": 80.0}
    assert [job.tenant for job in shard.lease(6)] == ["a", "b", "a", "b", "a", "b"]


def test_wfq_forgets_a_finish_tag_that_the_clock_has_passed(shard: Shard) -> None:
    under(shard, "wfq")
    shard.add(shard.job("a", cost=1), shard.job("b", cost=9))
    shard.lease(1)
    assert tags(shard) == {b"b": 9.0}
    shard.lease(1)
    assert tags(shard) == {}
    assert shard.snapshot()["policy"][b"V"] == b"9"


def test_wfq_gives_a_new_weight_to_what_comes_after_it(shard: Shard) -> None:
    under(shard, "wfq")
    shard.add(shard.job("a", cost=8), shard.job("a", cost=8))
    shard.store.configure(2, scopes=[ScopeLimits(tenant="a", weight=4)])
    shard.add(shard.job("a", cost=8))
    assert [score for _, score in shard.snapshot()["q:a|main"]] == [8.0, 16.0, 18.0]


def test_wfq_keeps_a_cancelled_share_charged(shard: Shard) -> None:
    under(shard, "wfq")
    ids = shard.add(*(shard.job("a", cost=10) for _ in range(3)))
    shard.store.cancel(ids)
    shard.add(shard.job("a", cost=10), shard.job("b", cost=10))
    assert [job.tenant for job in shard.lease(2)] == ["b", "a"]


def test_wfq_puts_work_that_came_back_before_what_its_tenant_sent_later(shard: Shard) -> None:
    """Its F is that of its admission; were it given anew, it would stand behind the tenant's last tag."""
    under(shard, "wfq")
    ids = shard.add(*(shard.job("a", cost=10) for _ in range(3)))
    (job,) = shard.lease(begin=0)
    given_back(shard, job.id)
    assert [(member[12:].decode(), score) for member, score in shard.snapshot()["q:a|main"]] == [
        (ids[0], 10.0),
        (ids[1], 20.0),
        (ids[2], 30.0),
    ]


def test_wfq_does_not_turn_its_clock_back_for_work_that_came_back(shard: Shard) -> None:
    under(shard, "wfq")
    shard.add(*(shard.job("a", cost=10) for _ in range(4)))
    first, *_ = shard.lease(3, begin=0)
    given_back(shard, first.id)
    shard.lease()
    assert shard.snapshot()["policy"][b"V"] == b"30"
    shard.add(shard.job("b", cost=10))
    assert tags(shard)[b"b"] == 40.0


# -- ring --------------------------------------------------------------------------------------------------------


def test_ring_puts_newcomers_last_and_takes_lanes_in_turn(shard: Shard) -> None:
    under(shard, "ring")
    shard.add(*(shard.job(tenant, lane=lane) for tenant in "ba" for lane in "yx" for _ in range(2)))
    assert [(job.tenant, job.lane) for job in shard.lease(3)] == [("b", "y"), ("a", "y"), ("b", "x")]
    shard.add(shard.job("0", priority=100))
    rest = [(job.tenant, job.lane) for job in shard.lease(9)]
    assert rest == [("a", "x"), ("b", "y"), ("0", "main"), ("a", "y"), ("b", "x"), ("a", "x")]


def test_ring_keeps_one_queue_for_both_tiers_and_leaves_nothing_behind(shard: Shard) -> None:
    under(shard, "ring")
    ids = shard.add(shard.job(tier="continue"), shard.job(), shard.job(tier="continue"))
    assert [member.decode() for member, _ in shard.snapshot()["q:acme|main"]] == ids
    assert drained(shard) == ids
    assert b"V:acme" not in shard.snapshot()["policy"]


@pytest.mark.parametrize("policy", ["ring", "tiered", "wfq"])
def test_a_flood_does_not_delay_the_first_job_of_a_newcomer(shard: Shard, policy: str) -> None:
    under(shard, policy)
    shard.add(*(shard.job("flood", lane=f"lane{number % 1_000}", cost=1) for number in range(10_000)))
    shard.lease(100)
    shard.add(shard.job("new", cost=1))
    assert "new" in {job.tenant for job in shard.lease(2)}


@pytest.mark.parametrize("policy", ["ring", "tiered", "wfq"])
def test_a_thousand_lanes_get_no_more_than_one(shard: Shard, policy: str) -> None:
    under(shard, policy)
    shard.add(*(shard.job("many", lane=f"lane{number}", cost=1) for number in range(1_000)))
    shard.add(*(shard.job("one", cost=1) for _ in range(100)))
    leased = [job.tenant for _ in range(4) for job in shard.lease(25)]
    assert (leased.count("one"), leased.count("many")) == (50, 50)
