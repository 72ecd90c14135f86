"""Claims against sweeps, as fast as they go: a claim and its lease are one step, and each job is in one place."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import redis

from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, LeasedJob, NewJob
from queueapp.store.store import Store

pytestmark = pytest.mark.faults


def new_jobs(count: int) -> list[NewJob]:
    return [
        NewJob(id=new_id(), task="tests.noop", tenant=f"t{n % 5}", payload=b"{}", fingerprint="", max_crashes=1_000_000)
        for n in range(count)
    ]


@contextmanager
def sweeping(url: str, store: Store, every_s: float) -> Iterator[list[int]]:
    """Expired leases are looked for all the time; the counts of jobs that were recovered."""
    client = redis.Redis.from_url(url, protocol=2)
    sweeper, over, counts = Store(client, store.keys), threading.Event(), []

    def sweep() -> None:
        while not over.is_set():
            moved = sweeper.partition_recover(100)
            counts.append(moved.pending + moved.dead)
            time.sleep(every_s)

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join()
        client.close()


def work(store: Store, name: str, over: Callable[[], bool], lease_ms: int, body_s: float = 0.0) -> Counter[str]:
    """One worker that leases, takes its time and reports, until `over`; how its outcomes were received."""
    words: Counter[str] = Counter()
    seq = 0
    while not over():
        seq += 1
        leased: list[LeasedJob] = list(store.check_and_lease(name, seq, want=5, begin=5, lease_ms=lease_ms).jobs)
        if not leased:
            time.sleep(0.001)
        for job in leased:
            time.sleep(body_s)
            (word,) = store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1)])
            words[word] += 1
            words["late" if job.attempts > 1 else "first"] += 1
    return words


def all_ended(reads: Reads, count: int) -> Callable[[], bool]:
    deadline = time.monotonic() + 90

    def over() -> bool:
        assert time.monotonic() < deadline
        return reads.overview().ended >= count

    return over


def test_c006_a_lease_about_as_long_as_its_job(store: Store, reads: Reads, redis_url: str) -> None:
    """C006: a job ends up in the completed and the failed index at once. Right: in exactly one, once."""
    store.enqueue(new_jobs(1000))
    over = all_ended(reads, 1000)
    with sweeping(redis_url, store, 0.0) as recovered, ThreadPoolExecutor(4) as threads:
        told = list(threads.map(lambda n: work(store, f"w{n}", over, 12, 0.002), range(4)))
    assert sum(words["done"] for words in told) == 1000, "accepted once each"
    assert sum(recovered) > 0, "the trial must bring about races"
    seen = reads.overview()
    assert (seen.ended, seen.active, seen.waiting, seen.dead) == (1000, 0, 0, 0)
    assert seen.stats["completed"] == 1000
    assert store.verify() == []


def test_c007_sweeps_never_meet_a_job_between_claim_and_lease(store: Store, reads: Reads, redis_url: str) -> None:
    """C007: brand-new jobs look stalled. Right: nothing is recovered, each job has attempt 1."""
    for _ in range(5):
        store.enqueue(new_jobs(1000))
    over = all_ended(reads, 5000)
    with sweeping(redis_url, store, 0.001) as recovered, ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda n: work(store, f"w{n}", over, 30_000), range(8)))
    assert len(recovered) > 20
    assert sum(recovered) == 0
    assert sum(words["done"] for words in told) == sum(words["first"] for words in told) == 5000


def test_c013_a_pause_between_claim_and_body(store: Store, reads: Reads, redis_url: str) -> None:
    """C013: a sweep takes a job whose start is not written yet. Right: the claim wrote all of it."""
    store.enqueue(new_jobs(20))
    with sweeping(redis_url, store, 0.1) as recovered:
        leased = store.check_and_lease("w", 1, want=20, begin=0, lease_ms=10_000).jobs
        for job in leased:
            found = reads.job(job.id)
            assert found is not None
            assert (found.worker, found.attempts) == ("w", 1)
            assert found.leased_ms > 0
        time.sleep(1.5)
        words = store.complete([Completed(id=job.id, attempts=1, run_ms=1) for job in leased])
    assert sum(recovered) == 0
    assert words == ["done"] * 20
