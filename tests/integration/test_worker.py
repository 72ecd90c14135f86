"""Worker processes in earnest: how they stop, what a death costs, and that nothing is lost or recorded twice."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.test.utils import override_settings

from queueapp import enqueue_many
from queueapp.states import Outcome, State
from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from tests.integration import jobs
from tests.integration.conftest import Manage, notes, record, until

READY = "Worker started"


def ended(reads: Reads) -> int:
    return reads.overview().ended


def test_it_runs_jobs_and_their_results_come_back(worker: Manage, store: Store, reads: Reads) -> None:
    running = worker()
    result = jobs.noop.using(tenant="acme").enqueue({"rows": [1, 2]}).wait(timeout=30)
    assert result.return_value == {"rows": [1, 2]}
    saved = jobs.progress.enqueue().wait(timeout=30)
    assert saved.return_value == 1
    found = record(reads, saved.id)
    assert json.loads(found.data["progress"]) == {"done": 1, "total": 2, "message": "half way"}
    assert json.loads(found.data["metadata"]) == {"rows": 7}
    assert running.stop() == 0
    assert reads.overview().workers == []


def test_batch_ends_when_nothing_is_runnable(worker: Manage, store: Store, reads: Reads) -> None:
    enqueue_many([jobs.noop.using(tenant=f"t{n % 5}").bind(n) for n in range(500)])
    later = jobs.noop.using(run_after=_in_s(3600)).enqueue()
    assert worker("--batch", "--slots", "8").wait() == 0
    assert ended(reads) == 500
    assert record(reads, later.id).state is State.SCHEDULED


def test_max_tasks(worker: Manage, store: Store, reads: Reads) -> None:
    enqueue_many([jobs.noop.bind(n) for n in range(20)])
    assert worker("--max-tasks", "7").wait() == 0
    overview = reads.overview()
    assert (overview.ended, overview.waiting, overview.active) == (7, 13, 0)


def test_sigterm_lets_running_jobs_end(worker: Manage, store: Store, reads: Reads, tmp_path: Path) -> None:
    running = worker("--slots", "1")
    blocked = jobs.block.enqueue(str(tmp_path))
    waiting = jobs.noop.enqueue()
    until(lambda: notes(tmp_path, "block"))
    running.signal(signal.SIGTERM)
    running.wait_for("Stopping")
    assert running.process.poll() is None
    (tmp_path / "go").touch()
    assert running.wait() == 0
    assert record(reads, blocked.id).outcome is Outcome.COMPLETED
    assert record(reads, waiting.id).state is State.PENDING


def test_after_the_grace_the_rest_goes_back_and_counts_as_nothing(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = worker("--grace", "0.3")
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    running.signal(signal.SIGTERM)
    assert running.wait() == 4
    found = record(reads, blocked.id)
    assert (found.state, found.attempts, found.crashes, found.error_count) == (State.PENDING, 1, 0, 0)
    (tmp_path / "go").touch()
    assert worker("--batch").wait() == 0
    found = record(reads, blocked.id)
    assert (found.outcome, found.attempts, found.crashes) == (Outcome.COMPLETED, 2, 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_gives_back_at_once(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path, number: int
) -> None:
    running = worker()
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    running.signal(number)
    running.wait_for("Stopping")
    began = time.monotonic()
    running.signal(number)
    assert running.wait() == 4
    assert time.monotonic() - began < 5
    assert record(reads, blocked.id).state is State.PENDING


def test_an_idle_worker_stops_at_once(worker: Manage, store: Store) -> None:
    running = worker()
    running.wait_for(READY)
    began = time.monotonic()
    assert running.stop() == 0
    assert time.monotonic() - began < 4, "shorter than the parker's wait"


def test_c019_a_killed_workers_job_runs_again_as_attempt_2(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    running = worker("--slots", "1", LEASE_SECONDS=1)
    blocked = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    running.signal(signal.SIGKILL)
    running.wait()
    (tmp_path / "go").touch()
    second = worker("--slots", "1", LEASE_SECONDS=1)
    assert blocked.wait(timeout=30).return_value == "went"
    found = record(reads, blocked.id)
    assert (found.attempts, found.crashes) == (2, 1)
    assert [(error.kind, error.attempt) for error in found.errors] == [("lost", 1)]
    assert second.stop() == 0


@pytest.mark.faults
def test_c016_a_job_that_kills_its_process_starts_three_times(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    poison = jobs.die.using(max_attempts=3).enqueue(str(tmp_path))
    others = [jobs.noop.enqueue(n) for n in range(20)]
    for _ in range(3):
        running = worker("--slots", "4", LEASE_SECONDS=0.5)
        assert running.wait() == 137
    survivor = worker("--slots", "4", LEASE_SECONDS=0.5)
    until(lambda: record(reads, poison.id).state is State.DEAD)
    until(lambda: ended(reads) == len(others))
    found = record(reads, poison.id)
    assert len(notes(tmp_path, "die")) == 3
    assert (found.reason, found.crashes) == ("worker_lost", 3)
    assert all(record(reads, other.id).outcome is Outcome.COMPLETED for other in others)
    assert survivor.stop() == 0


@pytest.mark.faults
def test_c016_also_among_jobs_that_are_known_to_be_quick(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    """The poison stands in the middle of tiny jobs that workers lease ahead, and comes again among others."""
    enqueue_many([jobs.noop.bind(n) for n in range(300)])
    poison = jobs.die.enqueue(str(tmp_path))
    enqueue_many([jobs.noop.bind(n) for n in range(300)])
    for _ in range(3):
        assert worker("--slots", "2", LEASE_SECONDS=0.5).wait() == 137
        enqueue_many([jobs.noop.bind(n) for n in range(100)])
    survivor = worker("--slots", "2", LEASE_SECONDS=0.5)
    until(lambda: record(reads, poison.id).state is State.DEAD)
    until(lambda: ended(reads) == 900)
    assert len(notes(tmp_path, "die")) == 3
    assert survivor.stop() == 0


@pytest.mark.faults
def test_c020_after_a_death_only_its_own_jobs_are_late(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    workers = [worker("--slots", "2", LEASE_SECONDS=8) for _ in range(3)]
    for running in workers:
        running.wait_for(READY)
    blocked = jobs.block.enqueue(str(tmp_path))
    [(pid, _)] = until(lambda: notes(tmp_path, "block"))
    os.kill(pid, signal.SIGKILL)
    enqueue_many([jobs.noop.bind(n) for n in range(300)])
    until(lambda: ended(reads) == 300, timeout=30)
    assert record(reads, blocked.id).state is State.ACTIVE, "all were through before its lease ran out"
    (tmp_path / "go").touch()
    assert blocked.wait(timeout=30).return_value == "went"
    for running in workers:
        if running.pid != pid:
            assert running.stop() == 0


@pytest.mark.faults
def test_c003_a_job_longer_than_its_lease_runs_once(worker: Manage, store: Store, reads: Reads, tmp_path: Path) -> None:
    workers = [worker("--with-scheduler", LEASE_SECONDS=0.6) for _ in range(2)]
    for running in workers:
        running.wait_for(READY)
    long = jobs.sleep.enqueue(3.0, str(tmp_path))
    long.wait(timeout=30)
    assert len(notes(tmp_path, "sleep")) == 1
    assert record(reads, long.id).attempts == 1
    for running in workers:
        assert running.stop() == 0


@pytest.mark.faults
def test_c068_short_jobs_do_not_wait_behind_a_long_one(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    workers = [worker("--slots", "1") for _ in range(2)]
    for running in workers:
        running.wait_for(READY)
    # Both workers have seen that jobs are quick, so that they lease ahead.
    enqueue_many([jobs.noop.bind(n) for n in range(400)])
    until(lambda: ended(reads) == 400)
    long = jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    short = [jobs.noop.enqueue(n) for n in range(3)]
    for result in short:
        result.wait(timeout=10)
        found = record(reads, result.id)
        # Less than a parked worker's longest wait: a wake token that got lost would show.
        assert found.ended_ms - found.submitted_ms < 1_000
    assert record(reads, long.id).state is State.ACTIVE
    (tmp_path / "go").touch()
    long.wait(timeout=10)
    for running in workers:
        assert running.stop() == 0


def test_an_unknown_task_waits_for_a_worker_that_knows_it(worker: Manage, store: Store, reads: Reads) -> None:
    job = NewJob(id=new_id(), task="shop.tasks.of_tomorrow", tenant="acme", payload=b"{}", fingerprint="f" * 16)
    store.enqueue([job])
    other = jobs.noop.enqueue()
    running = worker("--slots", "1", UNKNOWN_TASK_GRACE=1.5)
    other.wait(timeout=30)
    running.wait_for("Unknown task")
    found = until(lambda: (seen := record(reads, job.id)).state is State.DEAD and seen)
    assert found.reason == "unknown_task"
    assert (found.error_count, found.crashes) == (0, 0)
    assert found.attempts >= 2
    assert running.stop() == 0


def test_an_unknown_pool_is_refused_with_the_known_ones(worker: Manage) -> None:
    refused = worker("--pool", "nowhere")
    assert refused.wait() == 1
    assert "'nowhere' is not a known pool; known: default" in refused.output
    assert "Traceback" not in refused.output


def test_it_waits_for_our_migrations(manage: Manage, worker: Manage, store: Store, tmp_path: Path) -> None:
    empty = {"DATABASE_URL": f"sqlite:///{tmp_path / 'empty.sqlite3'}"}
    running = manage("worker", "--no-reload", env=empty)
    running.wait_for("migrations of queueapp are not applied")
    assert manage("migrate", "-v0", env=empty).wait(60) == 0
    running.wait_for(READY)
    assert running.stop() == 0


def test_check_tells_whether_the_worker_is_alive(manage: Manage, worker: Manage, store: Store) -> None:
    probe = manage("worker", "--check", "--worker-id", "probed")
    assert probe.wait() == 1
    assert "no worker probed." in probe.output
    running = worker("--worker-id", "probed")
    running.wait_for(READY)
    until(lambda: manage("worker", "--check", "--worker-id", "probed").wait() == 0)
    assert running.stop() == 0


def test_an_outcome_that_was_never_reported_runs_again(
    worker: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    result = jobs.started.enqueue(str(tmp_path), "ran")
    first = worker("--fail-before-ack-rate", "1", "--max-tasks", "1", LEASE_SECONDS=0.5)
    assert first.wait() == 0
    second = worker(LEASE_SECONDS=0.5)
    result.wait(timeout=30)
    assert len(notes(tmp_path, "ran")) == 2
    assert record(reads, result.id).attempts == 2
    assert second.stop() == 0


def test_json_lines(worker: Manage, store: Store) -> None:
    running = worker("--log", "json", "--worker-id", "jay")
    running.wait_for(READY)
    assert running.stop() == 0
    first = json.loads(next(line for line in running.lines if READY in line))
    assert first["worker"].startswith("jay.")
    assert first["pools"] == "default"
    assert first["level"] == "INFO"


@pytest.mark.faults
def test_c055_idle_and_blocked_workers_hardly_call(worker: Manage, store: Store, reads: Reads) -> None:
    workers = [worker("--slots", "2") for _ in range(4)]
    for running in workers:
        running.wait_for(READY)
    time.sleep(1)
    assert _commands_per_s(store, 6.0) < 4 * len(workers)
    store.configure(1, scopes=[ScopeLimits(tenant="closed", max_in_flight=0)])
    enqueue_many([jobs.noop.using(tenant="closed").bind(n) for n in range(2000)])
    time.sleep(1)
    assert _commands_per_s(store, 6.0) < 4 * len(workers)
    began = time.monotonic()
    jobs.noop.using(tenant="open").enqueue().wait(timeout=10)
    assert time.monotonic() - began < 2
    for running in workers:
        assert running.stop() == 0


def test_a_pool_with_much_work_does_not_starve_another(worker: Manage, store: Store, reads: Reads) -> None:
    pools: dict[str, dict[str, object]] = {"busy": {}, "quiet": {}}
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": pools}):
        running = worker("--slots", "1", "--pool", "busy,quiet", POOLS=pools)
        running.wait_for(READY)
        jobs.noop.using(queue_name="quiet").enqueue().wait(timeout=10)
        enqueue_many([jobs.sleep.using(queue_name="busy").bind(0.02) for _ in range(500)])
        until(lambda: shards.reads("busy").overview().ended > 5)
        jobs.noop.using(queue_name="quiet").enqueue().wait(timeout=5)
        assert shards.reads("busy").overview().waiting > 100
        assert running.stop() == 0


def _commands_per_s(store: Store, seconds: float) -> float:
    """Calls that clients made, without what scripts did inside. The server is the tests' own, and quiet but for us."""
    return (_calls(store, seconds) - 1) / seconds


def _calls(store: Store, seconds: float) -> int:
    names = ("fcall", "bzpopmin", "hgetall")

    def count() -> int:
        stats = store.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)

    before = count()
    time.sleep(seconds)
    return count() - before


def _in_s(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)
