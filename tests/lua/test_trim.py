"""trim: retention by age and by number, bounded per call, never inside the replay window."""

from __future__ import annotations

from typing import Any

from tests.lua.harness import LEASE_MS, Shard, completed, failed

KEEP: dict[str, Any] = {"result_ttl_ms": 3_600_000, "result_max": 1_000, "dead_ttl_ms": 3_600_000, "dead_max": 1_000}


def ended(shard: Shard, count: int, **options: Any) -> None:
    shard.add(*(shard.job(**options) for _ in range(count)))
    while jobs := shard.lease(100):
        shard.store.complete([completed(job, result=b"1") for job in jobs])


def test_ended_rows_go_by_age(shard: Shard) -> None:
    ended(shard, 5)
    shard.now_ms += 3_600_000
    ended(shard, 5)
    assert shard.store.trim(**KEEP) is False
    assert len(shard.snapshot()["ended"]) == 5
    assert len([key for key in shard.snapshot() if key.startswith("result:")]) == 5


def test_ended_rows_go_by_number_but_not_inside_the_replay_window(shard: Shard) -> None:
    ended(shard, 20)
    tight = {**KEEP, "result_max": 5}
    shard.store.trim(**tight)
    assert len(shard.snapshot()["ended"]) == 20, "a repeat must still find them"
    shard.now_ms += 60_000
    shard.store.trim(**tight)
    assert len(shard.snapshot()["ended"]) == 5


def test_retention_of_zero_still_keeps_the_replay_window(shard: Shard) -> None:
    ended(shard, 3)
    shard.now_ms += 59_999
    shard.store.trim(**{**KEEP, "result_ttl_ms": 0})
    assert len(shard.snapshot()["ended"]) == 3
    shard.now_ms += 1
    shard.store.trim(**{**KEEP, "result_ttl_ms": 0})
    assert "ended" not in shard.snapshot()


def test_c039_a_large_purge_is_bounded_per_call_and_goes_on(shard: Shard) -> None:
    """C039: cleaning many old jobs in one script blocks the server."""
    ended(shard, 1_200)
    shard.now_ms += 7_200_000
    calls = 1
    while shard.store.trim(**KEEP, limit=500):
        calls += 1
    assert calls == 3
    assert "ended" not in shard.snapshot()


def test_dead_letters_are_bounded_per_tenant_and_by_age(shard: Shard) -> None:
    for tenant, number in (("loud", 12), ("quiet", 3)):
        shard.add(*(shard.job(tenant) for _ in range(number)))
    shard.store.fail([failed(job) for job in shard.lease(20)])
    bounds = {**KEEP, "dead_max": 4}
    shard.store.trim(**bounds)
    assert len(shard.snapshot()["dead"]) == 15, "a repeated enqueue must still find them"
    shard.now_ms += 60_000
    shard.store.trim(**bounds)
    seen = shard.snapshot()
    assert (len(seen["dead:loud"]), len(seen["dead:quiet"]), len(seen["dead"])) == (4, 3, 7)
    assert seen["stats"][b"dead_dropped"] == b"8"
    shard.now_ms += 3_600_000
    shard.store.trim(**bounds)
    seen = shard.snapshot()
    assert "dead" not in seen
    assert seen["stats"][b"dead_dropped"] == b"8", "those that were old enough were not dropped for their number"


def test_silent_workers_are_forgotten_when_they_hold_nothing(shard: Shard) -> None:
    shard.add(shard.job())
    shard.store.register("idle", {"host": "h"}, 60_000)
    shard.lease(1, "busy")
    shard.now_ms += 600_000
    shard.store.trim(**KEEP)
    assert dict(shard.snapshot()["workers"]).keys() == {b"busy"}
    assert shard.store.forget("busy") == 1


def test_c049_helper_keys_go_with_their_last_user(shard: Shard) -> None:
    """C049: helper keys pile up for ever. Right: only configuration and small counters are left."""
    shard.add(
        *(
            shard.job(f"tenant{number}", lane=f"lane{number % 3}", idempotency=f"key{number}", idempotency_ttl_ms=1_000)
            for number in range(300)
        ),
        *(shard.job(f"tenant{number}", tier="continue", max_attempts=2) for number in range(100)),
    )
    for worker in ("w1", "w2"):
        while jobs := shard.lease(100, worker):
            half = len(jobs) // 2
            shard.now_ms += 5
            shard.store.complete([completed(job, result=b"1") for job in jobs[:half]])
            shard.store.fail([failed(job, retry_ms=0) for job in jobs[half:]])
            shard.store.promote_due(1_000)
    shard.add(shard.job("last", cost=100_000))
    shard.store.complete([completed(job) for job in shard.lease(1)])
    shard.add(*(shard.job("last") for _ in range(20)))
    for _ in range(20):
        shard.store.complete([completed(job) for job in shard.lease(1)])
    shard.now_ms += 3_600_000 + LEASE_MS
    while shard.store.trim(**KEEP, tenants=0):
        pass
    kinds = {key for key in shard.snapshot() if not key.startswith(("idem:", "worker:", "served:"))}  # expire
    assert kinds <= {"policy", "marks", "conf", "counts", "stats", "tasks", "names", "est", "workers", "wake"}
    fields = set(shard.snapshot()["policy"]) - {b"V:last"}
    assert fields <= {b"V"}


def test_many_rows_that_nobody_could_read_are_not_kept_for_ever(shard: Shard) -> None:
    for first in range(0, 10_030, 1_000):
        names = [f"{number:022d}" for number in range(first, min(first + 1_000, 10_030))]
        shard.client.sadd(shard.keys["quarantine"], *names)
        shard.client.mset({shard.keys.run(name): "of a wrong type" for name in names})
    shard.store.trim(**KEEP, limit=20)
    shard.store.trim(**KEEP, limit=20)
    assert shard.client.scard(shard.keys["quarantine"]) == 10_000
    rows = sum(1 for _ in shard.client.scan_iter(shard.keys.run("*"), count=1_000))
    assert rows == 10_000, "their rows go with them"
    shard.store.obliterate("t", force=True, limit=10**6)
