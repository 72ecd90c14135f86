"""Every ending of a job frees the slots of its concurrency keys."""

from __future__ import annotations

import random

import pytest

from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import Returned
from tests.lua.harness import LEASE_MS, Shard, completed, failed
from tests.lua.keyed import configure_key, keyed, left, used

ENDINGS = ["complete", "fail", "retry", "lost", "lost_for_good", "given_back", "given_back_later", "unknown_task"]
ENDINGS += ["cycle", "cancelled", "moved", "expired", "redriven", "broken"]


def end(shard: Shard, ending: str, version: int) -> None:
    """A job with two keys comes, and goes in this way."""
    job = keyed(shard, "a", "b", limit=3, max_attempts=2, max_crashes=1 if ending == "lost_for_good" else 3)
    (job_id,) = shard.add(job)
    if ending == "cancelled":
        shard.store.cancel([job_id])
        return
    if ending == "expired":
        shard.store.cancel([job_id])
        shard.add(keyed(shard, "a", "b", limit=3, expires_after_ms=10))
        shard.now_ms += 10
        assert shard.store.promote_due(1000).expired == 1
        return
    if ending == "moved":
        shard.store.move_to_dlq([job_id], "why")
        shard.store.discard([job_id])
        return
    leased = next(job for job in shard.lease(50) if job.id == job_id)
    assert used(shard, "a") == used(shard, "b") == 1
    finish = completed(leased)
    if ending == "complete":
        shard.store.complete([finish])
    elif ending == "cycle":
        shard.store.cycle("w1", 10**6 + version, want=0, begin=0, lease_ms=LEASE_MS, finished=[finish])
        shard.seqs["w1"] = 10**6 + version
    elif ending == "fail":
        shard.store.fail([failed(leased)])
    elif ending == "redriven":
        shard.store.fail([failed(leased)])
        shard.store.retry_from_dlq([job_id])
    elif ending == "retry":
        shard.store.fail([failed(leased, retry_ms=10)])
    elif ending in ("lost", "lost_for_good"):
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    elif ending == "given_back":
        shard.store.partition_requeue([Returned(id=job_id, attempts=leased.attempts)])
    elif ending == "given_back_later":
        shard.store.partition_requeue([Returned(id=job_id, attempts=leased.attempts, delay_ms=10)])
    elif ending == "unknown_task":
        gone = Returned(id=job_id, attempts=leased.attempts, unknown_task=True, grace_ms=0)
        shard.store.partition_requeue([gone])
    elif ending == "broken":
        shard.client.set(shard.keys.job(job_id), b"no row of ours")
        shard.now_ms += LEASE_MS
        shard.store.partition_recover()
    assert used(shard, "a") == used(shard, "b") == 0
    assert [word for word in shard.store.complete([finish]) if word == "retry"] == []
    assert used(shard, "a") == 0
    shard.store.cancel([job_id])
    shard.store.discard([job_id])


@pytest.mark.parametrize("ending", ENDINGS)
def test_c074_every_ending_frees_the_slots_of_its_keys(shard: Shard, ending: str) -> None:
    for number in range(3):
        end(shard, ending, number)
    if ending != "broken":
        assert [name for name in left(shard) if not name.startswith("keyname")] == []


def test_c074_all_endings_in_random_order_leave_no_slot_behind(shard: Shard) -> None:
    """50 of each, beside jobs of the same keys that run and wait, with ceilings on pool, tenant and key."""
    chance = random.Random(74)
    shard.store.configure(1, pool=PoolConf(max_in_flight=60), scopes=[ScopeLimits(tenant="acme", max_in_flight=50)])
    configure_key(shard, 2, "a", 40)
    endings = [ending for ending in ENDINGS for _ in range(50)]
    chance.shuffle(endings)
    for number, ending in enumerate(endings):
        end(shard, ending, number)
    assert shard.store.verify() == []
    for scope in ("p", "t:acme"):
        assert shard.client.zcard(shard.keys[f"slots:{scope}"]) == 0
    assert [name for name in left(shard) if name not in ("keysets", "keynames", "keyusers", "conf keyed")] == []
