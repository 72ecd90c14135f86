"""A process that enqueues and waits: what it keeps while the store is away, and what it leaves behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from queueapp.store import connection, embedded, shards
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, until, warnings_of

pytestmark = pytest.mark.faults

MB = 1024 * 1024
PREAMBLE = """
import os, resource, threading, time
from queueapp.errors import StoreUnavailable
from queueapp.store import connection
from tests.integration import jobs

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
"""
LOOP = (
    PREAMBLE
    + """
for n in range(200):
    jobs.noop.enqueue(n)
unserved = [jobs.noop.using(queue_name="unserved").enqueue() for _ in range(20)]
waiting = [threading.Thread(target=result.wait, daemon=True) for result in unserved]
for thread in waiting:
    thread.start()
time.sleep(1)
print("memory", rss(), flush=True)
refused, slowest, away = 0, 0.0, False
while True:
    began = time.monotonic()
    try:
        jobs.noop.enqueue("x" * 1000)
    except StoreUnavailable as error:
        away, refused = True, refused + 1
        slowest = max(slowest, time.monotonic() - began)
        if refused == 1:
            print("refused:", error, flush=True)
    else:
        if away:
            break
    time.sleep(0.002)
print("memory", rss(), flush=True)
print("refused", refused, flush=True)
print("slowest", slowest, flush=True)
print("over", flush=True)
"""
)
WAITS = (
    PREAMBLE
    + """
def some(count):
    for n in range(count):
        assert jobs.noop.enqueue(n).wait(timeout=60).return_value == n

def all_of(count, width=20):
    threads = [threading.Thread(target=some, args=(count // width,)) for _ in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

all_of(500)
print("memory", rss(), flush=True)
all_of(5000)
print("memory", rss(), flush=True)
print("over", flush=True)
input()
"""
)


def value(process: ManagedProcess, name: str, place: int = 0) -> float:
    """The number that it printed after this word."""
    return float([line for line in process.lines if line.startswith(f"{name} ")][place].split()[1])


def grown(process: ManagedProcess) -> float:
    return value(process, "memory", 1) - value(process, "memory", 0)


@pytest.mark.timeout(240)
def test_c035_memory_does_not_grow_while_the_store_is_away(
    own_store: embedded.EmbeddedServer, directory: Path, manage: Manage
) -> None:
    """C035: memory of producers grows while the store is away. Right: quick clear errors, and little growth."""
    pools: dict[str, dict[str, object]] = {"unserved": {}}
    env = {"REDIS_URL": own_store.url}
    workers = [manage("worker", "--no-reload", "--pool", "default", env=env, LEASE_SECONDS=3) for _ in range(2)]
    for worker in workers:
        worker.wait_for("Worker started")
    producer = manage("shell", "-v0", "-c", LOOP, env=env, POOLS=pools)
    producer.wait_for("memory")
    before = [_rss(worker) for worker in workers]
    own_store.stop()
    producer.wait_for("refused:")
    time.sleep(20)
    after = [_rss(worker) for worker in workers]
    again = embedded.start(directory)
    try:
        producer.wait_for("over", timeout=60)
        assert "cannot be reached" in producer.output
        assert value(producer, "refused") > 1000
        assert value(producer, "slowest") < 1
        assert grown(producer) < 20 * MB
        assert all(late - early < 20 * MB for early, late in zip(before, after, strict=True))
        for worker in workers:
            worker.wait_for("Back after")
        until(lambda: shards.reads("default").overview().waiting == 0)
        for worker in workers:
            assert len(warnings_of(worker)) < 12, worker.output
            assert worker.stop() == 0
        assert shards.store("default").verify() == []
    finally:
        again.stop()


@pytest.mark.timeout(240)
def test_c052_waiting_leaves_nothing_behind(own_store: embedded.EmbeddedServer, manage: Manage) -> None:
    """C052: waiting for results leaks subscriptions and memory. Right: all back to where it was."""
    env = {"REDIS_URL": own_store.url}
    worker = manage("worker", "--no-reload", "--slots", "8", env=env)
    worker.wait_for("Worker started")
    jobs.noop.enqueue().wait(timeout=10)
    client, keys = connection.commands(), shards.keys("default")
    producer = manage("shell", "-v0", "-c", WAITS, env=env)
    producer.wait_for("over", timeout=200)
    assert grown(producer) < 20 * MB
    assert client.hlen(keys["waiters"]) == 0
    assert client.pubsub_numpat() == 0
    until(lambda: not list(client.scan_iter(f"{keys.prefix}done:*", count=10_000)), timeout=70)
    assert _in_blpop(client.client_list()) == 0
    producer.discard()
    assert worker.stop() == 0
    assert shards.store("default").verify() == []


def _in_blpop(clients: list[dict[str, str]]) -> int:
    return sum(one["cmd"] == "blpop" for one in clients)


def _rss(process: ManagedProcess) -> int:
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096
