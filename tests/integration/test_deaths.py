"""Processes that are killed and stopped in the middle of load: the sums come out, and nothing is recorded twice."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from queueapp import enqueue_many
from queueapp.states import Outcome, State
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests import freezing
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, notes, record, until

pytestmark = pytest.mark.faults


def killed(process: ManagedProcess) -> None:
    process.signal(signal.SIGKILL)
    process.wait()


def test_kills_under_load_lose_nothing_and_double_nothing(
    worker: Manage, manage: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    """Enqueued = completed + dead, whoever dies: workers and schedulers are killed and started all the time."""
    starts: list[Callable[[], ManagedProcess]] = [
        *[lambda: worker("--slots", "3", LEASE_SECONDS=1, MAX_CRASHES=50)] * 3,
        *[lambda: manage("scheduler", LEADER_TTL_SECONDS=1)] * 2,
    ]
    running = [start() for start in starts]
    dice, enqueued = random.Random(7), 0
    running[0].wait_for("Worker started")
    for round_ in range(8):
        sent = enqueue_many(
            [jobs.sleep.using(tenant=f"t{n % 7}").bind(0.01, str(tmp_path), f"{round_}-{n}") for n in range(60)]
            + [jobs.broken.using(tenant="unlucky").bind() for _ in range(5)]
        )
        enqueued += sum(one.result is not None for one in sent)
        place = dice.randrange(len(running))
        killed(running[place])
        running[place] = starts[place]()
        time.sleep(0.5)

    def all_told() -> bool:
        seen = reads.overview()
        return seen.ended + seen.dead == enqueued

    until(all_told, timeout=60)
    stats = reads.overview().stats
    assert enqueued == 8 * 65
    assert (stats["completed"], reads.overview().dead) == (8 * 60, 8 * 5)
    twice = [path for path in tmp_path.glob("[0-9]-*") if len(notes(tmp_path, path.name)) > 1]
    assert len(twice) < 8 * 20, "only what a killed worker had begun may have run again"
    for process in running:
        process.wait_for(" started ")
        assert "A duty failed" not in process.output
        process.signal(signal.SIGTERM)
    for process in running:
        assert process.wait() == 0
    assert store.verify() == []


def test_a_worker_that_was_frozen_past_its_lease_is_refused(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    """It wakes up, ends its body and reports: another has the job, so its outcome counts for nothing."""
    frozen = worker("--slots", "1", LEASE_SECONDS=1)
    blocked = jobs.block.using(max_crashes=5).enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    freezing.freeze(frozen.pid)
    second = worker("--slots", "1", LEASE_SECONDS=1)
    until(lambda: len(notes(tmp_path, "block")) == 2)
    assert record(reads, blocked.id).crashes == 1
    frozen.signal(signal.SIGCONT)
    frozen.wait_for("Lease lost")
    until(lambda: notes(tmp_path, "block-cancelled"), what="the body is told")
    frozen.wait_for("Outcome refused")
    found = record(reads, blocked.id)
    assert (found.state, found.attempts) == (State.ACTIVE, 2), "the late outcome changed nothing"
    (tmp_path / "go").touch()
    assert blocked.wait(timeout=20).return_value == "went"
    assert record(reads, blocked.id).outcome is Outcome.COMPLETED
    assert reads.overview().stats["completed"] == 1
    jobs.noop.enqueue().wait(timeout=10)
    assert frozen.stop() == 0
    assert second.stop() == 0


def test_a_worker_that_was_frozen_when_idle_goes_on(worker: Manage, store: Store, reads: Reads) -> None:
    running = worker(LEASE_SECONDS=1)
    running.wait_for("Worker started")
    jobs.noop.enqueue().wait(timeout=10)
    freezing.freeze(running.pid)
    waiting = [jobs.noop.enqueue(n) for n in range(10)]
    time.sleep(2.5)
    running.signal(signal.SIGCONT)
    for result in waiting:
        assert result.wait(timeout=20).is_finished
    assert record(reads, waiting[0].id).crashes == 0
    assert running.stop() == 0
