"""The longest wait: exact while one look suffices, never too large, and right after a round through a larger pool."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queueapp.inspection import waits
from queueapp.inspection.overview import pool_status
from queueapp.inspection.waits import longest_wait
from queueapp.store import shards
from queueapp.store.views import Standing, StandingJob
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene

NOW_MS = 1_000_000


@pytest.fixture(autouse=True)
def _no_sweep_goes_on() -> Iterator[None]:
    waits._sweeps.clear()
    yield
    waits._sweeps.clear()


def waiting(name: str, wait_ms: int) -> StandingJob:
    return StandingJob(tenant=name, lane="main", id=name, since_ms=NOW_MS - wait_ms)


class LargePool:
    """Answers with one tenant a call; `oldest` of them waits where the test says."""

    def __init__(self, tenants: int) -> None:
        self.keys = shards.keys("large")
        self.jobs = [waiting(f"t{number}", 10) for number in range(tenants)]
        self.calls: list[tuple[int, tuple[tuple[str, str], ...]]] = []

    def oldest(self, *, first: int, lane: int, cursor: str, lanes: tuple[tuple[str, str], ...]) -> Standing:
        self.calls.append((first, lanes))
        named = [job for job in self.jobs if (job.tenant, job.lane) in lanes]
        here = self.jobs[first : first + 1] if first >= 0 else []
        then = first + 1 if first + 1 < len(self.jobs) else -1
        jobs = sorted([*named, *here], key=lambda job: job.since_ms)
        return Standing(jobs=jobs, first=then, lane=0, cursor="-1", now_ms=NOW_MS)


def test_an_empty_pool_waits_for_nothing(scene: Scene, round_trips: RoundTrips) -> None:
    reads = shards.reads("default")
    reads.sizes(["dead"])
    longest_wait(reads)
    round_trips.since_last()
    assert longest_wait(reads) == waits.LongestWait(ms=0, exact=True, job=None)
    assert round_trips.since_last() == 1


def test_a_small_pool_is_exact_with_one_look(scene: Scene) -> None:
    (first,) = scene.add()
    scene.add(3, tenant="zeta")
    found = longest_wait(shards.reads("default"))
    assert found.job is not None
    assert (scene.keys.public_id(found.job.id), found.exact) == (first, True)
    record = shards.reads("default").job(found.job.id)
    assert record is not None
    assert found.job.since_ms == record.submitted_ms
    assert pool_status("default").oldest_wait_ms >= found.ms


def test_a_large_pool_is_swept_over_several_readings_and_the_oldest_stays_known() -> None:
    pool = LargePool(10)
    pool.jobs[7] = waiting("t7", 5_000)
    answers = [longest_wait(pool) for _ in range(4)]  # type: ignore[arg-type]  # as much of it as is asked here
    assert [(answer.ms, answer.exact) for answer in answers] == [
        (10, False),
        (5_000, False),
        (5_000, False),
        (5_000, False),
    ]
    assert [first for first, _ in pool.calls] == [*range(10), *range(4)], "a round, and the next begins"
    assert ("t7", "main") in pool.calls[-waits.CALLS][1], "looked at again"


def test_one_that_was_leased_meanwhile_is_not_remembered() -> None:
    pool = LargePool(10)
    pool.jobs[0] = waiting("t0", 5_000)
    assert longest_wait(pool).ms == 5_000  # type: ignore[arg-type]  # as much of it as is asked here
    pool.jobs[0] = waiting("t0", 1)
    assert longest_wait(pool).ms == 10  # type: ignore[arg-type]  # as much of it as is asked here


def test_no_reading_asks_more_than_four_times() -> None:
    pool = LargePool(100)
    for reading in range(1, 4):
        longest_wait(pool)  # type: ignore[arg-type]  # as much of it as is asked here
        assert len(pool.calls) == reading * 4


def test_a_few_calls_that_reach_the_end_are_not_one_moment() -> None:
    pool = LargePool(3)
    assert longest_wait(pool).exact is False  # type: ignore[arg-type]  # as much of it as is asked here
    assert longest_wait(LargePool(1)).exact is True  # type: ignore[arg-type]  # as much of it as is asked here
