"""Cancelling with worker processes in earnest: nothing of it lives in their memory, and bodies hear of it soon."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queueapp.compat import TaskResultStatus
from queueapp.states import Outcome, State
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.integration import jobs
from tests.integration.conftest import Manage, notes, record, until


def test_c120_cancelled_while_all_workers_are_down(worker: Manage, store: Store, reads: Reads, tmp_path: Path) -> None:
    """C120: cancellation lives in worker memory, lost on restart, ignored while no worker is up."""
    place = str(tmp_path)
    first = worker("--slots", "2", LEASE_SECONDS=2)
    retrying = jobs.fail_once.using(max_attempts=3, backoff=3600).enqueue(place)
    running = jobs.block.using(max_crashes=5).enqueue(place)
    until(lambda: notes(tmp_path, "block") and record(reads, retrying.id).state is State.SCHEDULED)
    first.signal(signal.SIGKILL)
    first.wait()
    ready = jobs.started.enqueue(place, "ready")
    delayed = jobs.started.using(run_after=datetime.now(UTC) + timedelta(seconds=1)).enqueue(place, "delayed")

    assert [job.cancel() for job in (ready, delayed, retrying, running)] == [True] * 4
    for job in (ready, delayed, retrying):
        assert (job.state, job.outcome, job.status) == ("ended", "cancelled", TaskResultStatus.FAILED), "at once"
    assert (running.state, running.cancelling) == ("active", True)

    second = worker("--slots", "2", LEASE_SECONDS=2)
    last = jobs.started.using(run_after=datetime.now(UTC) + timedelta(seconds=1.5)).enqueue(place, "last")
    running.wait(timeout=30)
    last.wait(timeout=30)
    assert (running.outcome, running.cancelling) == ("cancelled", False)
    assert len(notes(tmp_path, "block")) == 1, "it did not begin anew"
    assert not notes(tmp_path, "ready")
    assert not notes(tmp_path, "delayed")
    assert second.stop() == 0
    assert store.verify() == []


@pytest.mark.parametrize("slots", ["1", "3"])
def test_c120_a_running_body_hears_of_it_long_before_its_heartbeat(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path, slots: str
) -> None:
    """The lease is so long that no heartbeat comes: whether slots are free or all are taken, the worker is told."""
    place = str(tmp_path)
    process = worker("--slots", slots, LEASE_SECONDS=3600)
    for task, name in ((jobs.block, "block"), (jobs.wait_for_ever, "coroutine")):
        job = task.enqueue(place)
        until(lambda name=name: notes(tmp_path, name))  # type: ignore[misc]  # mypy infers no lambda with a default
        assert job.cancel() is True
        job.wait(timeout=20)
        assert (job.outcome, job.cancel()) == ("cancelled", True)
        assert notes(tmp_path, f"{name}-cancelled")
        assert record(reads, job.id).outcome is Outcome.CANCELLED
    after = jobs.noop.enqueue(7)
    assert after.wait(timeout=20).return_value == 7
    assert after.cancel() is False, "it has ended"
    assert process.stop() == 0
    assert store.verify() == []


def test_a_job_that_dies_again_and_again_goes_on_from_its_checkpoint(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    job = jobs.count_to_four.enqueue(str(tmp_path))
    for _ in range(3):
        assert worker("--slots", "1", LEASE_SECONDS=1).wait() == 137
    last = worker("--slots", "1", LEASE_SECONDS=1)
    assert job.wait(timeout=30).return_value == 4
    assert [len(notes(tmp_path, f"step-{number}")) for number in range(4)] == [1] * 4
    assert reads.checkpoint(job.id[-22:]) is None
    assert last.stop() == 0
