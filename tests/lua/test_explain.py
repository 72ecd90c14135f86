"""`explain`: what one job waits for, at one moment; read only, bounded, and never fooled by what is not ours."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.states import State
from queueapp.store.configuration import KeyLimits, PoolConf, Rate, ScopeLimits
from queueapp.store.records import KeyUse, NewJob, Returned
from queueapp.store.wait_facts import Holder, WaitFacts
from tests.lua.asking import LIVE_MS, ask
from tests.lua.harness import LEASE_MS, Shard, completed, failed


def lose(shard: Shard, job_id: str, worker: str = "crashing") -> None:
    """The job is leased, begins, and its worker is heard of no more."""
    assert [job.id for job in shard.lease(1, worker)] == [job_id]
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()


def test_nothing_is_known_of_an_unknown_id(shard: Shard) -> None:
    assert ask(shard, "0" * 22) == WaitFacts(now_ms=shard.now_ms, record=None)


def test_the_first_of_an_empty_pool_is_next(shard: Shard) -> None:
    [job_id] = shard.add(shard.job(expires_after_ms=5_000))
    facts = ask(shard, job_id)
    assert facts.record is not None
    assert (facts.record.state, facts.record.task, facts.record.payload) == (State.PENDING, "shop.tasks.bill", None)
    assert (facts.place, facts.ahead, facts.ahead_exact, facts.others) == (0, 0, True, 0)
    assert (facts.workers, facts.slots, facts.held, facts.pending) == (0, 0, 0, 1)
    assert facts.expires_ms == shard.now_ms + 5_000


@pytest.mark.parametrize("policy", ["fifo", "tiered"])
def test_pauses_and_ceilings_with_those_who_hold_them(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    ids = shard.add(*[shard.job(lane="bulk") for _ in range(4)])
    shard.store.configure(
        1,
        pool=PoolConf(policy=policy, paused=True, max_in_flight=3),
        scopes=[
            ScopeLimits(tenant="acme", max_in_flight=2),
            ScopeLimits(tenant="acme", lane="bulk", max_in_flight=2, paused=True),
        ],
    )
    facts = ask(shard, ids[0])
    assert (facts.pool.paused, facts.tenant.paused, facts.lane.paused) == (True, False, True)
    assert (facts.pool.limit, facts.tenant.limit, facts.tenant.used, facts.tenant.full) == (3, 2, 0, False)
    assert facts.tenant.holders == ()

    shard.store.configure(
        2,
        pool=PoolConf(policy=policy, max_in_flight=2),
        scopes=[
            ScopeLimits(tenant="acme", max_in_flight=2),
            ScopeLimits(tenant="acme", lane="bulk", max_in_flight=2),
        ],
    )
    shard.lease(2)
    facts = ask(shard, ids[2])
    assert (facts.pool.full, facts.tenant.full, facts.lane.full) == (True, True, True)
    assert facts.pool.holders == ()
    assert facts.tenant.holders == facts.lane.holders == tuple(Holder(id=each, tenant="acme") for each in ids[:2])
    assert ask(shard, ids[2], most=1).tenant.holders == (Holder(id=ids[0], tenant="acme"),)
    assert facts.place == 0
    assert facts.ahead is None, "its tenant stands in no walk"


@pytest.mark.parametrize("policy", ["fifo", "priority", "edf", "aging", "wfq", "tiered", "ring"])
def test_those_before_it_are_those_that_are_leased_before_it(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy), scopes=[ScopeLimits(tenant="t1", weight=3.0)])
    jobs = [
        shard.job(
            f"t{number % 3}",
            lane=f"l{number % 2}",
            priority=(number * 7) % 5,
            deadline_ms=shard.now_ms + 1_000 * ((number * 5) % 4) if number % 4 else 0,
            cost=10 + number % 3,
        )
        for number in range(30)
    ]
    ids = shard.add(*jobs)
    said = {job_id: ask(shard, job_id) for job_id in ids}
    order = [job.id for job in shard.lease(30)]
    for place, job_id in enumerate(order):
        assert (said[job_id].ahead, said[job_id].ahead_exact) == (place, True), (policy, place)
        assert said[job_id].ordered == (policy not in ("tiered", "ring"))


@pytest.mark.parametrize("policy", ["fifo", "edf", "tiered"])
def test_beyond_the_bound_it_is_at_least_so_many(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    ids = shard.add(*[shard.job(f"t{number}") for number in range(20)])
    facts = ask(shard, ids[-1], walked=5, looks=8)
    assert facts.ahead is not None
    assert facts.ahead_exact is False
    assert 0 < facts.ahead < 19
    if policy == "tiered":
        assert facts.ahead == facts.turn == 11, "each of those before it starts one at least"


def test_the_pool_s_own_ceiling_does_not_hide_its_place(shard: Shard) -> None:
    ids = shard.add(*[shard.job() for _ in range(5)])
    shard.store.configure(1, pool=PoolConf(max_in_flight=1))
    shard.lease(1)
    facts = ask(shard, ids[4])
    assert (facts.pool.full, facts.place, facts.ahead) == (True, 3, 3)


def test_turns_of_tenants_and_both_tiers_of_a_lane(shard: Shard) -> None:
    shard.add(shard.job("a"), shard.job("b"))
    fresh, continued = shard.add(shard.job("c"), shard.job("c", tier="continue"))
    facts = ask(shard, fresh)
    assert (facts.turn, facts.turns, facts.lane_turns, facts.others, facts.continues) == (2, 3, 1, 1, False)
    assert ask(shard, continued).continues is True


@pytest.mark.parametrize("policy", ["fifo", "tiered"])
def test_a_suspect_and_what_stands_behind_it(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    [suspect] = shard.add(shard.job(max_crashes=9))
    lose(shard, suspect)
    lose(shard, suspect)
    other, behind = shard.add(shard.job("other"), shard.job())
    if policy == "tiered":
        assert ask(shard, other).ahead == 0, "whoever holds something passes the suspect over"
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", paused=True)])
    assert [job.id for job in shard.lease(1)] == [other]
    shard.store.configure(2, scopes=[ScopeLimits(tenant="acme", clear=True)])
    since = shard.now_ms
    shard.lease(1)  # holds something, so that it passes the suspect over
    facts = ask(shard, suspect)
    assert (facts.suspect, facts.passed_ms, facts.ahead, facts.head_suspect) == (True, since, None, "")
    facts = ask(shard, behind)
    assert (facts.suspect, facts.head_suspect, facts.ahead) == (
        False,
        suspect,
        1 if policy == "fifo" else None,
    )


def test_workers_with_their_slots_and_what_they_hold(shard: Shard) -> None:
    ids = shard.add(*[shard.job() for _ in range(3)])
    for worker, slots in (("w1", "2"), ("w2", "1")):
        shard.store.register(worker, {"slots": slots}, LIVE_MS)
    shard.lease(2, "w1")
    facts = ask(shard, ids[2])
    assert (facts.workers, facts.slots, facts.held) == (2, 3, 2)
    shard.store.register("w3", {}, LIVE_MS)
    assert ask(shard, ids[2]).slots == 0, "one did not say"
    shard.now_ms += LIVE_MS + 1
    assert ask(shard, ids[2]).workers == 0


def test_scheduled_by_time_by_backoff_and_for_an_unknown_task(shard: Shard) -> None:
    [job_id] = shard.add(shard.job(delay_ms=1_000, max_attempts=3))
    facts = ask(shard, job_id)
    assert facts.record is not None
    assert (facts.record.state, facts.record.due_ms) == (State.SCHEDULED, shard.now_ms + 1_000)
    shard.now_ms += 1_000
    shard.store.promote_due()
    [leased] = shard.lease()
    shard.store.fail([failed(leased, retry_ms=2_000)])
    facts = ask(shard, job_id)
    assert facts.record is not None
    assert (facts.record.due_ms, facts.record.error_count) == (shard.now_ms + 2_000, 1)
    assert facts.record.errors[-1].detail["class"] == "ValueError"
    shard.now_ms += 2_000
    shard.store.promote_due()
    [leased] = shard.lease()
    unknown = Returned(id=job_id, attempts=leased.attempts, delay_ms=500, unknown_task=True, grace_ms=60_000)
    shard.store.partition_requeue([unknown])
    assert ask(shard, job_id).unknown_since_ms == shard.now_ms


def test_running_taken_ahead_and_what_is_learnt(shard: Shard) -> None:
    shard.add(shard.job())
    [job] = shard.lease()
    shard.now_ms += 400
    shard.store.complete([completed(job, run_ms=400)])
    first, second = shard.add(shard.job(), shard.job())
    shard.lease(2, begin=1)
    facts = ask(shard, first)
    assert facts.record is not None
    assert (facts.record.worker, facts.begun, facts.usual_ms) == ("w1", True, 400)
    assert (facts.lease_until_ms, facts.heartbeat_ms) == (shard.now_ms + LEASE_MS, shard.now_ms)
    assert ask(shard, second).begun is False


def test_dead_and_ended(shard: Shard) -> None:
    ended, dead = shard.add(shard.job(), shard.job())
    one, two = shard.lease(2)
    shard.store.complete([completed(one)])
    shard.store.fail([failed(two)])
    record = ask(shard, dead).record
    assert record is not None
    assert (record.state, record.reason, len(record.errors)) == (State.DEAD, "error", 1)
    record = ask(shard, ended).record
    assert record is not None
    assert (record.state, record.outcome) == (State.ENDED, "completed")


def test_the_pace_is_of_this_minute_and_the_last(shard: Shard) -> None:
    [last] = shard.add(shard.job("late"))
    shard.store.configure(1, scopes=[ScopeLimits(tenant="late", paused=True)])
    assert ask(shard, last).window_ms == 0, "too short a time"
    shard.add(*[shard.job() for _ in range(6)])
    shard.lease(4)
    shard.now_ms += 3_000
    assert ask(shard, last).window_ms == 0, "still too short"
    shard.now_ms += 60_000 - shard.now_ms % 60_000 + 10_000
    shard.lease(2, "w2")
    facts = ask(shard, last)
    assert (facts.window_ms, facts.started, facts.tenant_started) == (70_000, 6, 0)
    shard.now_ms += 60_000
    assert ask(shard, last).started == 2


@pytest.mark.dirty_store
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("job:{}", "no row at all"),
        ("job:{}", "p1zz|\n"),
        ("job:{}", ["a", "list"]),
        ("run:{}", "a string"),
        ("run:{}", {"s": "x", "t": "acme", "n": "1"}),
        ("run:{}", {"s": "e", "o": "no outcome", "t": "acme", "n": "1"}),
        ("run:{}", {"s": "p", "t": "acme", "n": "1", "c": "many", "sm": "soon"}),
        ("run:{}", {"s": "e", "o": "completed", "t": b"\xff", "n": "1", "sm": "1"}),
    ],
)
def test_what_is_not_ours_is_said_to_be_broken(shard: Shard, key: str, value: Any) -> None:
    job_id = "x" * 22
    name = shard.keys[key.format(job_id)]
    if isinstance(value, dict):
        shard.client.hset(name, mapping=value)
    elif isinstance(value, list):
        shard.client.rpush(name, *value)
    else:
        shard.client.set(name, value)
    assert ask(shard, job_id) == WaitFacts(now_ms=shard.now_ms, record=None, broken=True)


@pytest.mark.dirty_store
def test_a_job_that_was_set_aside_is_said_to_be_broken(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    shard.client.set(shard.keys.job(job_id), "gibberish")
    shard.lease()
    assert ask(shard, job_id).broken
    shard.client.delete(shard.keys.job(job_id))
    assert ask(shard, job_id).broken
    [other] = shard.add(shard.job())
    shard.client.copy(shard.keys.job(other), shard.keys.job(job_id))
    assert ask(shard, job_id).broken
    assert not ask(shard, other).broken


@pytest.mark.dirty_store
def test_a_row_whose_hash_is_none_is_said_to_be_broken(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    shard.client.set(shard.keys.run(job_id), "a string")
    assert ask(shard, job_id).broken


def test_contents_do_not_leave_the_server(shard: Shard) -> None:
    [job_id] = shard.add(shard.job(payload=b"secret-of-acme"))
    [leased] = shard.lease()
    shard.store.partition_requeue([Returned(id=job_id, attempts=leased.attempts)])
    call = shard.store._call("explain", id=job_id, live_ms=LIVE_MS, most=8, walked=100, looks=2_000)
    reply = shard.store._run(call)
    assert b"acme" in repr(reply).encode()
    assert b"secret-of-acme" not in repr(reply).encode()


def key(name: str, limit: int) -> KeyUse:
    return KeyUse(digest=f"d{name}", text=f"customer:{name}", limit=limit, pattern="p")


def keyed(shard: Shard, *names: str, tenant: str = "acme", limit: int = 1, **options: Any) -> NewJob:
    return shard.job(tenant, keys=tuple(key(name, limit) for name in names), **options)


def test_a_full_key_with_those_who_hold_it_whoever_they_are(shard: Shard) -> None:
    [theirs] = shard.add(keyed(shard, "1", tenant="globex"))
    shard.lease()
    first, second, plain = shard.add(keyed(shard, "1", "2"), keyed(shard, "1", "2"), shard.job())
    [job] = shard.lease(1, "w2")
    assert job.id == plain, "those with the full key step aside"
    facts = ask(shard, second)
    one, two = facts.keys
    assert (one.text, one.limit, one.used, one.full) == ("customer:1", 1, 1, True)
    assert one.holders == (Holder(id=theirs, tenant="globex"),)
    assert (two.full, two.holders) == (False, ())
    assert (facts.aside, facts.place, facts.ahead) == (True, 1, None)
    shard.store.configure(1, keys=[KeyLimits(pattern="p", text="customer:{id}", max_in_flight=None)])
    facts = ask(shard, first)
    assert [each.limit for each in facts.keys] == [None, None]
    assert not any(each.full for each in facts.keys)


@pytest.mark.parametrize("policy", ["fifo", "edf", "tiered"])
def test_sub_lanes_are_counted_with_the_lane(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    jobs = [
        shard.job("other") if number % 5 == 4 else keyed(shard, str(number % 3), limit=9) if number % 2 else shard.job()
        for number in range(20)
    ]
    ids = shard.add(*jobs)
    said = {job_id: ask(shard, job_id) for job_id in ids}
    order = [job.id for job in shard.lease(20)]
    assert [said[job_id].ahead for job_id in order] == list(range(20))
    tenants = {job.id: job.tenant for job in jobs}
    mine = [job_id for job_id in order if tenants[job_id] == "acme"]
    assert [said[job_id].place for job_id in mine] == list(range(len(mine)))


@pytest.mark.parametrize("policy", ["fifo", "tiered"])
def test_what_stands_aside_stands_before_nobody(shard: Shard, policy: str) -> None:
    shard.store.configure(1, pool=PoolConf(policy=policy))
    shard.add(keyed(shard, "1"))
    shard.lease()
    *_, plain = shard.add(keyed(shard, "1"), keyed(shard, "1"), shard.job())
    facts = ask(shard, plain)
    assert (facts.place, facts.ahead, facts.aside) == (0, 0, False)


def test_a_suspect_with_keys_holds_up_its_lane(shard: Shard) -> None:
    [suspect] = shard.add(keyed(shard, "1", max_crashes=9))
    lose(shard, suspect)
    lose(shard, suspect)
    same, plain = shard.add(keyed(shard, "1"), shard.job())
    for job_id in (same, plain):
        assert ask(shard, job_id).head_suspect == suspect


@pytest.mark.dirty_store
def test_a_row_of_hostile_numbers_is_read_or_refused_but_never_raises(shard: Shard) -> None:
    [job_id] = shard.add(shard.job())
    [leased] = shard.lease()
    shard.store.partition_requeue([Returned(id=leased.id, attempts=leased.attempts)])
    for field, value in (("c", "many"), ("uk", "long ago"), ("sp", "-"), ("st", "")):
        before = shard.client.hget(shard.keys.run(job_id), field)
        shard.client.hset(shard.keys.run(job_id), field, value)
        assert ask(shard, job_id).broken, field
        shard.client.hdel(shard.keys.run(job_id), field)
        if before is not None:
            shard.client.hset(shard.keys.run(job_id), field, before)
    assert not ask(shard, job_id).broken


def test_the_tokens_of_all_keys_of_a_job_are_read_at_once(shard: Shard) -> None:
    names, second = ("1", "2", "3", "4"), Rate(rate=1, period_ms=1_000)
    shard.store.configure(1, keys=[KeyLimits(pattern="p", text="customer", max_in_flight=9, dispatch_rate=second)])
    shard.add(keyed(shard, *names, limit=9))
    shard.lease()
    [job_id] = shard.add(keyed(shard, *names, limit=9))
    shard.client.config_resetstat()
    facts = shard.store.explain(job_id, live_ms=LIVE_MS, most=8, walked=100, looks=2_000)
    stats: Any = shard.client.info("commandstats")
    assert {each.scope for each in facts.throttled} == {f"d{name}" for name in names}
    assert stats["cmdstat_mget"]["calls"] == 1
