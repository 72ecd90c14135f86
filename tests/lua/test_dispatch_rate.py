"""Dispatch rates: so many leases in a time, of a tenant, a lane, or with a key. Who has no token leaves the walk."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.codec import digest
from queueapp.store.configuration import KeyLimits, PoolConf, Rate, ScopeLimits
from queueapp.store.records import LeasedJob, Returned
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed, failed
from tests.lua.keyed import keyed, used, waiters
from tests.lua.test_corners_suspects import busy, suspects

POLICIES = ["tiered", "ring", "fifo", "priority", "edf", "aging", "wfq"]
each_policy = pytest.mark.parametrize("policy", POLICIES)
SECOND = Rate(rate=1, period_ms=1_000)


def limit(shard: Shard, rate: Rate | None, *, tenant: str = "acme", lane: str = "", **more: Any) -> None:
    shard.versions += 1
    scope = ScopeLimits(tenant=tenant, lane=lane, dispatch_rate=rate, **more)
    shard.store.configure(shard.versions, scopes=[scope])


def limit_key(shard: Shard, name: str, rate: Rate | None, *, ceiling: int | None = None) -> None:
    shard.versions += 1
    change = KeyLimits(pattern=digest(name), text=name, max_in_flight=ceiling, dispatch_rate=rate)
    shard.store.configure(shard.versions, keys=[change])


def work(shard: Shard, want: int = 10, worker: str = "w1") -> list[LeasedJob]:
    """A worker's call: what is due comes first."""
    shard.seqs[worker] = shard.seqs.get(worker, 0) + 1
    answer = shard.store.cycle(worker, shard.seqs[worker], want=want, begin=want, lease_ms=LEASE_MS)
    return list(answer.jobs)


def who(jobs: list[LeasedJob]) -> str:
    return "".join(job.tenant[0] for job in jobs)


def timers(shard: Shard) -> dict[str, int]:
    found: Any = shard.client.zrange(shard.keys["timers"], 0, -1, withscores=True)
    return {member.decode(): int(moment) - START_MS for member, moment in found}


@each_policy
def test_a_tenant_leaves_the_walk_without_a_token_and_costs_the_others_nothing(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    limit(shard, Rate(rate=2, period_ms=1_000, burst=2))
    shard.add(*(shard.job("acme") for _ in range(9)), *(shard.job("bert") for _ in range(9)))
    assert sorted(who(work(shard, 8))) == [*"aabbbbbb"]
    assert timers(shard) == {"t:acme": 500}
    assert shard.store.verify() == []
    assert who(work(shard, 2)) == "bb"
    shard.now_ms += 499
    assert who(work(shard, 1)) == "b"
    shard.now_ms += 1
    assert who(work(shard, 4)) == "a"
    assert timers(shard) == {"t:acme": 1_000}


@each_policy
def test_a_lane_without_a_token_leaves_its_tenant_its_other_lanes(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    limit(shard, SECOND, lane="mail")
    shard.add(*(shard.job(lane=lane) for lane in ("mail", "main") * 3))
    assert [job.lane for job in work(shard, 9)].count("mail") == 1
    assert timers(shard) == {"l:acme|mail": 1_000}
    shard.now_ms += 1_000
    assert [job.lane for job in work(shard, 9)] == ["mail"]


def test_a_job_needs_all_its_tokens_or_takes_none(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000, burst=5))
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2), lane="mail")
    limit_key(shard, "k", SECOND)
    shard.add(*(keyed(shard, "k", limit=9, lane="mail") for _ in range(3)))
    assert len(work(shard)) == 1
    # The key's refusal took nothing of the lane or the tenant: two more without it, of which the lane has one left.
    shard.add(*(shard.job(lane="mail") for _ in range(3)))
    assert len(work(shard)) == 1
    shard.add(*(shard.job() for _ in range(9)))
    assert len(work(shard)) == 3
    assert timers(shard) == {"l:acme|mail": 1_000, "t:acme": 1_000}


def test_a_key_without_a_token_parks_its_jobs_and_offers_them_the_next(shard: Shard) -> None:
    limit_key(shard, "k", Rate(rate=2, period_ms=1_000))
    tenants = ("ann", "bob", "cat", "dan")
    shard.add(*(keyed(shard, "k", limit=99, tenant=tenant) for tenant in tenants * 2))
    shard.add(shard.job("eve"))
    assert who(work(shard)) == "ae"
    assert (waiters(shard, "k"), used(shard, "k")) == (["bob", "cat", "dan", "ann"], 1)
    due: Any = shard.client.zscore(shard.keys["waitkeys"], digest("k"))
    assert due == START_MS + 500
    leased = []
    for _ in range(8):
        shard.now_ms += 500
        assert shard.store.verify() == []
        leased.append(who(work(shard)))
    assert leased == [*"bcdabcd", ""]


def test_a_key_has_slots_and_tokens_and_both_must_be_there(shard: Shard) -> None:
    limit_key(shard, "k", Rate(rate=1, period_ms=1_000, burst=2), ceiling=3)
    shard.add(*(keyed(shard, "k", tenant=tenant) for tenant in ("ann", "bob", "cat", "dan", "eve")))
    running = work(shard)
    assert who(running) == "ab"
    shard.store.complete([completed(running[0])])
    assert work(shard) == [], "a slot, and no token"
    shard.now_ms += 1_000
    running += work(shard)
    shard.now_ms += 1_000
    running += work(shard)
    assert who(running) == "abcd"
    shard.now_ms += 5_000
    assert work(shard) == [], "a token, and no slot"
    shard.store.complete([completed(running[1])])
    assert who(work(shard)) == "e"


def test_two_patterns_that_make_one_key_have_rates_of_their_own(shard: Shard) -> None:
    limit_key(shard, "p", SECOND)
    use = keyed(shard, "k", limit=99).keys[0]
    for pattern in ("p", "q"):
        own = type(use)(digest=use.digest, text="k", limit=99, pattern=digest(pattern))
        shard.add(*(shard.job(keys=(own,), lane=pattern) for _ in range(3)))
    assert sorted(job.lane for job in work(shard)) == ["p", "q", "q", "q"]


def test_the_answer_says_when_the_next_token_comes_and_parked_workers_hear_of_it(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=700))
    shard.add(shard.job(), shard.job())
    shard.client.delete(shard.keys["wake"])
    answer = shard.store.cycle("w1", 1, want=5, begin=5, lease_ms=LEASE_MS)
    assert (len(answer.jobs), answer.runnable, answer.next_due_ms) == (1, False, 700)
    assert shard.client.zrange(shard.keys["wake"], 0, -1) == [b"t"]
    shard.now_ms += 700
    answer = shard.store.cycle("w2", 1, want=0, begin=0, lease_ms=LEASE_MS)
    assert (answer.runnable, answer.next_due_ms) == (True, -1)
    assert shard.client.zscore(shard.keys["wake"], "w") == 0


def test_a_key_without_a_token_wakes_parked_workers_too(shard: Shard) -> None:
    limit_key(shard, "k", Rate(rate=1, period_ms=700))
    shard.add(*(keyed(shard, "k", limit=9) for _ in range(2)))
    shard.client.delete(shard.keys["wake"])
    answer = shard.store.cycle("w1", 1, want=5, begin=5, lease_ms=LEASE_MS)
    assert (len(answer.jobs), answer.runnable, answer.next_due_ms) == (1, False, 700)
    assert shard.client.zrange(shard.keys["wake"], 0, -1) == [b"t"]


def test_schedulers_sweep_what_no_worker_does(shard: Shard) -> None:
    limit(shard, SECOND)
    shard.add(shard.job(), shard.job())
    assert len(shard.lease(5)) == 1
    shard.now_ms += 1_000
    assert shard.lease(5) == [], "the moment came, nobody swept"
    assert shard.store.promote_due().next_due_ms == -1
    assert len(shard.lease(5)) == 1


def test_a_guaranteed_minimum_does_not_override_a_rate(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2), min_share=5)
    shard.add(*(shard.job(tenant) for tenant in ("acme", "bert") * 5))
    assert who(work(shard, 4)) == "aabb"


def test_what_comes_back_unrun_returns_no_token(shard: Shard) -> None:
    """What was leased counts, whatever became of it: a body may have begun that nobody heard of."""
    limit(shard, SECOND)
    shard.add(shard.job(), shard.job())
    [job] = work(shard)
    assert shard.store.partition_requeue([Returned(id=job.id, attempts=job.attempts)]) == ["done"]
    assert work(shard) == []
    shard.now_ms += 1_000
    assert [again.id for again in work(shard)] == [job.id]


def test_a_retry_and_a_lost_lease_need_a_token_as_any_lease(shard: Shard) -> None:
    limit(shard, SECOND)
    shard.add(shard.job(max_attempts=3))
    [job] = work(shard)
    shard.store.fail([failed(job, retry_ms=10)])
    shard.now_ms += 10
    assert work(shard) == []
    shard.now_ms += 990
    [job] = work(shard)
    shard.now_ms += LEASE_MS
    assert len(work(shard, worker="w2")) == 1, "recovered and leased: a token has come long since"


def test_a_suspect_that_is_passed_over_takes_no_token(shard: Shard) -> None:
    (suspect,) = suspects(shard, ["acme"])
    limit(shard, SECOND, paused=True)
    busy(shard, "w3")
    limit(shard, SECOND)
    assert shard.lease(5, "w3") == [], "passed over: its worker holds another job"
    assert [job.id for job in shard.lease(5, "w4")] == [suspect]


def test_a_repeated_call_takes_no_further_token(shard: Shard) -> None:
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2))
    shard.add(*(shard.job() for _ in range(5)))
    first = shard.store.cycle("w1", 1, want=1, begin=1, lease_ms=LEASE_MS)
    again = shard.store.cycle("w1", 1, want=1, begin=1, lease_ms=LEASE_MS)
    assert [job.id for job in first.jobs] == [job.id for job in again.jobs]
    assert len(work(shard, 5, "w2")) == 1


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


def test_a_scope_without_a_rate_pays_no_command(shard: Shard) -> None:
    """Nothing of rates is read or written for those that have none, not even beside those that have: but for one look
    at the next moment of all, which each worker's call is told."""

    def commands(tenant: str) -> list[str]:
        with shard.client.monitor() as monitor:
            shard.add(*(shard.job(tenant) for _ in range(3)))
            jobs = shard.lease(3, worker=tenant)
            shard.store.complete([completed(job) for job in jobs])
            shard.client.echo("enough")
            seen: list[str] = []
            for event in monitor.listen():
                if event["command"].startswith("ECHO"):
                    return seen
                seen.append(event["command"])
        raise AssertionError

    commands("bert")
    plain = len(commands("bill"))
    limit(shard, SECOND)
    shard.add(shard.job(), shard.job())
    assert len(work(shard, 9)) == 1
    seen = commands("carl")
    of_rates = [command for command in seen if "gcra" in command or "timers" in command]
    assert [command.split()[0] for command in of_rates] == ["ZRANGE"]
    assert len(seen) == plain + 1


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


def test_an_offer_of_a_key_is_not_used_up_by_a_tenant_without_a_token(shard: Shard) -> None:
    """Nobody waits behind it: it goes back to its lane, and the next one that waits is let in at once."""
    limit(shard, Rate(rate=1, period_ms=3_600_000), tenant="ann")
    shard.add(shard.job("ann"))
    assert who(work(shard)) == "a"
    shard.add(keyed(shard, "k", tenant="holder"))
    [holder] = work(shard)
    shard.add(*(keyed(shard, "k", tenant=tenant) for tenant in ("ann", "bob")))
    assert (work(shard), waiters(shard, "k")) == ([], ["ann", "bob"])
    shard.store.complete([completed(holder)])
    assert who(shard.lease(5)) == "b"


def test_a_rate_and_a_ceiling_that_is_being_filled_stand_side_by_side(shard: Shard) -> None:
    shard.add(*(shard.job() for _ in range(6)))
    running = work(shard, 2)
    limit(shard, Rate(rate=1, period_ms=1_000, burst=2), max_in_flight=3)
    assert len(work(shard)) == 1, "the two that run take slots of the ceiling, and no token"
    shard.store.complete([completed(job) for job in running])
    assert len(work(shard)) == 1, "two slots are free, and there is one token"


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
