"""Dispatch rates under scheduled dispatch: what is dispatched has its tokens, and a leader hears who has none."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import Rate
from tests.lua.harness import Shard
from tests.lua.rating import SECOND, limit, timers, who, work


@pytest.mark.parametrize("policy", ["tiered", "fifo"])
def test_under_scheduled_dispatch_a_rate_counts_what_is_dispatched(shard: Shard, policy: str) -> None:
    term = shard.schedule(policy=policy)
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2))
    shard.add(*(shard.job() for _ in range(5)), shard.job("bert"))
    assert shard.dispatch(term).jobs == 3
    shard.now_ms += 10_000
    assert sorted(who(shard.lease(9))) == [*"aab"], "what is ready has its tokens"
    assert shard.dispatch(term).jobs == 0, "nobody swept"
    shard.client.delete(shard.keys["wake:leader"])
    work(shard, 0)
    assert shard.client.zscore(shard.keys["wake:leader"], "i") == 0
    answer = shard.dispatch(term)
    assert (answer.jobs, answer.runnable) == (2, False)
    shard.now_ms += 31_000
    shard.store.promote_due()
    assert shard.snapshot()["stats"][b"withdrawn"] == b"2"
    assert shard.dispatch(term).jobs == 2, "they went back, and need tokens anew"
    assert timers(shard) == {"t:acme": 42_000}


def test_a_leader_that_chooses_itself_hears_that_a_lane_is_blocked_and_that_it_entered_again(shard: Shard) -> None:
    term = shard.schedule(policy="drr")
    limit(shard, SECOND)
    limit(shard, SECOND, tenant="bert", lane="mail")
    shard.add(shard.job(), shard.job(), shard.job("bert", lane="mail"), shard.job("bert", lane="mail"))
    shard.admit(term)
    picks = [("acme", "main"), ("acme", "main"), ("bert", "mail"), ("bert", "mail")]
    answer = shard.store.dispatch(term, 250, 1_000, picks, order=shard.order)
    assert [one.outcome for one in answer.taken] == ["taken", "blocked", "taken", "blocked"]
    assert answer.runnable is False
    shard.now_ms += 1_000
    shard.store.promote_due()
    entered = shard.store.dispatch(term, 250, 1_000, [], order=shard.order).entered
    assert {(lane.tenant, lane.lane, lane.runs) for lane in entered} == {
        ("acme", "", True),
        ("bert", "mail", True),
        ("bert", "", True),
    }
