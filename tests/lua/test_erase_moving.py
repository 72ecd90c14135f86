"""A tenant's job that is on its way to another pool, or was: it is erased, and nothing late brings it back."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from queueapp.store.keys import ShardKeys
from tests.lua.harness import Shard, completed


@pytest.fixture
def other(shard: Shard, redis_client: redis.Redis, shard_keys: ShardKeys) -> Any:
    fresh = Shard(redis_client, ShardKeys(namespace=shard_keys.namespace, code="other"), now_ms=shard.now_ms)
    yield fresh
    assert fresh.store.verify() == []


def pack(shard: Shard, job_id: str) -> tuple[str, bytes]:
    [one] = [one for one in shard.store.departed().jobs if one.id == job_id]
    assert one.packed is not None
    return one.id, one.packed


def test_on_its_way_it_is_asked_back_and_stays_until_the_other_pool_is_told(shard: Shard) -> None:
    ids = shard.add(shard.job(), shard.job())
    shard.store.depart(ids, "other.0")
    for mode in ("look", "", "", "bar"):
        assert shard.store.erase("acme", ids[:1], mode=mode) == ["moving other.0"]
        assert bool(shard.client.hexists(shard.keys.run(ids[0]), "bk")) is (mode != "look")
    [first, second] = sorted(shard.store.departed().jobs, key=lambda one: one.id)
    assert first.packed is None, "nobody brings it any more"
    assert second.packed is not None
    assert shard.store.erase("acme", ids, mode="barred") == ["erased", "moving other.0"], (
        "that one was not asked back before"
    )
    assert shard.store.erase("acme", ids, mode="barred") == ["gone", "erased"]
    assert "moving" not in shard.snapshot()


def test_a_late_pack_brings_nothing_back(shard: Shard, other: Shard) -> None:
    """Packed before it was asked back, and sent when it has gone here."""
    [job_id] = shard.add(shard.job())
    shard.store.depart([job_id], "other.0")
    late = pack(shard, job_id)
    assert shard.store.erase("acme", [job_id]) == ["moving other.0"]
    assert other.store.erase("acme", [job_id], mode="bar") == ["gone"]
    assert shard.store.erase("acme", [job_id], mode="barred") == ["erased"]
    assert other.store.arrive([late]) == ["exists"]
    assert other.lease() == []
    assert [name for name in other.snapshot() if job_id in name] == [f"erased:{job_id}"]
    assert b"acme" not in repr(other.snapshot()[f"erased:{job_id}"]).encode()


def test_what_had_arrived_is_not_brought_a_second_time(shard: Shard, other: Shard) -> None:
    """Two movers had packed it; it is erased where the one brought it, before the other comes."""
    [job_id, gone] = shard.add(shard.job(), shard.job())
    shard.store.depart([job_id, gone], "other.0")
    late = [pack(shard, job_id), pack(shard, gone)]
    assert other.store.arrive(late) == ["arrived", "arrived"]
    [leased] = other.lease()
    other.store.complete([completed(leased, result=b"1")])
    assert other.store.erase("acme", [job_id, gone]) == ["erased", "erased"]
    assert other.store.arrive(late) == ["exists", "exists"]
    assert not [name for name in other.snapshot() if name.startswith(("job", "run", "result"))]


def test_what_a_move_left_behind_goes(shard: Shard, other: Shard) -> None:
    [job_id] = shard.add(shard.job())
    shard.store.depart([job_id], "other.0")
    other.store.arrive([pack(shard, job_id)])
    shard.store.arrived([(job_id, 1, False)])
    assert shard.store.erase("globex", [job_id]) == ["other"]
    assert shard.store.erase("acme", [job_id]) == ["erased"]
    assert {name for name in shard.snapshot() if job_id in name} == {f"erased:{job_id}"}
    assert "stubs" not in shard.snapshot()


def test_the_note_outlasts_every_pack_and_goes_by_itself(shard: Shard, other: Shard) -> None:
    [job_id] = shard.add(shard.job())
    other.store.erase("acme", [job_id], mode="bar")
    left = other.client.pttl(other.keys[f"erased:{job_id}"])
    assert 90_000 < left <= 600_000
    assert shard.store.erase("globex", [job_id], mode="bar") == ["other"]
    assert f"erased:{job_id}" not in shard.snapshot(), "a job of another tenant may come"
    shard.store.erase("acme", [job_id])
    assert f"erased:{job_id}" not in shard.snapshot(), "one that never moved needs none"
