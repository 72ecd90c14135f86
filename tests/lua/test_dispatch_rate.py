"""Dispatch rates: so many leases in a time, of a tenant, a lane, or with a key. Who has no token leaves the walk."""

from __future__ import annotations

from typing import Any

from queueapp.codec import digest
from queueapp.store.configuration import PoolConf, Rate
from queueapp.store.records import Returned
from tests.lua.harness import LEASE_MS, START_MS, Shard, completed, failed
from tests.lua.keyed import keyed, used, waiters
from tests.lua.rating import SECOND, each_policy, limit, limit_key, timers, who, work
from tests.lua.test_corners_suspects import busy, suspects


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
