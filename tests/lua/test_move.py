"""From one shard to another in three steps: a job is in one of them at a time to be run, whoever dies in between."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.states import Outcome, State
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.records import DebounceUse, SingletonUse
from queueapp.store.waits import Waits
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.leaving import KEY, RIPE_MS, asked_back, bring, move, packed_of, record


def test_a_job_goes_on_as_it_was(shard: Shard, other: Shard) -> None:
    options: dict[str, Any] = {
        "lane": "mail", "priority": 7, "cost": 2.5, "max_attempts": 4, "max_crashes": 2, "expires_after_ms": 90_000,
        "deadline_ms": shard.now_ms + 50_000, "tier": "continue", "payload": b"\x00\xff\n|{}",
    }  # fmt: skip
    [job_id] = shard.add(shard.job(**options))
    was = record(shard, job_id)
    shard.now_ms += 1_000
    assert move(shard, other, [job_id]) == ["moving"]
    now = record(other, job_id)
    for name in ("task", "tenant", "lane", "priority", "submitted_ms", "deadline_ms", "max_attempts", "payload"):
        assert getattr(now, name) == getattr(was, name), name
    assert now.state is State.PENDING
    stub = record(shard, job_id)
    assert (stub.state, stub.outcome, stub.moved_to, stub.payload) == (State.ENDED, Outcome.MOVED, "other.0", None)
    [leased] = other.lease()
    assert (leased.cost, leased.payload) == (2.5, options["payload"])
    assert other.store.complete([completed(leased)]) == ["done"]
    assert shard.lease() == []


def test_it_expires_there_when_it_would_have_here(shard: Shard, other: Shard) -> None:
    [job_id] = shard.add(shard.job(expires_after_ms=5_000))
    shard.now_ms += 4_000
    move(shard, other, [job_id])
    other.now_ms += 1_001
    assert other.store.promote_due().expired == 1


def test_what_its_runs_left_behind_goes_along(shard: Shard, other: Shard) -> None:
    [job_id] = shard.add(shard.job(max_attempts=3))
    [leased] = shard.lease()
    shard.store.save(job_id, leased.attempts, {"progress": b"1", "checkpoint": b'{"at":3}'})
    shard.store.fail([failed(leased, retry_ms=60_000)])
    move(shard, other, [job_id])
    now = record(other, job_id)
    assert (now.state, now.due_ms, now.error_count, now.attempts) == (State.SCHEDULED, shard.now_ms + 60_000, 1, 1)
    assert [error.kind for error in now.errors] == ["error"]
    assert now.data["progress"] == b"1"
    other.now_ms += 60_000
    other.store.promote_due()
    [again] = other.lease()
    assert (again.attempts, again.errors) == (2, 1), "its fence and its budget go on"
    assert other.client.get(other.keys[f"checkpoint:{job_id}"]) == b'{"at":3}'
    left = {name for name in shard.snapshot() if job_id in name}
    assert left == {f"run:{job_id}"}, "here nothing is left but where it went"


@pytest.mark.parametrize("waits", ["scheduled", "parked"])
def test_what_waits_for_its_moment_waits_for_it_there(shard: Shard, other: Shard, waits: str) -> None:
    if waits == "parked":
        shard.store.configure(200, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=10_000))])
        shard.store.enqueue([shard.job(parks=True), late := shard.job(parks=True)])
        shard.lease()
    else:
        shard.store.enqueue([late := shard.job(delay_ms=10_000)])
    move(shard, other, [late.id])
    assert (record(other, late.id).state, record(other, late.id).due_ms) == (State.SCHEDULED, shard.now_ms + 10_000)
    other.now_ms += 9_999
    other.store.promote_due()
    assert other.lease() == []
    other.now_ms += 1
    other.store.promote_due()
    assert [job.id for job in other.lease()] == [late.id]


def test_its_concurrency_keys_hold_there(shard: Shard, other: Shard) -> None:
    ids = shard.add(shard.job(keys=(KEY,)), shard.job(keys=(KEY,)), shard.job())
    move(shard, other, ids)
    assert [job.id for job in other.lease(3)] == [ids[0], ids[2]]
    assert other.snapshot()["keynames"] == {KEY.digest.encode(): b"customer:1"}
    assert "keysets" not in shard.snapshot(), "gone with its last user"


@pytest.mark.parametrize("where", ["ingress", "ready"])
def test_from_scheduled_dispatch_and_into_it(shard: Shard, other: Shard, where: str) -> None:
    term, there = shard.schedule(policy="fifo"), other.schedule(policy="fifo")
    shard.store.configure(300, scopes=[ScopeLimits(tenant="acme", max_in_flight=1)])
    shard.versions = 300
    ids = shard.add(shard.job())
    if where == "ready":
        shard.dispatch(term)
        assert record(shard, ids[0]).state is State.READY
    move(shard, other, ids)
    assert record(other, ids[0]).state is State.INGRESS
    other.dispatch(there)
    assert [job.id for job in other.lease()] == ids
    [mine] = shard.add(shard.job())
    shard.dispatch(term)
    assert [job.id for job in shard.lease()] == [mine], "the slot was given back"


def test_who_cannot_go_stays(shard: Shard) -> None:
    running, dead = shard.add(shard.job(), shard.job())
    first, second = shard.lease(2)
    shard.store.fail([failed(second)])
    single = shard.job(singleton=SingletonUse(digest="s" * 16))
    late = shard.job(debounce=DebounceUse(digest="b" * 16, period_ms=1_000), delay_ms=1_000)
    shard.store.enqueue([single, late])
    asked = [running, dead, single.id, late.id, "f" * 22]
    before = shard.snapshot()
    assert shard.store.depart(asked, "other.0") == ["active", "already", "held", "held", "gone"]
    assert shard.snapshot() == before
    assert (first.id, second.id) == (running, dead)


def test_on_its_way_nobody_runs_cancels_or_loses_it(shard: Shard, other: Shard) -> None:
    [job_id] = shard.add(shard.job(expires_after_ms=5_000))
    shard.store.depart([job_id], "other.0")
    assert shard.lease() == []
    assert shard.store.move_to_dlq([job_id], "why") == ["already"]
    shard.now_ms += 10 * LEASE_MS
    shard.store.promote_due()
    shard.store.partition_recover()
    shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=0, dead_max=0)
    assert [one.id for one in shard.store.departed().jobs] == [job_id]
    assert record(shard, job_id).state is State.MOVING


def test_every_step_may_be_repeated_and_another_may_go_on(shard: Shard, other: Shard) -> None:
    ids = shard.add(shard.job(), shard.job())
    assert shard.store.depart([*ids, ids[0]], "other.0") == ["moving"] * 3
    assert shard.store.depart(ids, "other.0") == ["moving"] * 2
    packed = [(one.id, one.packed or b"") for one in shard.store.departed().jobs]
    assert other.store.arrive(packed) == ["arrived"] * 2
    leased = other.lease(1)
    assert other.store.complete([completed(leased[0])]) == ["done"]
    assert other.store.arrive(packed) == ["exists"] * 2, "also the one that has ended there meanwhile"
    left = [(job_id, 1, False) for job_id in ids]
    assert shard.store.arrived(left) == ["moved"] * 2
    assert shard.store.arrived(left) == ["moved"] * 2
    assert shard.store.arrived([("f" * 22, 1, False)]) == ["gone"]
    assert shard.store.departed().jobs == []


def test_who_waits_for_the_result_is_told_when_it_is_there(shard: Shard, other: Shard) -> None:
    [job_id] = shard.add(shard.job())
    assert not shard.store.await_result(job_id, "web1")
    shard.store.depart([job_id], "other.0")
    assert not shard.client.exists(shard.keys["done:web1"])
    assert not shard.store.await_result(job_id, "web1"), "it has not ended"
    move(shard, other, [job_id])
    assert shard.client.lrange(shard.keys["done:web1"], 0, -1) == [job_id.encode()]


def test_a_page_is_bounded_by_bytes(shard: Shard) -> None:
    ids = shard.add(*(shard.job(payload=b"x" * 300_000) for _ in range(8)))
    shard.store.depart(ids, "other.0")
    assert 3 <= len(shard.store.departed().jobs) <= 5
    assert len(shard.store.departed(2).jobs) == 2


@pytest.mark.dirty_store
def test_a_row_that_nobody_can_read_is_told_and_holds_up_no_other(shard: Shard) -> None:
    ids = shard.add(shard.job(), shard.job())
    shard.store.depart(ids, "other.0")
    shard.client.set(shard.keys.job(ids[0]), "nonsense")
    assert [(one.id, one.packed is None) for one in shard.store.departed().jobs] == [(ids[0], True), (ids[1], False)]


def test_out_of_the_order_before_a_change_of_policy(shard: Shard, other: Shard) -> None:
    ids = shard.add(*(shard.job() for _ in range(4)))
    shard.versions += 1
    shard.store.configure(shard.versions, pool=PoolConf(policy="fifo"))
    move(shard, other, ids[:2])
    assert [job.id for job in shard.lease(4)] == ids[2:]
    assert [job.id for job in other.lease(4)] == ids[:2]


def test_it_may_come_back_and_go_again(shard: Shard, other: Shard) -> None:
    """What is left of an earlier departure is no job; and nothing that is late of one ends another."""
    [job_id] = shard.add(shard.job(max_attempts=3))
    shard.store.depart([job_id], "other.0")
    first = packed_of(shard)
    move(shard, other, [])
    assert other.store.depart([job_id], "here.0") == ["moving"]
    back = packed_of(other)
    assert shard.store.arrive(back) == ["arrived"]
    assert shard.store.verify() == []
    assert other.store.arrive(first) == ["exists"], "late, of the first departure"
    assert other.store.arrived([(job_id, 1, False)]) == ["already"], "so is this"
    assert [(one.id, one.hop) for one in other.store.departed().jobs] == [(job_id, 2)]
    assert other.store.arrived([(job_id, 2, False)]) == ["moved"]
    assert other.store.arrive(first) == ["exists"]
    move(shard, other, [job_id])
    assert [job.id for job in other.lease()] == [job_id]
    assert shard.lease() == []


@pytest.mark.parametrize("broken", [b"", b"\xc1", b"\x80", b"\x81\xa3row\x80"])
def test_one_that_nobody_can_read_lets_the_others_arrive(shard: Shard, other: Shard, broken: bytes) -> None:
    ids = shard.add(shard.job(), shard.job())
    shard.store.depart(ids, "other.0")
    one, two = packed_of(shard)
    assert other.store.arrive([one, ("f" * 22, broken), two, two]) == ["arrived", "broken", "arrived", "exists"]
    assert other.store.verify() == []
    assert [job.id for job in other.lease(5)] == ids


def test_what_was_packed_long_ago_must_be_packed_anew(shard: Shard, other: Shard) -> None:
    """It may have come, run and been removed meanwhile."""
    ids = shard.add(shard.job())
    shard.store.depart(ids, "other.0")
    old = packed_of(shard)
    other.now_ms = shard.now_ms = shard.now_ms + 30_001
    assert other.store.arrive(old) == ["late"]
    assert {*other.snapshot()} <= {"marks"}
    assert other.store.arrive(packed_of(shard)) == ["arrived"]


@pytest.mark.parametrize("apart_ms", [0, 1])
def test_a_page_goes_on_behind_the_last_one_whatever_came_or_went(shard: Shard, apart_ms: int) -> None:
    ids = shard.add(*(shard.job() for _ in range(7)))
    for job_id in ids[:6]:
        shard.store.depart([job_id], "other.0")
        shard.now_ms += apart_ms
    first = shard.store.departed(2)
    assert [one.id for one in first.jobs] == ids[:2]
    shard.store.arrived([(ids[1], 1, False)])
    second = shard.store.departed(2, first.cursor)
    assert [one.id for one in second.jobs] == ids[2:4], "nobody was left out, although the last one went"
    shard.store.depart([ids[6]], "other.0")
    third = shard.store.departed(4, second.cursor)
    assert [one.id for one in third.jobs] == ids[4:]
    assert third.cursor is None


def test_a_page_that_ends_by_its_bytes_goes_on(shard: Shard) -> None:
    ids = shard.add(*(shard.job(payload=b"x" * 700_000) for _ in range(3)))
    shard.store.depart(ids, "other.0")
    first = shard.store.departed()
    second = shard.store.departed(after=first.cursor)
    assert [one.id for one in (*first.jobs, *second.jobs)] == ids
    assert (first.cursor is None, second.cursor is None) == (False, True)


def test_some_of_them_by_name(shard: Shard) -> None:
    ids = shard.add(*(shard.job() for _ in range(3)))
    shard.store.depart(ids[:2], "other.0")
    assert [one.id for one in shard.store.departed(ids=[ids[1], ids[2], "f" * 22]).jobs] == [ids[1]]


# -- what it waited --------------------------------------------------------------------------------------------------


def test_what_it_waited_goes_along(shard: Shard, other: Shard) -> None:
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=[ScopeLimits(tenant="acme", paused=True)])
    [job_id] = shard.add(shard.job(max_attempts=3))
    shard.now_ms += 100  # paused
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=[ScopeLimits(tenant="acme")])
    shard.now_ms += 10
    [leased] = shard.lease()
    shard.now_ms += 1_000  # runs
    shard.store.fail([failed(leased, retry_ms=200)])
    shard.now_ms += 200
    shard.store.promote_due()
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=[ScopeLimits(tenant="acme", paused=True)])
    shard.now_ms += 50
    move(shard, other, [job_id])
    other.now_ms += 7
    [again] = other.lease()
    assert again.waits == Waits(backoff_ms=200, limits_ms=50, line_ms=7)
    assert record(other, job_id).waits == Waits(backoff_ms=200, limits_ms=150, line_ms=17)
    assert record(other, job_id).first_leased_ms == leased.leased_ms


@pytest.mark.parametrize("was", ["pending", "ingress", "ready"])
@pytest.mark.parametrize("goes", ["there", "back"])
def test_what_its_limits_cost_it_before_its_first_lease(shard: Shard, other: Shard, was: str, goes: str) -> None:
    term = None if was == "pending" else shard.schedule(policy="fifo")
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=[ScopeLimits(tenant="acme", paused=True)])
    [job_id] = shard.add(shard.job())
    shard.now_ms += 300
    shard.versions += 1
    shard.store.configure(shard.versions, scopes=[ScopeLimits(tenant="acme")])
    shard.now_ms += 20
    if was == "ready":
        assert term is not None
        shard.dispatch(term)
    shard.store.depart([job_id], "other.0")
    if goes == "there":
        other.now_ms = shard.now_ms
        bring(shard, other)
        place = other
    else:
        asked_back(shard, job_id)
        shard.now_ms -= RIPE_MS + 1
        back_ms = shard.now_ms
        shard.now_ms += RIPE_MS + 1
        shard.store.recall([(job_id, 1)])
        shard.now_ms = back_ms
        place = shard
        if term is not None:
            shard.dispatch(term)
    place.now_ms += 5
    [leased] = place.lease()
    assert leased.waits == Waits(limits_ms=300, line_ms=25)
