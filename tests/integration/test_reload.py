"""A worker in development: changed code starts it anew, and what it ran goes back and runs again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from queueapp.codec import encode_arguments
from queueapp.states import State
from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from tests.integration.conftest import Manage, notes, record, until

pytestmark = pytest.mark.faults

CODE = """
import time
from pathlib import Path
from queueapp import task
from tests.integration.jobs import note

@task
def work(place):
    note(place, "VERSION")
    while not Path(place, "go").exists():
        time.sleep(0.01)
"""


def write_code(place: Path, version: str) -> Path:
    code = place / "changing_jobs.py"
    code.write_text(CODE.replace("VERSION", version))
    return code


def in_place(place: Path) -> dict[str, str]:
    """The variables of a process that has the changing code as an app."""
    return {"PYTHONPATH": str(place), "TEST_APPS": "changing_jobs"}


def run_old_then_new(store: Store, place: Path) -> str:
    """Starts a job, changes its code while it runs, and waits until the new code runs it. Its id."""
    job = NewJob(
        id=new_id(),
        task="changing_jobs.work",
        tenant="acme",
        payload=encode_arguments([str(place)], {}),
        fingerprint="f" * 16,
    )
    store.enqueue([job])
    until(lambda: notes(place, "old"))
    code = write_code(place, "new")

    def touched_and_seen() -> bool:
        # The reloader looks once a second, and compares with what it saw the time before.
        later = code.stat().st_mtime + 10
        os.utime(code, (later, later))
        time.sleep(0.5)
        return bool(notes(place, "new"))

    until(touched_and_seen, what="the new code runs")
    return job.id


def test_changed_code_starts_it_anew_and_work_is_handed_back(
    manage: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    write_code(tmp_path, "old")
    running = manage("worker", "--reload", env=in_place(tmp_path))
    running.wait_for("Worker started")
    job_id = run_old_then_new(store, tmp_path)
    (tmp_path / "go").touch()
    until(lambda: record(reads, job_id).state is State.ENDED)
    found = record(reads, job_id)
    assert (found.attempts, found.crashes) == (2, 0), "a reload is no crash"
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert reads.overview().workers == [], "it said good-bye"


def test_ctrl_c_ends_a_reloading_worker(manage: Manage, store: Store) -> None:
    running = manage("worker", "--reload")
    running.wait_for("Worker started")
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait() == 0


def test_a_reloading_worker_that_is_refused_ends_with_one_line(manage: Manage, store: Store) -> None:
    running = manage("worker", "--reload", "--pool", "emials")
    assert running.wait() == 1
    assert "emials" in running.output
    assert "Traceback" not in running.output


def test_a_reloading_worker_ends_with_its_supervisor(manage: Manage, store: Store, reads: Reads) -> None:
    running = manage("worker", "--reload")
    running.wait_for("Worker started")
    until(lambda: bool(reads.overview().workers))
    running.signal(signal.SIGKILL)
    until(lambda: not reads.overview().workers)


def test_c144_it_waits_for_nobody_loses_nothing_and_leaves_one_leader(
    manage: Manage, store: Store, reads: Reads, tmp_path: Path
) -> None:
    """C144: a worker that reloads in the middle of a job hands it back; no second leader stays; SIGTERM still works."""
    write_code(tmp_path, "old")
    running = manage("worker", "--reload", "--with-scheduler", env=in_place(tmp_path), LEADER_TTL_SECONDS=2)
    running.wait_for("Leading")
    first = until(lambda: reads.overview().leader)
    job_id = run_old_then_new(store, tmp_path)
    second = until(lambda: (leader := reads.overview().leader) not in {"", first} and leader)
    until(lambda: len(reads.overview().workers) == 1)
    (tmp_path / "go").touch()
    until(lambda: record(reads, job_id).state is State.ENDED)
    found = record(reads, job_id)
    assert (found.attempts, found.crashes) == (2, 0)
    assert len(notes(tmp_path, "new")) == 1
    assert reads.overview().leader == second
    running.signal(signal.SIGTERM)
    assert running.wait() == 0
    assert (reads.overview().leader, reads.overview().workers) == ("", [])
