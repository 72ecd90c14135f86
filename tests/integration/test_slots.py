"""Asynchronous bodies and time limits in worker processes."""

from __future__ import annotations

from pathlib import Path

from queueapp import enqueue_many
from queueapp.states import State
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.integration import jobs
from tests.integration.conftest import Manage, notes, record, until


def test_many_coroutines_at_once_which_query_the_database(worker: Manage, store: Store, tmp_path: Path) -> None:
    running = worker("--slots", "1", "--coroutines", "300")
    outcomes = enqueue_many([jobs.meets_all.bind(str(tmp_path), n) for n in range(200)])
    until(lambda: len(list(tmp_path.glob("met-*"))) == 200)
    (tmp_path / "go").touch()
    results = [outcome.result for outcome in outcomes]
    found = {result.wait(timeout=60).return_value for result in results if result is not None}
    assert found == {1}, "each has counted one pool, in a thread of its own"
    assert running.stop() == 0


def test_they_share_a_worker_with_functions(worker: Manage, store: Store, tmp_path: Path) -> None:
    running = worker("--slots", "1")
    (tmp_path / "go").touch()
    waiting = [jobs.meets_all.enqueue(str(tmp_path), n) for n in range(20)]
    plain = [jobs.noop.enqueue(n) for n in range(20)]
    assert [result.wait(timeout=60).return_value for result in plain] == list(range(20))
    assert all(result.wait(timeout=60).return_value == 1 for result in waiting)
    assert running.stop() == 0


def test_a_stuck_body_fails_and_others_go_on(worker: Manage, store: Store, reads: Reads, tmp_path: Path) -> None:
    running = worker("--slots", "2")
    stuck = jobs.block.using(timeout=0.2).enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    until(lambda: record(reads, stuck.id).state is State.DEAD)
    stuck.refresh()
    [error] = stuck.errors
    assert error.exception_class_path == "queueapp.errors.TimeLimitExceeded"
    assert "in block" in error.traceback, "it shows where the body stands"
    assert jobs.noop.enqueue(7).wait(timeout=30).return_value == 7
    (tmp_path / "go").touch()
    assert running.stop() == 0


def test_a_worker_whose_slots_are_all_stuck_ends(worker: Manage, store: Store, reads: Reads, tmp_path: Path) -> None:
    running = worker("--slots", "1")
    stuck = jobs.overstay.enqueue(str(tmp_path))
    assert running.wait() == 5
    assert record(reads, stuck.id).state is State.DEAD
