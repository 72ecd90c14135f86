"""How many jobs start before one, in what `explain` tells: exact where the order is simply counted or was followed to
the end, at least so many where a minimum, a ceiling, a key or a suspect may change it."""

from __future__ import annotations

import pytest

from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import NewJob
from tests.lua.asking import ask
from tests.lua.harness import LEASE_MS, Shard
from tests.lua.keyed import keyed

ORDERED = pytest.mark.parametrize("policy", ["fifo", "priority", "edf", "aging", "wfq"])


def add(shard: Shard, *jobs: NewJob) -> list[str]:
    return [job_id for first in range(0, len(jobs), 250) for job_id in shard.add(*jobs[first : first + 250])]


def started_before(shard: Shard, job_id: str, want: int = 100) -> int:
    """How many jobs one call really leases before it."""
    return [job.id for job in shard.lease(want)].index(job_id)


def fill(shard: Shard, *keys: str) -> None:
    """Jobs of `acme` that wait for keys which another took while `acme` was paused, so that nobody looked at them."""
    shard.store.configure(2, scopes=[ScopeLimits(tenant="acme", paused=True)])
    add(shard, *(keyed(shard, key) for key in keys for _ in range(4)))
    add(shard, *(keyed(shard, key, tenant="other") for key in keys))
    assert len(shard.lease(100)) == len(keys)
    shard.store.configure(3, scopes=[ScopeLimits(tenant="acme")])


@ORDERED
def test_a_minimum_of_others_goes_first(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="a", min_share=3)])
    [mine] = add(shard, shard.job("b"))
    add(shard, *(shard.job("a") for _ in range(5)))
    facts = ask(shard, mine)
    assert (facts.ahead, facts.ahead_exact) == (3, True)
    assert ask(shard, mine, walked=2).ahead_exact is False
    assert started_before(shard, mine) == 3


@ORDERED
def test_a_minimum_of_its_own_puts_it_first(shard: Shard, policy: str) -> None:
    """Those that stand before it by their rank do not start before it: they are no lower bound."""
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="a", min_share=3)])
    add(shard, *(shard.job("b") for _ in range(60)))
    ids = add(shard, *(shard.job("a") for _ in range(3)))
    facts = ask(shard, ids[2])
    assert (facts.ahead, facts.ahead_exact) == (2, True)
    facts = ask(shard, ids[2], walked=1)
    assert (facts.ahead, facts.ahead_exact) == (2, False)
    assert started_before(shard, ids[2]) == 2


@ORDERED
def test_keys_that_are_full_but_not_met_yet_are_not_counted(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    fill(shard, "k")
    [mine] = add(shard, shard.job("b"))
    facts = ask(shard, mine)
    assert (facts.ahead, facts.ahead_exact) == (0, True)
    facts = ask(shard, mine, walked=0)
    assert (facts.ahead, facts.ahead_exact) == (0, False)
    assert started_before(shard, mine) == 0


@ORDERED
def test_of_very_many_sub_lanes_it_is_told_that_there_are_more(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    for _ in range(2):
        add(shard, *(keyed(shard, f"k{number:03}", limit=9) for number in range(150)))
    [mine] = add(shard, shard.job("acme"))
    facts = ask(shard, mine)
    assert (facts.place, facts.place_exact) == (250, False)
    assert facts.ahead is not None
    assert 100 <= facts.ahead <= 300
    assert not facts.ahead_exact


@ORDERED
@pytest.mark.parametrize("lane", ["", "main"])
def test_a_ceiling_of_others_lets_them_start_only_so_many(shard: Shard, policy: str, lane: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="a", lane=lane, max_in_flight=2)])
    add(shard, *(shard.job("a") for _ in range(50)))
    [mine] = add(shard, shard.job("b"))
    facts, *counted = (ask(shard, mine, walked=walked) for walked in (100, 0, 1))
    before = started_before(shard, mine)
    assert (facts.ahead, facts.ahead_exact) == (before, True)
    assert [each.ahead for each in counted] == [before] * 2 == [1 if policy == "wfq" else 2] * 2
    exact = policy == "wfq"  # there its tag is the second: of the others' one is before it
    assert [each.ahead_exact for each in counted] == [exact] * 2


@ORDERED
@pytest.mark.parametrize("lane", ["", "main"])
def test_a_ceiling_of_its_own_lets_others_go_first(shard: Shard, policy: str, lane: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="a", lane=lane, max_in_flight=2)])
    ids = add(shard, *(shard.job("a") for _ in range(4)))
    add(shard, *(shard.job("b") for _ in range(4)))
    facts = ask(shard, ids[3])
    assert facts.ahead == (6 if policy == "wfq" else 3)
    assert not facts.ahead_exact


@ORDERED
def test_where_nothing_changes_the_order_it_is_counted_far_beyond_the_walk(shard: Shard, policy: str) -> None:
    shard.store.configure(
        1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="t1", max_in_flight=500, weight=1)]
    )
    ids = add(shard, *(shard.job(f"t{number % 3}", lane=f"l{number % 2}", cost=5) for number in range(400)))
    facts = ask(shard, ids[-1], walked=10)
    assert facts.ahead_exact
    order = [job.id for _ in range(4) for job in shard.lease(100)]
    assert order.index(ids[-1]) == facts.ahead


@pytest.mark.parametrize("policy", ["fifo", "tiered"])
def test_more_key_sets_than_step_aside_in_one_call_make_it_inexact(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    fill(shard, *(f"k{number}" for number in range(20)))
    [mine] = add(shard, shard.job("b"))
    assert ask(shard, mine).ahead_exact is False


@pytest.mark.parametrize("policy", ["fifo", "tiered"])
def test_a_suspect_that_an_idle_worker_would_take_first_makes_it_inexact(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    add(shard, shard.job("a", max_crashes=9))
    for _ in range(2):
        shard.lease(1, "crashing")
        shard.now_ms += LEASE_MS + 1
        shard.store.partition_recover()
    [mine] = add(shard, shard.job("b"))
    facts = ask(shard, mine)
    assert facts.ahead == (1 if policy == "fifo" else 0), "by its rank the suspect comes first"
    assert policy == "fifo" or not facts.ahead_exact


@pytest.mark.parametrize("policy", ["tiered", "ring"])
def test_the_turns_before_it_are_a_bound_only_where_each_starts_one(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="zed", min_share=3)])
    add(shard, *(shard.job(f"t{number:02}") for number in range(30)))
    [first, second] = add(shard, shard.job("zed"), shard.job("zed"))
    facts = ask(shard, second, walked=1)
    assert facts.turn is not None
    assert (facts.ahead, facts.ahead_exact) == (1, False)
    shard.store.configure(2, scopes=[ScopeLimits(tenant="zed")])
    facts = ask(shard, first, walked=1)
    assert facts.ahead == facts.turn == 30
