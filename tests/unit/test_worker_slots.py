"""How far ahead a worker leases, how jobs are cut into chunks, and what can be taken back."""

from __future__ import annotations

import pytest

from queueapp.worker.line import Line
from queueapp.worker.placement import Placement
from queueapp.worker.slots import Chunk, Held, ThreadSlots, chunk_size, jobs_ahead
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
    chunk.current = chunk.jobs.popleft()
    return chunk


@pytest.mark.parametrize(
    ("mean_ms", "ahead", "chunk"),
    [(None, 1, 1), (0.0, 64, 32), (0.05, 64, 32), (0.5, 40, 4), (1.0, 20, 2), (5.0, 4, 1), (20.0, 1, 1), (900.0, 1, 1)],
)
def test_at_most_20_ms_of_work_are_leased_for_a_slot(mean_ms: float | None, ahead: int, chunk: int) -> None:
    assert jobs_ahead(mean_ms) == ahead
    assert chunk_size(mean_ms) == chunk
    if mean_ms and mean_ms < 20:
        assert ahead * mean_ms <= 20


def test_room_of_idle_slots() -> None:
    assert slots(4).room(None, NOW) == 4
    assert slots(4).room(50.0, NOW) == 4
    assert slots(4).room(5.0, NOW) == 16


def test_jobs_at_hand_are_taken_off() -> None:
    pool = slots(2)
    begin(pool, 3, ago_s=0.001)
    assert pool.room(5.0, NOW) == 2 * 4 - 3
    assert pool.room(50.0, NOW) == 1


def test_a_slot_whose_job_takes_long_is_no_room() -> None:
    """However quick the others are: what is leased for it would wait behind the long job (C068)."""
    pool = slots(1)
    begin(pool, ago_s=0.5)
    assert pool.room(0.1, NOW) == 0
    pool = slots(2)
    begin(pool, ago_s=0.5)
    assert pool.room(5.0, NOW) == 4


def test_what_waits_behind_a_slow_job_can_be_taken_back_and_the_rest_stays() -> None:
    pool = slots(2)
    slow, quick = begin(pool, 3, ago_s=0.5), begin(pool, 3, ago_s=0.001)
    assert len(pool.take_stuck(NOW)) == 2
    assert slow.current is not None
    assert not slow.jobs
    assert len(quick.jobs) == 2
    assert len(pool.take_unbegun()) == 2
    assert not pool.has_unbegun()


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
