"""Dispatch rates that change, meet pauses and other policies, and lose their timer or their clock."""

from __future__ import annotations

from typing import Any

from queueapp.store.configuration import PoolConf, Rate
from tests.lua.harness import Shard
from tests.lua.keyed import keyed
from tests.lua.rating import SECOND, each_policy, limit, limit_key, timers, who, work


@each_policy
def test_another_rate_and_none_take_effect_at_once(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    limit(shard, Rate(rate=1, period_ms=3_600_000))
    shard.add(*(shard.job() for _ in range(9)))
    assert len(work(shard)) == 1
    assert work(shard) == []
    limit(shard, Rate(rate=1, period_ms=1_000))
    assert timers(shard) == {"t:acme": 1_000}, "one job is owed still, under the new rate"
    limit(shard, Rate(rate=1, period_ms=1_000, burst=3))
    assert len(work(shard)) == 2
    limit(shard, None)
    assert timers(shard) == {}
    assert len(shard.lease(9)) == 6


def test_another_rate_of_a_key_and_none_take_effect_at_once(shard: Shard) -> None:
    limit_key(shard, "k", Rate(rate=1, period_ms=3_600_000))
    shard.add(*(keyed(shard, "k", limit=99, tenant=tenant) for tenant in ("ann", "bob", "cat", "dan")))
    assert who(work(shard)) == "a"
    limit_key(shard, "k", Rate(rate=1, period_ms=3_600_000, burst=2))
    assert who(shard.lease(9)) == "b"
    limit_key(shard, "k", None)
    assert who(shard.lease(9)) == "cd"


def test_pauses_and_rates_hold_a_tenant_back_together(shard: Shard) -> None:
    limit(shard, SECOND)
    shard.add(*(shard.job() for _ in range(4)))
    assert len(work(shard)) == 1
    limit(shard, SECOND, paused=True)
    shard.now_ms += 5_000
    assert work(shard) == []
    limit(shard, SECOND)
    assert len(work(shard)) == 1
    limit(shard, SECOND, paused=True)
    limit(shard, SECOND)
    assert timers(shard) == {"t:acme": 6_000}, "what was not out for a token alone is put there when it is"


def test_a_lost_timer_is_found_by_schedulers(shard: Shard) -> None:
    limit(shard, SECOND)
    limit(shard, SECOND, tenant="bert", lane="mail")
    shard.add(*(shard.job() for _ in range(2)), *(shard.job("bert", lane="mail") for _ in range(2)))
    assert len(work(shard)) == 2
    shard.client.delete(shard.keys["timers"])
    assert any("timers lacks" in problem for problem in shard.store.verify())
    shard.store.promote_due()
    assert timers(shard) == {"t:acme": 1_000, "l:bert|mail": 1_000}
    shard.now_ms += 1_000
    shard.client.delete(shard.keys["timers"])
    assert len(shard.store.verify()) >= 2
    shard.store.promote_due()
    assert len(shard.lease(9)) == 2


def test_a_clock_that_is_set_back_lets_nobody_start_twice(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=60_000))
    shard.add(*(shard.job() for _ in range(3)))
    assert len(work(shard)) == 1
    shard.now_ms += 60_000
    shard.store.promote_due()
    shard.now_ms -= 3_600_000
    assert work(shard) == [], "it stands in the walk, by a clock that was ahead"
    shard.now_ms += 60_000
    assert len(work(shard)) == 1


def test_whoever_waits_comes_back_in_time_by_a_clock_that_is_set_back(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=60_000))
    shard.add(*(shard.job() for _ in range(3)))
    assert len(work(shard)) == 1
    shard.now_ms -= 3_600_000
    shard.store.promote_due()
    shard.now_ms += 59_999
    assert work(shard) == []
    shard.now_ms += 1
    assert len(work(shard)) == 1


@each_policy
def test_a_change_of_policy_keeps_who_waits_for_a_token(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    limit(shard, SECOND)
    limit(shard, SECOND, tenant="bert", lane="mail")
    limit_key(shard, "k", SECOND)
    shard.add(
        *(shard.job() for _ in range(3)),
        *(shard.job("bert", lane="mail") for _ in range(3)),
        *(keyed(shard, "k", limit=9, tenant="carl") for _ in range(3)),
    )
    assert sorted(who(work(shard))) == [*"abc"]
    shard.versions += 1
    shard.store.configure(shard.versions, pool=PoolConf(policy="fifo" if policy == "tiered" else "tiered"))
    assert work(shard) == []
    assert shard.store.verify() == []
    while shard.store.rerank().more:
        pass
    assert work(shard) == []
    shard.now_ms += 1_000
    assert sorted(who(work(shard))) == [*"abc"]
    shard.now_ms += 1_000
    assert sorted(who(work(shard))) == [*"abc"]


def test_the_minute_says_when_a_tenant_could_run_again(shard: Shard) -> None:
    """For the certificate: until then nothing could be expected for it."""
    limit(shard, SECOND)
    shard.add(shard.job(), shard.job())
    assert len(work(shard)) == 1
    shard.now_ms += 1_000
    work(shard, 0)
    part: Any = shard.client.hget(shard.keys[f"served:{shard.now_ms // 60_000}"], "acme")
    assert part is not None
    assert str(shard.now_ms % 60_000).encode() in part.split(b"|")


def test_what_is_owed_is_converted_when_the_rate_changes_not_when_the_next_job_comes(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000))
    shard.add(shard.job())
    assert len(work(shard)) == 1
    limit(shard, Rate(rate=10, period_ms=1_000))
    shard.now_ms += 60
    shard.add(shard.job())
    assert (work(shard), timers(shard)) == ([], {"t:acme": 100})
