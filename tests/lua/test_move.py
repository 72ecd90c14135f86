"""From one shard to another in three steps: a job is in one of them at a time to be run, whoever dies in between."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from queueapp.states import Outcome, State
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.keys import ShardKeys
from queueapp.store.records import DebounceUse, KeyUse, SingletonUse
from queueapp.store.views import JobRecord
from tests.lua.harness import LEASE_MS, Shard, completed, failed

KEY = KeyUse(digest="d" * 16, limit=1, pattern="p" * 16, text="customer:1")


@pytest.fixture
def other(shard: Shard, redis_client: redis.Redis, shard_keys: ShardKeys) -> Any:
    """The pool to which jobs go, on the same clock."""
    fresh = Shard(redis_client, ShardKeys(namespace=shard_keys.namespace, code="other"), now_ms=shard.now_ms)
    yield fresh
    assert fresh.store.verify() == []


def record(shard: Shard, job_id: str) -> JobRecord:
    found = shard.reads.job(job_id)
    assert found is not None
    return found


def move(shard: Shard, other: Shard, ids: list[str]) -> list[str]:
    """All three steps, `shard` verified after each."""
    words = shard.store.depart(ids, "other.0")
    assert shard.store.verify() == []
    left = shard.store.departed()
    other.now_ms = shard.now_ms
    other.store.arrive([(one.id, one.packed) for one in left if one.packed is not None])
    assert other.store.verify() == []
    shard.store.arrived([(one.id, one.hop) for one in left])
    return words


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
    assert shard.store.cancel([job_id]) == ["already"]
    assert shard.store.move_to_dlq([job_id], "why") == ["already"]
    shard.now_ms += 10 * LEASE_MS
    shard.store.promote_due()
    shard.store.partition_recover()
    shard.store.trim(result_ttl_ms=0, result_max=0, dead_ttl_ms=0, dead_max=0)
    assert [one.id for one in shard.store.departed()] == [job_id]
    assert record(shard, job_id).state is State.MOVING


def test_every_step_may_be_repeated_and_another_may_go_on(shard: Shard, other: Shard) -> None:
    ids = shard.add(shard.job(), shard.job())
    assert shard.store.depart([*ids, ids[0]], "other.0") == ["moving"] * 3
    assert shard.store.depart(ids, "other.0") == ["moving"] * 2
    packed = [(one.id, one.packed or b"") for one in shard.store.departed()]
    assert other.store.arrive(packed) == ["arrived"] * 2
    leased = other.lease(1)
    assert other.store.complete([completed(leased[0])]) == ["done"]
    assert other.store.arrive(packed) == ["exists"] * 2, "also the one that has ended there meanwhile"
    left = [(job_id, 1) for job_id in ids]
    assert shard.store.arrived(left) == ["moved"] * 2
    assert shard.store.arrived(left) == ["moved"] * 2
    assert shard.store.arrived([("f" * 22, 1)]) == ["gone"]
    assert shard.store.departed() == []


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
    assert 3 <= len(shard.store.departed()) <= 5
    assert len(shard.store.departed(2)) == 2


@pytest.mark.dirty_store
def test_a_row_that_nobody_can_read_is_told_and_holds_up_no_other(shard: Shard) -> None:
    ids = shard.add(shard.job(), shard.job())
    shard.store.depart(ids, "other.0")
    shard.client.set(shard.keys.job(ids[0]), "nonsense")
    assert [(one.id, one.packed is None) for one in shard.store.departed()] == [(ids[0], True), (ids[1], False)]


def test_out_of_the_order_before_a_change_of_policy(shard: Shard, other: Shard) -> None:
    ids = shard.add(*(shard.job() for _ in range(4)))
    shard.versions += 1
    shard.store.configure(shard.versions, pool=PoolConf(policy="fifo"))
    move(shard, other, ids[:2])
    assert [job.id for job in shard.lease(4)] == ids[2:]
    assert [job.id for job in other.lease(4)] == ids[:2]


def packed_of(shard: Shard) -> list[tuple[str, bytes]]:
    return [(one.id, one.packed or b"") for one in shard.store.departed()]


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
    assert other.store.arrived([(job_id, 1)]) == ["already"], "so is this"
    assert [(one.id, one.hop) for one in other.store.departed()] == [(job_id, 2)]
    assert other.store.arrived([(job_id, 2)]) == ["moved"]
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


def test_pages_behind_those_that_are_stuck(shard: Shard) -> None:
    ids = shard.add(*(shard.job() for _ in range(5)))
    shard.store.depart(ids, "other.0")
    assert [one.id for one in shard.store.departed(2, 2)] == ids[2:4]
    assert shard.store.departed(2, 5) == []
