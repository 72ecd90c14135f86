"""The server itself pauses, forgets, fills up, ends and comes back, each by itself, under a led pool at work.

Longer than the lease of leadership and the leases of jobs. Who works waits and goes on by itself; what was accepted
ends, nothing is recorded twice, dispatch goes on under terms that only grow, and `verify` finds nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from queueapp import enqueue_many
from queueapp.errors import StoreError
from queueapp.store import embedded, shards
from queueapp.store.keys import ShardKeys
from tests import freezing
from tests.faults.killing import FAST
from tests.integration import jobs
from tests.integration.conftest import Manage, until

AWAY_S = 3.0
"""Longer than both kinds of lease."""
SETTINGS: dict[str, Any] = {**FAST, "LEASE_SECONDS": 2.0, "POOLS": {"default": {"DISPATCH": "scheduled"}}}


@dataclass(slots=True)
class Server:
    """The server of the test, which may become another process of the same data."""

    running: embedded.EmbeddedServer
    directory: Path

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.running.url, protocol=2, socket_timeout=10)

    def restart(self) -> None:
        self.running = embedded.start(self.directory, extra=("--appendfsync", "always"))


def pause_writes(server: Server) -> None:
    with server.client() as client:
        client.client_pause(int(AWAY_S * 1000), all=False)
        assert client.ping(), "who only reads is answered"


def pause_all(server: Server) -> None:
    with server.client() as client:
        client.client_pause(int(AWAY_S * 1000))


def stop_and_start(server: Server) -> None:
    server.running.stop()
    time.sleep(AWAY_S)
    server.restart()


def kill_and_start(server: Server) -> None:
    os.kill(server.running.pid, signal.SIGKILL)
    until(server.running.ended)
    server.running.stop()
    time.sleep(AWAY_S)
    server.restart()


def freeze_and_thaw(server: Server) -> None:
    freezing.freeze(server.running.pid)
    time.sleep(AWAY_S)
    os.kill(server.running.pid, signal.SIGCONT)


def forget_scripts(server: Server) -> None:
    with server.client() as client:
        for _ in range(20):
            client.script_flush()
            client.function_flush()
            time.sleep(AWAY_S / 20)


def fill_up(server: Server) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 1)
        time.sleep(AWAY_S)
        client.config_set("maxmemory", 0)


def lose_its_clients(server: Server) -> None:
    """What a proxy, or a fail-over of a managed server, does to all connections at once, again and again."""
    with server.client() as client:
        for _ in range(5):
            client.client_kill_filter(_type="normal", skipme=True)
            client.client_kill_filter(_type="pubsub")
            time.sleep(AWAY_S / 5)


FAULTS: dict[str, Callable[[Server], None]] = {
    "pause_writes": pause_writes,
    "pause_all": pause_all,
    "stop_and_start": stop_and_start,
    "kill_and_start": kill_and_start,
    "freeze_and_thaw": freeze_and_thaw,
    "forget_scripts": forget_scripts,
    "fill_up": fill_up,
    "lose_its_clients": lose_its_clients,
}


def send(number: int) -> list[str]:
    """Their ids, once all of them were taken."""
    accepted: list[str] = []

    def all_sent() -> bool:
        with suppress(StoreError):
            for sent in enqueue_many([jobs.sleep.bind(0.02) for _ in range(number - len(accepted))]):
                if sent.result is not None:
                    accepted.append(sent.result.id.rpartition(".")[2])
        return len(accepted) >= number

    until(all_sent, timeout=40, what="jobs are taken again")
    return accepted


def log_of(ids: list[str], keys: ShardKeys) -> list[tuple[int, int]]:
    """(moment, epoch) of each dispatch, in order."""
    reads = shards.reads("default")
    stamps: list[Any] = [reads.client.hmget(keys.run(job_id), "dt", "ep") for job_id in ids]
    return sorted((int(at), int(epoch)) for at, epoch in stamps)


@pytest.mark.parametrize("name", FAULTS)
def test_a_led_pool_goes_on_after(
    manage: Manage,
    worker: Manage,
    own_store: embedded.EmbeddedServer,
    directory: Path,
    shard_keys: ShardKeys,
    name: str,
) -> None:
    server = Server(own_store, directory)
    env = {"REDIS_URL": own_store.url}
    try:
        schedulers = [manage("scheduler", env=env, **SETTINGS) for _ in range(2)]
        workers = [worker("--slots", "3", env=env, **SETTINGS) for _ in range(2)]
        reads = shards.reads("default")
        until(lambda: reads.in_force()[0].dispatch == "scheduled" and len(reads.overview().workers) == 2)
        accepted = send(60)
        until(lambda: reads.overview().stats.get("completed", 0) > 5)
        FAULTS[name](server)
        accepted += send(20)

        def over() -> bool:
            try:
                return reads.overview().ended == len(accepted)
            except StoreError:
                return False

        until(over, timeout=60, what="all that was accepted ends")
        found = [reads.job(job_id) for job_id in accepted]
        assert all(record is not None and record.outcome is not None for record in found)
        assert reads.overview().stats["completed"] == len(accepted), "an outcome was recorded twice"
        epochs = [epoch for _, epoch in log_of(accepted, shard_keys)]
        assert epochs == sorted(epochs), "dispatched under a term that was over"
        for process in [*schedulers, *workers]:
            assert process.stop() == 0
            assert "Traceback" not in process.output
        assert shards.store("default").verify() == []
    finally:
        server.running.stop()
