"""partition_recover and promote_due: what time alone sets off."""

from __future__ import annotations

from queueapp.states import State
from queueapp.store.records import Completed
from tests.lua.harness import LEASE_MS, Shard, completed


def lose(shard: Shard, worker: str, want: int = 1, begin: int | None = None) -> list[str]:
    """A worker leases and is never heard of again."""
    ids = [job.id for job in shard.lease(want, worker, begin)]
    shard.now_ms += LEASE_MS + 1
    shard.store.partition_recover()
    return ids


def test_c010_what_has_ended_is_never_recovered(shard: Shard) -> None:
    """C010: a job that finished fine is later moved to failed as abandoned."""
    shard.add(*(shard.job() for _ in range(50)))
    shard.store.complete([completed(job) for job in shard.lease(50)])
    before = shard.snapshot()
    shard.now_ms += LEASE_MS * 10
    for _ in range(3):
        moved = shard.store.partition_recover()
        assert (moved.pending, moved.dead) == (0, 0)
    before["marks"][b"clock"] = str(shard.now_ms).encode()
    assert shard.snapshot() == before


def test_c012_recovery_looks_at_the_deadline_never_at_the_start(shard: Shard) -> None:
    """C003, C012: a legitimately long job keeps its lease by heartbeats."""
    shard.add(shard.job())
    (job,) = shard.lease()
    for _ in range(20):
        shard.now_ms += LEASE_MS // 3
        assert shard.store.extend_lease([(job.id, 1)], LEASE_MS) == []
        assert shard.store.partition_recover().pending == 0
    assert shard.store.complete([completed(job)]) == ["done"]


def test_c016_a_job_that_kills_its_worker_starts_max_crashes_times(shard: Shard) -> None:
    """C016: exactly 3 starts, then a dead letter that says why."""
    (job_id,) = shard.add(shard.job())
    starts = 0
    for number in range(6):
        starts += len(lose(shard, f"w{number}"))
    record = shard.reads.job(job_id)
    assert starts == 3
    assert record is not None
    assert (record.state, record.reason, record.crashes) == (State.DEAD, "worker_lost", 3)
    assert [error.kind for error in record.errors] == ["lost"] * 3


def test_c019_a_lost_job_runs_again_at_its_old_place(shard: Shard) -> None:
    """C019: after a hard kill the job is lost. Right: attempt 2, history shows attempt 1 as lost."""
    first, second = shard.add(shard.job(), shard.job())
    lose(shard, "w1")
    again = shard.lease(2, "w2")
    assert [(job.id, job.attempts, job.crashes) for job in again] == [(first, 2, 1), (second, 1, 0)]
    record = shard.reads.job(first)
    assert record is not None
    assert [(error.kind, error.attempt, error.worker) for error in record.errors] == [("lost", 1, "w1")]


def test_a_job_that_had_not_begun_is_forgiven(shard: Shard) -> None:
    culprit, neighbour = shard.add(shard.job(), shard.job())
    for number in range(3):
        lose(shard, f"w{number}", want=2, begin=1)
    record = shard.reads.job(neighbour)
    assert record is not None
    assert record.crashes == 0
    dead = shard.reads.job(culprit)
    assert dead is not None
    assert dead.state is State.DEAD


def test_a_suspect_is_leased_alone(shard: Shard) -> None:
    """From its second crash a job is leased by itself, so that only the culprit of a dying worker is counted."""
    (suspect,) = shard.add(shard.job())
    lose(shard, "w1")
    lose(shard, "w2")
    others = shard.add(*(shard.job("other") for _ in range(4)))
    busy = shard.lease(1, "w3")
    assert busy[0].id == suspect
    assert shard.lease(5, "w3") == [], "nothing beside a suspect"
    shard.store.complete([completed(busy[0])])
    assert [job.id for job in shard.lease(5, "w3")] == others


def test_a_busy_worker_passes_a_suspect_over_for_five_seconds_at_most(shard: Shard) -> None:
    (suspect,) = shard.add(shard.job("zeta"))
    lose(shard, "w1")
    lose(shard, "w2")
    shard.add(*(shard.job("alpha", cost=1) for _ in range(6)))
    (mine,) = shard.lease(1, "w3")
    assert mine.tenant == "alpha"
    assert [job.tenant for job in shard.lease(2, "w3")] == ["alpha", "alpha"], "the suspect is passed over"
    shard.now_ms += 5_000
    assert shard.lease(3, "w3") == [], "now the worker must run empty first"
    held = shard.snapshot()["held:w3"]
    shard.store.complete([Completed(id=job_id.decode(), attempts=1, run_ms=1) for job_id in held])
    assert [job.id for job in shard.lease(3, "w3")] == [suspect]


def test_a_suspect_that_is_passed_over_keeps_its_turn(shard: Shard) -> None:
    """V must not pass a child of the walk, or the lane would be served out of turn later."""
    shard.add(shard.job("zeta", lane="s"))
    lose(shard, "w1")
    lose(shard, "w2")
    shard.add(*(shard.job("zeta", lane="o", cost=1) for _ in range(8)))
    assert [job.lane for job in shard.lease(1, "w3") + shard.lease(4, "w3")] == ["o"] * 5
    waiting_at = dict(shard.snapshot()["lanes:zeta"])[b"s"]
    assert float(shard.snapshot()["policy"].get(b"V:zeta", 0)) <= waiting_at


def test_a_tenant_left_with_a_suspect_alone_is_passed_over_whole(shard: Shard) -> None:
    shard.add(shard.job("zeta", lane="s"))
    lose(shard, "w1")
    lose(shard, "w2")
    shard.add(shard.job("alpha", cost=1), shard.job("alpha", cost=1))
    shard.lease(1, "w3")
    shard.add(shard.job("zeta", lane="o", cost=1), shard.job("omega", cost=1))
    assert sorted(job.tenant for job in shard.lease(9, "w3")) == ["alpha", "omega", "zeta"]


def test_c020_one_dead_worker_delays_only_its_own_job(shard: Shard) -> None:
    """C020: after one worker dies, new jobs hang although other workers live."""
    shard.add(shard.job())
    (stuck,) = shard.lease(1, "dies")
    ids = shard.add(*(shard.job() for _ in range(30)))
    assert [job.id for job in shard.lease(30, "lives")] == ids
    record = shard.reads.job(stuck.id)
    assert record is not None
    assert record.state is State.ACTIVE


def test_c002_many_sweepers_promote_each_job_once(shard: Shard) -> None:
    """C002: copies of a delayed job grow with the number of workers."""
    shard.add(*(shard.job(delay_ms=1_000) for _ in range(200)))
    shard.now_ms += 1_000
    moved = [shard.store.promote_due(50).pending for _ in range(8)]
    assert sum(moved) == 200
    assert shard.snapshot()["counts"][b"w"] == b"200"
    assert len({job.id for _ in range(4) for job in shard.lease(50)}) == 200


def test_c098_none_starts_before_its_time(shard: Shard) -> None:
    """C098: jobs start minutes before their time."""
    shard.add(*(shard.job(delay_ms=delay) for delay in range(0, 60_000, 600)))
    begun = shard.now_ms
    started: list[tuple[str, int]] = []
    while len(started) < 100:
        shard.store.promote_due()
        started += [(job.id, shard.now_ms - begun) for job in shard.lease(10)]
        shard.now_ms += 250
    for number, (_, at_ms) in enumerate(started):
        assert 0 <= at_ms - number * 600 <= 250


def test_promoted_and_expired_in_one_sweep(shard: Shard) -> None:
    shard.add(shard.job(delay_ms=100, expires_after_ms=50), shard.job(delay_ms=100), shard.job(expires_after_ms=150))
    shard.now_ms += 100
    moved = shard.store.promote_due()
    assert (moved.pending, moved.expired, moved.more) == (1, 1, False)
    assert moved.next_due_ms == 50


def test_a_clock_that_steps_back_is_clamped_by_five_seconds_only(shard: Shard) -> None:
    shard.add(shard.job(delay_ms=1_000))
    shard.now_ms += 2_000
    shard.store.promote_due()
    shard.now_ms -= 4_000
    (job,) = shard.lease()
    assert job.leased_ms == shard.now_ms + 4_000
    shard.now_ms -= 60_000
    shard.add(shard.job())
    assert shard.snapshot()["stats"][b"clock_steps"] == b"1"
    (late,) = shard.lease()
    assert late.leased_ms == shard.now_ms
