"""The kill matrix, process by process: a worker, a scheduler, a leader die at each script that they call.

Before the call, or after it and before the reply is read; others go on. Then the sums come out: what was accepted has
completed, died or was cancelled, nothing is recorded twice, and `verify` finds nothing. How operators die is
`test_killed_operators`.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.faults.killing import FAST, Sums, killed_at, send_some, word
from tests.faults.wire import When, Wire
from tests.integration import jobs
from tests.integration.conftest import Manage, until

WORKER = ["register", "cycle", "save"]
SCHEDULER = ["lead", "promote_due", "backlog_promote", "partition_recover", "rerank", "trim", "departed"]
LEADER = ["XAUTOCLAIM", "admit", "dispatch"]
OWN_POLICY = ["mirror", "flush_policy"]


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
