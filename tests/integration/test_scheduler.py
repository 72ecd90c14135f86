"""Scheduler processes: one leads, all do the duties, and neither death nor freezing of one stops anything."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from queueapp import enqueue_many
from queueapp.states import State
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests import freezing
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, notes, record, until

FAST = {"LEADER_TTL_SECONDS": 1.5, "LEADER_RETRY_SECONDS": 0.2}


def leader(reads: Reads) -> str:
    return reads.overview().leader


def scheduler(manage: Manage, name: str, **settings: object) -> ManagedProcess:
    return manage("scheduler", "--scheduler-id", name, **{**FAST, **settings})


def test_one_leads_and_hands_over_when_it_stops(manage: Manage, store: Store, reads: Reads) -> None:
    first = scheduler(manage, "first", LEADER_TTL_SECONDS=20)
    first.wait_for("Leading")
    second = scheduler(manage, "second", LEADER_TTL_SECONDS=50, LEADER_RETRY_SECONDS=50, LEADER_PRESENCE="off")
    second.wait_for("Scheduler started")
    assert leader(reads).startswith("first.")
    assert first.stop() == 0
    second.wait_for("Leading", timeout=20)
    assert second.stop() == 0
    assert leader(reads) == ""


def test_renewals_keep_the_lease(manage: Manage, store: Store, reads: Reads) -> None:
    first, second = scheduler(manage, "first"), scheduler(manage, "second")
    until(lambda: leader(reads))
    was = leader(reads)
    time.sleep(2.5)
    assert leader(reads) == was
    for running in (first, second):
        assert running.stop() == 0


def test_a_killed_leader_is_followed_at_once(manage: Manage, store: Store, reads: Reads) -> None:
    first = scheduler(manage, "first", LEADER_TTL_SECONDS=50)
    first.wait_for("Leading")
    second = scheduler(manage, "second", LEADER_TTL_SECONDS=50, LEADER_RETRY_SECONDS=50)
    second.wait_for("Scheduler started")
    until(lambda: reads.overview().leader.startswith("first."))
    first.signal(signal.SIGKILL)
    second.wait_for("Leading", timeout=20)
    assert leader(reads).startswith("second.")
    assert second.stop() == 0


def test_without_presence_a_killed_leader_is_followed_when_its_lease_has_ended(
    manage: Manage, store: Store, reads: Reads
) -> None:
    first = scheduler(manage, "first", LEADER_PRESENCE="off")
    first.wait_for("Leading")
    second = scheduler(manage, "second", LEADER_PRESENCE="off")
    second.wait_for("Scheduler started")
    first.signal(signal.SIGKILL)
    second.wait_for("Leading")
    assert leader(reads).startswith("second.")
    assert second.stop() == 0


@pytest.mark.faults
def test_a_frozen_leader_is_fenced_when_it_wakes(manage: Manage, store: Store, reads: Reads) -> None:
    first = scheduler(manage, "first")
    first.wait_for("Leading")
    freezing.freeze(first.pid)
    second = scheduler(manage, "second")
    second.wait_for("Leading")
    first.signal(signal.SIGCONT)
    first.wait_for("No longer leading")
    assert leader(reads).startswith("second.")
    assert first.stop() == 0
    assert second.stop() == 0


def test_due_jobs_are_promoted_when_every_worker_is_busy_or_gone(manage: Manage, store: Store, reads: Reads) -> None:
    running = scheduler(manage, "only")
    running.wait_for("Leading")
    soon = datetime.now(UTC) + timedelta(seconds=1)
    later = jobs.noop.using(run_after=soon).enqueue()
    assert record(reads, later.id).state is State.SCHEDULED
    until(lambda: record(reads, later.id).state is State.PENDING, timeout=10)
    assert datetime.now(UTC) >= soon
    assert running.stop() == 0


def test_leases_of_dead_workers_are_recovered(
    manage: Manage, worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = scheduler(manage, "only")
    doomed = worker(LEASE_SECONDS=0.5)
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    doomed.signal(signal.SIGKILL)
    until(lambda: record(reads, blocked.id).state is State.PENDING, timeout=10)
    assert record(reads, blocked.id).crashes == 1
    running.wait_for("Recovered 1 jobs")
    assert running.stop() == 0


def test_leases_of_a_dead_worker_are_recovered_long_before_they_end(
    manage: Manage, worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = scheduler(manage, "only")
    doomed = worker(LEASE_SECONDS=600)
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    until(lambda: store.client.zcard(store.keys["watched"]) == 1)
    doomed.signal(signal.SIGKILL)
    until(lambda: record(reads, blocked.id).state is State.PENDING, timeout=20)
    assert record(reads, blocked.id).crashes == 1
    assert running.stop() == 0


def test_old_results_go(manage: Manage, worker: Manage, store: Store, reads: Reads) -> None:
    enqueue_many([jobs.noop.bind(n) for n in range(50)])
    assert worker("--batch").wait() == 0
    assert reads.overview().ended == 50
    running = scheduler(manage, "only", RESULT_TTL=0, REPLAY_WINDOW_SECONDS=1)
    until(lambda: reads.overview().ended == 0, timeout=20)
    assert running.stop() == 0


@pytest.mark.faults
def test_c002_many_promoters_make_no_second_run(
    manage: Manage, worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    schedulers = [scheduler(manage, f"s{n}") for n in range(3)]
    workers = [worker("--slots", "2") for _ in range(2)]
    for running in workers:
        running.wait_for("Worker started")
    due = datetime.now(UTC) + timedelta(seconds=2)
    enqueue_many([jobs.started.using(run_after=due).bind(str(tmp_path), "run") for _ in range(200)])
    until(lambda: reads.overview().ended == 200)
    assert len(notes(tmp_path, "run")) == 200
    for running in [*workers, *schedulers]:
        assert running.stop() == 0


@pytest.mark.faults
def test_c022_delayed_jobs_live_in_the_store_alone(
    manage: Manage, worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    processes = [worker("--with-scheduler"), scheduler(manage, "only")]
    processes[0].wait_for("Worker started")
    due = datetime.now(UTC) + timedelta(seconds=6)
    enqueue_many([jobs.started.using(run_after=due).bind(str(tmp_path), "run") for _ in range(100)])
    for running in processes:
        running.signal(signal.SIGKILL)
        running.wait()
    again = worker("--slots", "8")
    until(lambda: reads.overview().ended == 100)
    assert len(notes(tmp_path, "run")) == 100
    assert datetime.now(UTC) >= due, "none ran before its time"
    assert again.stop() == 0


def test_check_tells_whether_somebody_leads(manage: Manage, store: Store) -> None:
    probe = manage("scheduler", "--check")
    assert probe.wait() == 1
    assert "no scheduler leads pool default" in probe.output
    running = scheduler(manage, "only")
    running.wait_for("Leading")
    probe = manage("scheduler", "--check")
    assert probe.wait() == 0, probe.output + running.output
    assert running.stop() == 0
