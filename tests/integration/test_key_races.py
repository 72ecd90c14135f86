"""Concurrency keys under real races: producers that find the key full just as its holder ends."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from queueapp.codec import digest
from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, KeyUse, NewJob
from queueapp.store.store import Store

KEY = KeyUse(digest=digest("one"), text="one", limit=1, pattern=digest("one"))
TICK_S = 1.0
"""The schedulers look for what was missed this often; none runs here, and nobody sweeps."""


def produce(store: Store, number: int, count: int) -> None:
    chance = random.Random(number)
    for _ in range(count):
        job = NewJob(
            id=new_id(), task="tests.noop", tenant=f"t{number % 3}", payload=b"{}", fingerprint="", keys=(KEY,)
        )
        store.enqueue([job])
        time.sleep(chance.uniform(0, 0.003))


def work(store: Store, name: str, total: int, done: list[str], most: list[int]) -> int:
    """A worker that sleeps on the wake token, as the real one does; it never looks around by itself. How often it slept
    for a whole tick while jobs waited for the key and nobody had it."""
    chance, seq, lost = random.Random(name), 0, 0
    while len(done) < total:
        seq += 1
        leased = store.check_and_lease(name, seq, want=4, begin=4, lease_ms=30_000).jobs
        if not leased:
            if store.client.bzpopmin([store.keys["wake"]], timeout=TICK_S) is None:
                free = not store.client.exists(store.keys[f"slots:k:{KEY.digest}"])
                lost += free and store.client.exists(store.keys["parked"])
            continue
        most.append(int(store.client.zcard(store.keys[f"slots:k:{KEY.digest}"])) + len(leased) - 1)
        time.sleep(chance.uniform(0.001, 0.003))
        assert store.complete([Completed(id=leased[0].id, attempts=1, run_ms=1)]) == ["done"]
        done.append(leased[0].id)
    return lost


@pytest.mark.parametrize("each", [25, pytest.param(250, marks=pytest.mark.faults)])
def test_c075_a_job_enqueued_while_the_holder_ends_is_woken(
    store: Store, reads: Reads, redis_url: str, each: int
) -> None:
    """C075: enqueue decides to block while the holder is just finishing, and nobody wakes the blocked job. Right: all
    finish, one at a time, and no stall is as long as a tick although nobody sweeps."""
    clients = [redis.Redis.from_url(redis_url, protocol=2) for _ in range(12)]
    stores = [Store(client, store.keys) for client in clients]
    done: list[str] = []
    most: list[int] = []
    total = 8 * each
    try:
        with ThreadPoolExecutor(12) as threads:
            working = [threads.submit(work, stores[n], f"w{n}", total, done, most) for n in range(4)]
            producing = [threads.submit(produce, stores[4 + n], n, each) for n in range(8)]
            for thread in producing:
                thread.result(timeout=120)
            lost = [thread.result(timeout=120) for thread in working]
    finally:
        for client in clients:
            client.close()
    assert len(set(done)) == len(done) == total
    assert max(most) == 1, "never two at once"
    assert sum(lost) == 0
    assert reads.overview().waiting == 0
    assert store.verify() == []
