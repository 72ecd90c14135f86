"""A tenant's jobs and traces are gone, whatever state they are in, and nobody else's are touched."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store.configuration import KeyLimits, Rate, ScopeLimits
from queueapp.store.records import DebounceUse, KeyUse, SingletonUse
from tests.lua.harness import Shard, completed, failed

KEY = KeyUse(digest="d" * 16, limit=1, pattern="p" * 16, text="customer:1")


def of_acme(shard: Shard) -> dict[str, Any]:
    """Keys, fields and members that name the tenant."""
    found = {}
    for name, value in shard.snapshot().items():
        if name.partition(":")[0] in ("served", "conf", "limits"):
            continue
        if "acme" in name or "acme" in repr(value):
            found[name] = value
    return found


def test_jobs_of_every_state_are_gone_whole(shard: Shard) -> None:
    shard.store.configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=5)])
    ids = shard.add(shard.job(keys=(KEY,)), *(shard.job(max_attempts=2) for _ in range(5)))
    running, ended, dying, again, *_ = shard.lease(4)
    shard.store.save(running.id, 1, {"progress": b"1", "checkpoint": b"2"})
    shard.store.complete([completed(ended, result=b"secret")])
    shard.store.fail([failed(dying), failed(again, retry_ms=60_000)])
    late = shard.job(delay_ms=9_000)
    single = shard.job(singleton=SingletonUse(digest="s" * 16))
    bounced = shard.job(debounce=DebounceUse(digest="b" * 16, period_ms=500), idempotency="k" * 16)
    shard.store.enqueue([late, single, bounced])
    mine = [*ids, late.id, single.id, bounced.id]
    others = shard.add(shard.job("globex"))
    assert shard.store.erase("acme", [*mine, mine[0], *others, "f" * 22]) == ["erased"] * 10 + ["other", "gone"]
    left = shard.snapshot()
    assert not [name for name in left for job_id in mine if job_id in name]
    assert not [name for name in left if name.startswith(("slots", "single", "keysets", "held"))]
    assert shard.store.complete([completed(running)]) == ["gone"], "a late result is dropped"
    assert shard.store.save(running.id, 1, {"progress": b"3"}) == "gone"
    assert [job.id for job in shard.lease(9)] == others
    shard.now_ms += 10 * 86_400_000
    assert shard.store.erase_traces("acme", limit=10**6)[0] == "0"
    assert of_acme(shard) == {}


@pytest.mark.parametrize("where", ["ingress", "ready"])
def test_under_scheduled_dispatch(shard: Shard, where: str) -> None:
    term = shard.schedule(policy="fifo")
    ids = shard.add(shard.job())
    if where == "ready":
        shard.dispatch(term)
    assert shard.store.erase("acme", ids) == ["erased"]
    shard.dispatch(term)
    assert shard.lease() == []


def test_traces_of_others_and_settings_stay(shard: Shard) -> None:
    rate = Rate(rate=1, period_ms=60_000)
    scopes = [ScopeLimits(tenant=t, rate=rate, weight=2) for t in ("acme", "acme2")]
    shard.store.configure(1, scopes=scopes, keys=[KeyLimits(pattern="p" * 16, text="x", max_in_flight=3)])
    ids = shard.add(*(shard.job(t, idempotency="k" * 16) for t in ("acme", "acme2")))
    for job in shard.lease(2):
        shard.store.complete([completed(job)])
    shard.store.erase("acme", ids)
    for tenant in ("acme", "acme2"):
        shard.client.hset(shard.keys["est"], f"1|{tenant}", "160|20000|9")
    before = shard.snapshot()
    cursor, gone = shard.store.erase_traces("acme", limit=10**6)
    assert (cursor, gone >= 3) == ("0", True)
    after = shard.snapshot()
    went = {name for name in before if name not in after}
    assert went == {f"idem:acme|{'k' * 16}", "gcra:t:acme"}
    assert {b"1|acme", b"1|acme2"} & set(after["est"]) == {b"1|acme2"}
    assert after["limits"] == before["limits"]


def test_traces_go_in_bounded_shares(shard: Shard) -> None:
    shard.add(*(shard.job(idempotency=f"{n:016d}") for n in range(200)))
    cursor, shares = "0", 0
    while True:
        cursor, _ = shard.store.erase_traces("acme", cursor, 50)
        shares += 1
        if cursor == "0":
            break
    assert shares > 3
    assert not [name for name in shard.snapshot() if name.startswith("idem")]


def test_on_its_way_to_another_pool_it_is_left_to_the_one_that_brings_it(shard: Shard) -> None:
    ids = shard.add(shard.job())
    shard.store.depart(ids, "other.0")
    assert shard.store.erase("acme", ids) == ["other"]


def test_the_window_of_a_job_that_waits_stays(shard: Shard) -> None:
    """It came after the others were erased; without its window another call would make a second one."""
    first, second = (shard.job(debounce=DebounceUse(digest="b" * 16, period_ms=9_000)) for _ in range(2))
    shard.store.enqueue([first])
    shard.store.erase_traces("acme", limit=10**6)
    [answer] = shard.store.enqueue([second])
    assert (answer.outcome, answer.id) == ("debounced", first.id)
