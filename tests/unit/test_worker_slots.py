"""How far ahead a worker leases, how jobs are cut into chunks, and what can be taken back."""

from __future__ import annotations

import threading
from time import monotonic
from typing import cast

import pytest

from queueapp.worker.line import Line
from queueapp.worker.placement import Placement
from queueapp.worker.room import Room
from queueapp.worker.slots import STUCK_S, UNSCHEDULED_S, Chunk, Held, ThreadSlots, chunk_size, may_wait
from tests.unit.fake_store import FakeStore, leased

NOW = 100.0


def slots(count: int) -> ThreadSlots:
    """Slots whose threads are not started: chunks stay where they are put."""
    return ThreadSlots(count, lambda held: None, lambda chunk: None)


def held(job_id: str = "j") -> Held:
    return Held(leased(job_id), Line("default", FakeStore(), "me", lease_ms=30_000))


def begin(pool: ThreadSlots, number: int = 1, *, ago_s: float) -> Chunk:
    """A chunk whose first job was begun so long ago."""
    before = set(pool.outstanding)
    pool.put([held(f"j{n}") for n in range(number)], NOW - ago_s)
    chunk = next(chunk for key, chunk in pool.outstanding.items() if key not in before)
    chunk.taken, chunk.current = True, chunk.jobs.popleft()
    return chunk


@pytest.mark.parametrize(
    ("mean_ms", "one", "sixteen", "chunk"),
    [
        (None, 0, 0, 1),
        (0.0, 64, 1024, 32),
        (0.05, 64, 1024, 32),
        (0.5, 40, 640, 4),
        (1.0, 20, 320, 2),
        (5.0, 4, 64, 1),
        (20.0, 1, 16, 1),
        (20.5, 0, 15, 1),
        (40.0, 0, 8, 1),
        (50.0, 0, 0, 1),
        (900.0, 0, 0, 1),
    ],
)
def test_at_most_20_ms_of_work_wait_for_a_slot(mean_ms: float | None, one: int, sixteen: int, chunk: int) -> None:
    assert (may_wait(mean_ms, 1), may_wait(mean_ms, 16)) == (one, sixteen)
    assert chunk_size(mean_ms) == chunk
    assert sixteen * (mean_ms or 0) <= 16 * 20


def test_room_of_idle_slots() -> None:
    assert slots(4).room(None, NOW) == 4
    assert slots(4).room(50.0, NOW) == 4
    assert slots(4).room(40.0, NOW) == 4 + 2
    assert slots(4).room(5.0, NOW) == 4 + 16


def test_jobs_at_hand_are_taken_off() -> None:
    pool = slots(2)
    begin(pool, 3, ago_s=0.001)
    assert pool.room(5.0, NOW) == 2 + 8 - 3
    assert pool.room(50.0, NOW) == 1


def test_a_slot_whose_job_takes_long_is_no_room() -> None:
    """However quick the others are: what is leased for it would wait for their slots (C068)."""
    pool = slots(1)
    begin(pool, ago_s=0.5)
    assert pool.room(0.1, NOW) == 0
    pool = slots(2)
    begin(pool, ago_s=0.5)
    assert pool.room(5.0, NOW) == 1 + 4


def test_a_job_that_takes_twice_the_mean_is_not_long_yet() -> None:
    pool = slots(2)
    begin(pool, ago_s=0.035)
    assert pool.room(18.0, NOW) == 2 + 2 - 1
    assert pool.room(17.0, NOW) == 1 + 1


def test_what_waits_behind_a_slow_job_can_be_taken_back_and_the_rest_stays() -> None:
    pool = slots(2)
    slow, quick = begin(pool, 3, ago_s=0.5), begin(pool, 3, ago_s=0.001)
    assert len(pool.take_stuck(NOW)) == 2
    assert slow.current is not None
    assert not slow.jobs
    assert len(quick.jobs) == 2
    assert len(pool.take_unbegun()) == 2
    assert not pool.has_unbegun()


def test_what_waits_for_a_thread_that_is_free_is_not_taken_back_early() -> None:
    """The machine has merely not scheduled it; behind two such chunks the queue waits for a slot like any other."""
    pool = slots(3)
    begin(pool, ago_s=0.5)
    for name in ("first", "second", "third"):
        pool.put([held(name)], NOW - STUCK_S)
    assert [one.job.id for one in pool.take_stuck(NOW)] == ["third"]
    assert pool.take_stuck(NOW + 0.9) == []
    assert [one.job.id for one in pool.take_stuck(NOW + UNSCHEDULED_S)] == ["first", "second"]


def test_a_thread_that_took_a_chunk_is_free_for_no_other(gate: threading.Event) -> None:
    def body(one: Held) -> None:
        gate.wait(10)

    pool = ThreadSlots(1, body, lambda chunk: None)
    pool.start()
    pool.put([held("running"), held("behind")], monotonic())
    pool.put([held("queued")], monotonic())
    running = next(iter(pool.outstanding.values()))
    while running.current is None:
        gate.wait(0.001)
    assert [one.job.id for one in pool.take_stuck(running.since + 0.5)] == ["behind", "queued"]
    gate.set()
    assert pool.close(10)


def test_nothing_is_leased_ahead_of_what_waits_for_a_free_slot() -> None:
    """A job that was leased before is told of when a slot is free; quick ones leased ahead would take each before."""
    pool = slots(2)
    placement, line = Placement(pool), Line("default", FakeStore(), "me", lease_ms=30_000)
    line.mean_ms = 1.0
    room = Room(placement, None, [line])
    begin(pool, ago_s=0.001)
    begin(pool, ago_s=0.001)
    assert room.of(line, NOW) == 2 + 2 * 20 - 2
    room.place(line, [Held(leased("again", attempts=2), line)], NOW)
    assert room.of(line, NOW) == 0
    pool.through(next(iter(pool.outstanding.values())))
    assert room.of(line, NOW) == 2 + 2 * 20 - 1 - 1
    assert [one.job.id for one in placement.announced(line)] == ["again"]


def test_what_waits_for_a_store_that_is_away_keeps_others_from_nothing() -> None:
    pool = slots(1)
    away, other = (Line(name, store, "me", lease_ms=30_000) for name, store in (("a", FakeStore()), ("b", FakeStore())))
    placement = Placement(pool)
    room = Room(placement, None, [away, other])
    other.mean_ms = 1.0
    begin(pool, ago_s=0.001)
    room.place(away, [Held(leased("again", attempts=2), away)], NOW)
    assert room.of(other, NOW) == 0
    cast("FakeStore", away.store).away = True
    away.exchange(0, 0)
    assert away.away
    assert room.of(other, NOW) == 1 + 20 - 1 - 1


def test_a_job_that_was_taken_for_quick_is_told_once_it_is_not() -> None:
    pool = slots(1)
    chunk = begin(pool, ago_s=0.5)
    assert chunk.current is not None
    placement, line = Placement(pool), chunk.current.line
    assert placement.slow_unreported(line, NOW)
    assert not placement.slow_unreported(held().line, NOW), "each pool tells of its own"
    assert not placement.slow_unreported(line, NOW - 0.49), "a quick one ends before it need be told"
    chunk.current.begun = True
    assert not placement.slow_unreported(line, NOW)


def test_only_what_is_known_to_be_quick_may_begin_untold() -> None:
    pool = slots(1)
    placement, job = Placement(pool), held()
    assert not placement.is_quick(job), "an unknown task"
    placement.learn(job.job.task, 1.0)
    assert placement.is_quick(job)
    assert not placement.is_quick(Held(leased("again", attempts=2), job.line))
    for _ in range(30):
        placement.learn(job.job.task, 500.0)
    assert not placement.is_quick(job)
