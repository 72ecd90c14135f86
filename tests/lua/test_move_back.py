"""What becomes of a job on its way that is cancelled or asked back; and of what one that moved leaves behind."""

from __future__ import annotations

import pytest

from queueapp.states import State
from queueapp.store.configuration import PoolConf
from tests.lua.harness import LEASE_MS, Shard, completed
from tests.lua.leaving import KEY, RIPE_MS, asked_back, bring, ended_as, move, packed_of, record


def test_who_is_cancelled_before_it_is_packed_ends_where_it_comes(shard: Shard, other: Shard) -> None:
    (job_id,) = shard.add(shard.job(keys=(KEY,), delay_ms=5_000))
    shard.store.depart([job_id], "other.0")
    assert shard.store.cancel([job_id]) == ["moving"]
    assert shard.store.cancel([job_id]) == ["moving"]
    assert shard.store.verify() == []
    assert bring(shard, other) == ["moved"]
    assert (ended_as(shard, job_id), ended_as(other, job_id)) == ("moved", "cancelled")
    assert other.snapshot()["stats"][b"cancelled"] == b"1"
    assert "keysets" not in other.snapshot()
    assert (other.store.verify(), other.lease()) == ([], [])
    assert not record(shard, job_id).cancelling


def test_who_is_cancelled_after_it_was_packed_is_not_let_go_before_the_other_pool_knows(
    shard: Shard, other: Shard
) -> None:
    waits, runs = shard.add(shard.job(), shard.job())
    shard.store.depart([waits, runs], "other.0")
    left = shard.store.departed().jobs
    other.store.arrive([(one.id, one.packed or b"") for one in reversed(left)])
    assert [job.id for job in other.lease()] == [runs]
    assert shard.store.cancel([waits, runs]) == ["moving"] * 2
    assert shard.store.arrived([(one.id, one.hop, one.cancelled) for one in left]) == ["cancelled"] * 2
    assert shard.store.verify() == []
    assert bring(shard, other) == ["moved"] * 2
    assert (ended_as(other, waits), record(other, runs).cancelling) == ("cancelled", True)


# -- asked back ------------------------------------------------------------------------------------------------------


def test_one_that_nobody_has_comes_back_to_its_place(shard: Shard, other: Shard) -> None:
    ids = shard.add(*(shard.job() for _ in range(3)), shard.job(delay_ms=600_000))
    shard.store.depart([ids[0], ids[3]], "other.0")
    asked_back(shard, ids[0], ids[3])
    assert other.store.came([(ids[0], 1), (ids[3], 1)]) == ["none"] * 2
    assert shard.store.recall([(ids[0], 1), (ids[3], 1)]) == ["back"] * 2
    assert shard.store.verify() == []
    assert [job.id for job in shard.lease(5)] == ids[:3], "at its place in line"
    late = record(shard, ids[3])
    assert (late.state, late.due_ms, late.moved_to) == (State.SCHEDULED, shard.now_ms - RIPE_MS - 1 + 600_000, "")
    assert shard.store.departed().jobs == []


def test_until_the_last_pack_is_too_old_it_stays(shard: Shard, other: Shard) -> None:
    """And the pack that was made last arrives nowhere once it may come back."""
    (job_id,) = shard.add(shard.job())
    shard.store.depart([job_id], "other.0")
    old = packed_of(shard)
    asked_back(shard, job_id)
    shard.now_ms -= 1
    assert shard.store.recall([(job_id, 1)]) == ["recalled"]
    assert [(one.back, one.packed) for one in shard.store.departed().jobs] == [(1, None)]
    shard.now_ms += 1
    assert [(one.back, one.packed) for one in shard.store.departed().jobs] == [(2, None)]
    other.now_ms = shard.now_ms
    assert other.store.arrive(old) == ["late"]
    assert shard.store.recall([(job_id, 1), (job_id, 1)]) == ["back"] * 2
    assert shard.store.recall([(job_id, 1)]) == ["back"], "a repeat"


def test_who_is_asked_back_once_is_asked_back_from_then_on(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.store.depart([job_id], "other.0")
    asked_back(shard, job_id)
    assert shard.store.recall([(job_id, 0)]) == ["recalled"]
    assert shard.store.recall([(job_id, 1)]) == ["back"]


def test_nothing_of_another_departure_brings_it_back(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.store.depart([job_id], "other.0")
    asked_back(shard, job_id)
    shard.store.recall([(job_id, 1)])
    shard.store.depart([job_id], "other.0")
    asked_back(shard, job_id)
    assert shard.store.recall([(job_id, 1)]) == ["already"]
    assert shard.store.recall([(job_id, 2), ("f" * 22, 1)]) == ["back", "gone"]
    assert shard.store.recall([(job_id, 0)]) == ["already"]


def test_the_other_pool_tells_by_the_departure_whether_it_has_it(shard: Shard, other: Shard) -> None:
    came, ended, left, never = shard.add(*(shard.job() for _ in range(4)))
    move(shard, other, [came, ended, left])
    [job] = [job for job in other.lease(3) if job.id == ended]
    other.store.complete([completed(job)])
    other.now_ms += LEASE_MS + 1
    other.store.partition_recover()
    other.store.depart([left], "here.0")
    other.store.arrived([(left, 2, False)])
    hops = [(came, 1), (came, 9), (ended, 1), (left, 1), (left, 2), (left, 3), (never, 1)]
    assert other.store.came(hops) == ["here", "here", "here", "here", "here", "none", "none"]


def test_one_that_was_cancelled_on_its_way_ends_when_it_comes_back(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job(keys=(KEY,)))
    shard.store.await_result(job_id, "web1")
    shard.store.depart([job_id], "other.0")
    shard.store.cancel([job_id])
    asked_back(shard, job_id)
    assert shard.store.recall([(job_id, 1), (job_id, 1)]) == ["cancelled"] * 2
    assert shard.store.recall([(job_id, 1)]) == ["cancelled"]
    assert (ended_as(shard, job_id), shard.lease()) == ("cancelled", [])
    assert shard.client.llen(shard.keys["done:web1"]) == 1
    assert "keysets" not in shard.snapshot()


@pytest.mark.parametrize("mode", ["direct", "scheduled"])
def test_one_that_was_ready_comes_back_in_any_mode(shard: Shard, mode: str) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(shard.job(), shard.job())
    shard.dispatch(term, most=1)
    shard.store.depart(ids, "other.0")
    if mode == "direct":
        shard.versions += 1
        shard.store.configure(shard.versions, pool=PoolConf(policy="fifo"))
    asked_back(shard, *ids)
    assert shard.store.recall([(job_id, 1) for job_id in ids]) == ["back"] * 2
    assert shard.store.verify() == []
    if mode == "scheduled":
        shard.dispatch(term)
    assert [job.id for job in shard.lease(5)] == ids


@pytest.mark.dirty_store
def test_one_without_a_readable_row_cannot_come_back(shard: Shard) -> None:
    (job_id,) = shard.add(shard.job())
    shard.store.depart([job_id], "other.0")
    shard.client.set(shard.keys.job(job_id), "nonsense")
    asked_back(shard, job_id)
    assert shard.store.recall([(job_id, 1)]) == ["lost"]


# -- what it leaves behind -------------------------------------------------------------------------------------------

GONE: dict[str, int] = {"result_ttl_ms": 0, "result_max": 0, "dead_ttl_ms": 0, "dead_max": 0, "replay_window_ms": 0}


def test_retention_leaves_what_leads_to_a_job(shard: Shard, other: Shard) -> None:
    """However long it waits there, and however many end here."""
    ids = shard.add(*(shard.job() for _ in range(3)))
    move(shard, other, ids[:2])
    shard.now_ms += 1
    [job] = shard.lease()
    shard.store.complete([completed(job)])
    shard.now_ms += 10**9
    shard.store.trim(**GONE)
    assert [ended_as(shard, job_id) for job_id in ids] == ["moved", "moved", ""]
    assert shard.store.verify() == []


def test_what_leads_to_nothing_goes_and_the_rest_is_asked_again_later(shard: Shard, other: Shard) -> None:
    ids = shard.add(*(shard.job() for _ in range(4)))
    move(shard, other, ids)
    assert shard.store.stubs(every_ms=1_000) == []
    shard.now_ms += 1_000
    page = shard.store.stubs(every_ms=1_000, most=3)
    assert [(stub.id, stub.to, stub.hop) for stub in page] == [(job_id, "other.0", 1) for job_id in ids[:3]]
    found = [(ids[0], 1, "lives"), (ids[1], 1, "gone"), (ids[2], 9, "gone"), ("f" * 22, 1, "gone")]
    assert [stub.id for stub in shard.store.stubs(found, every_ms=1_000)] == [ids[2], ids[3]], "another departure's"
    assert [ended_as(shard, job_id) for job_id in ids] == ["moved", "", "moved", "moved"]
    shard.now_ms += 1_000
    assert [stub.id for stub in shard.store.stubs(every_ms=1_000)] == [ids[2], ids[3], ids[0]]
    assert shard.store.verify() == []


def test_one_that_came_back_is_no_stub_any_more(shard: Shard, other: Shard) -> None:
    [job_id] = shard.add(shard.job())
    move(shard, other, [job_id])
    other.store.depart([job_id], "here.0")
    shard.store.arrive(packed_of(other))
    assert shard.store.stubs([(job_id, 1, "gone")], every_ms=0) == []
    assert [job.id for job in shard.lease()] == [job_id]
