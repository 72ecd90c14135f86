"""C056: a hash of a wrong type beside a job that may expire or is scheduled is set aside, and nothing else waits."""

from __future__ import annotations

import pytest

from tests.lua.harness import LEASE_MS, Shard, completed

pytestmark = pytest.mark.dirty_store


@pytest.mark.parametrize("how", ["lease", "cycle", "promote", "cancel", "move"])
def test_a_wrong_hash_of_an_expired_job_holds_nobody_up(shard: Shard, how: str) -> None:
    bad, good = shard.add(shard.job(expires_after_ms=100), shard.job())
    shard.client.set(shard.keys.run(bad), "somebody else's")
    shard.now_ms += 200
    if how == "promote":
        shard.store.promote_due()
    elif how == "cancel":
        assert shard.store.cancel([bad]) == ["gone"]
    elif how == "move":
        assert shard.store.move_to_dlq([bad], "by_hand") == ["gone"]
    if how == "cycle":
        assert [job.id for job in shard.store.cycle("w1", 1, want=2, begin=2, lease_ms=LEASE_MS).jobs] == [good]
    else:
        assert [job.id for job in shard.lease(2)] == [good]
    assert shard.snapshot()["quarantine"] == {bad.encode()}


def test_what_was_set_aside_is_counted_out_once(shard: Shard) -> None:
    bad, good = shard.add(shard.job(expires_after_ms=100), shard.job())
    shard.client.set(shard.keys.run(bad), "somebody else's")
    assert [job.id for job in shard.lease(2)] == [good]
    shard.now_ms += 200
    for _ in range(2):
        shard.store.promote_due()
    assert shard.snapshot()["counts"] == {b"w": b"0"}


def test_a_scheduled_job_without_its_hash_is_counted_out_of_its_tenant(shard: Shard) -> None:
    bad, good = shard.add(shard.job("acme", delay_ms=100), shard.job("globex", delay_ms=100))
    shard.client.set(shard.keys.run(bad), "somebody else's")
    shard.now_ms += 300
    shard.store.promote_due()
    assert [job.id for job in shard.lease(2)] == [good]
    assert shard.snapshot()["counts"] == {b"w": b"0"}


def test_a_neighbour_finishes_whole_beside_it(shard: Shard) -> None:
    (mine,) = shard.add(shard.job("a"))
    (leased,) = shard.lease()
    (bad,) = shard.add(shard.job("b", expires_after_ms=100))
    shard.client.set(shard.keys.run(bad), "somebody else's")
    shard.now_ms += 200
    answer = shard.store.cycle("w1", 2, want=1, begin=1, lease_ms=LEASE_MS, finished=[completed(leased)])
    assert list(answer.finished) == ["done"]
    seen = shard.snapshot()
    assert seen["ended"] == [(mine.encode(), shard.now_ms)]
    assert "held:w1" not in seen
