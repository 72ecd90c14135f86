"""The kill matrix, process by process: a worker, a scheduler, an operator die at each script that they call.

Before the call, or after it and before the reply is read; others go on. Then the sums come out: what was accepted has
completed, died or was cancelled, nothing is recorded twice, and `verify` finds nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from queueapp import backoff, enqueue_many
from queueapp.store import scripts
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.faults.wire import When, Wire
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, until

LEASE_S = 1.0
FAST: dict[str, Any] = {
    "LEASE_SECONDS": LEASE_S,
    "LEADER_TTL_SECONDS": 1.0,
    "LEADER_RETRY_SECONDS": 0.2,
    "MAX_CRASHES": 50,
    "RESULT_MAX": 100_000,
}


@dataclass(slots=True)
class Sums:
    """What was accepted, and what must become of it."""

    accepted: int = 0

    def send(self, *bound: Any) -> None:
        sent = enqueue_many(list(bound))
        self.accepted += sum(one.result is not None for one in sent)

    def come_out(self, store: Store, reads: Reads) -> None:
        def all_told() -> bool:
            seen = reads.overview()
            return seen.ended + seen.dead == self.accepted

        until(all_told, timeout=60, what=f"{self.accepted} jobs end, but {reads.overview()}")
        stats = reads.overview().stats
        ended = stats.get("completed", 0) + stats.get("cancelled", 0) + stats.get("expired", 0)
        assert ended == reads.overview().ended, "something was recorded twice"
        assert store.verify() == []


def send_some(sums: Sums, place: Path) -> None:
    """Of everything a little: plain, slow, keyed, failing with and without a retry, given back, delayed."""
    sums.send(
        *[jobs.noop.using(tenant=f"t{number % 3}").bind(number) for number in range(30)],
        *[jobs.sleep.bind(0.05) for _ in range(4)],
        *[jobs.broken.using(max_attempts=2, backoff=backoff.fixed(0.05)).bind() for _ in range(3)],
        *[jobs.progress.bind() for _ in range(3)],
        *[jobs.noop.using(delay=0.3).bind() for _ in range(3)],
    )


WORKER = ["register", "cycle", "save"]
SCHEDULER = ["lead", "promote_due", "backlog_promote", "partition_recover", "rerank", "trim", "departed"]
LEADER = ["XAUTOCLAIM", "admit", "dispatch"]
OWN_POLICY = ["mirror", "flush_policy"]


def word(name: str) -> str:
    """A script by its name, or a command by its own."""
    return name if name.isupper() else scripts.script(name).function


def killed_at(process: Callable[[], ManagedProcess], wire: Wire, name: str, when: When) -> None:
    """Starts it; it dies there."""
    started: list[ManagedProcess] = []
    strike = wire.strike(word(name), when, lambda: started[0].signal(signal.SIGKILL) if started else None)
    strike.done.set()
    started.append(process())
    strike.done.clear()
    assert strike.done.wait(30), f"{name} was not called:\n{started[0].output}"
    assert started[0].wait() == -signal.SIGKILL


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", WORKER)
def test_a_worker_dies_at(
    worker: Manage, manage: Manage, store: Store, reads: Reads, tmp_path: Path, wire: Wire, name: str, when: When
) -> None:
    sums = Sums()
    send_some(sums, tmp_path)
    killed_at(lambda: worker("--slots", "3", env={"REDIS_URL": wire.url}, **FAST), wire, name, when)
    manage("scheduler", **FAST)
    survivor = worker("--slots", "3", **FAST)
    send_some(sums, tmp_path)
    sums.come_out(store, reads)
    assert survivor.stop() == 0


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["partition_requeue", "forget"])
def test_a_worker_that_is_stopping_dies_at(
    worker: Manage, manage: Manage, store: Store, reads: Reads, tmp_path: Path, wire: Wire, name: str, when: When
) -> None:
    sums = Sums()
    sums.send(*[jobs.sleep.bind(0.4) for _ in range(12)])
    doomed = worker("--slots", "2", env={"REDIS_URL": wire.url}, **{**FAST, "GRACE_SECONDS": 0.1})
    until(lambda: store.client.zcard(store.keys["active"]) >= 2)
    strike = wire.strike(word(name), when, lambda: doomed.signal(signal.SIGKILL))
    doomed.signal(signal.SIGTERM)
    assert strike.done.wait(30), f"{name} was not called"
    assert doomed.wait() == -signal.SIGKILL
    manage("scheduler", **FAST)
    survivor = worker("--slots", "3", **FAST)
    send_some(sums, tmp_path)
    sums.come_out(store, reads)
    assert survivor.stop() == 0


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", SCHEDULER)
def test_a_scheduler_dies_at(
    worker: Manage, manage: Manage, store: Store, reads: Reads, tmp_path: Path, wire: Wire, name: str, when: When
) -> None:
    sums = Sums()
    survivor = worker("--slots", "3", **FAST)
    send_some(sums, tmp_path)
    killed_at(lambda: manage("scheduler", env={"REDIS_URL": wire.url}, **FAST), wire, name, when)
    following = manage("scheduler", **FAST)
    send_some(sums, tmp_path)
    sums.come_out(store, reads)
    following.wait_for("Leading")
    assert survivor.stop() == 0
    assert following.stop() == 0


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", [*LEADER, *OWN_POLICY])
def test_a_leader_dies_at(
    worker: Manage, manage: Manage, store: Store, reads: Reads, tmp_path: Path, wire: Wire, name: str, when: When
) -> None:
    sums, settings = Sums(), {**FAST}
    settings["POOLS"] = {"default": {"DISPATCH": "scheduled", "POLICY": "drr" if name in OWN_POLICY else "tiered"}}
    doomed = manage("scheduler", env={"REDIS_URL": wire.url}, **settings)
    until(lambda: reads.in_force()[0].dispatch == "scheduled")
    doomed.wait_for("Leading")
    strike = wire.strike(word(name), when, lambda: doomed.signal(signal.SIGKILL))
    send_some(sums, tmp_path)
    survivor = worker("--slots", "3", **settings)
    assert strike.done.wait(30), f"{name} was not called"
    assert doomed.wait() == -signal.SIGKILL
    following = manage("scheduler", **settings)
    send_some(sums, tmp_path)
    sums.come_out(store, reads)
    assert survivor.stop() == 0
    assert following.stop() == 0
