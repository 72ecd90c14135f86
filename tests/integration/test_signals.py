"""C128: what the commands do when they are told to stop, by one signal, to the process or its group, or by several.

Docker sends SIGTERM to process 1, a terminal SIGINT to the group. `test_worker.py` has the grace and the second signal
of a worker alone.
"""

from __future__ import annotations

import os
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


@pytest.fixture
def busy(worker: Manage, tmp_path: Path) -> Callable[..., tuple[ManagedProcess, list[str], list[str]]]:
    """A worker that runs four jobs, and four more that wait."""

    def start(*arguments: str) -> tuple[ManagedProcess, list[str], list[str]]:
        process = worker("--slots", "4", *arguments)
        running = enqueue_many([jobs.block.bind(str(tmp_path)) for _ in range(4)])
        until(lambda: len(notes(tmp_path, "block")) == 4)
        waiting = enqueue_many([jobs.noop.bind(number) for number in range(4)])
        return process, [str(one.id) for one in running], [str(one.id) for one in waiting]

    return start


def outcomes(reads: Reads, ids: list[str]) -> set[Outcome | State | None]:
    found = [record(reads, job_id) for job_id in ids]
    return {one.outcome or one.state for one in found}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("arguments", [(), ("--with-scheduler",)])
def test_c128_after_the_first_signal_nothing_is_fetched_and_what_runs_may_end(
    busy: Callable[..., tuple[ManagedProcess, list[str], list[str]]],
    reads: Reads,
    tmp_path: Path,
    number: int,
    arguments: tuple[str, ...],
) -> None:
    """Sent to the whole group, as a terminal and some supervisors do: it counts once."""
    process, running, waiting = busy(*arguments)
    os.killpg(process.pid, number)
    process.wait_for("Stopping")
    assert outcomes(reads, running) == {State.ACTIVE}
    (tmp_path / "go").touch()
    assert process.wait() == 0
    assert outcomes(reads, running) == {Outcome.COMPLETED}
    assert outcomes(reads, waiting) == {State.PENDING}, "none was fetched"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_c128_the_second_signal_to_the_group_forces(
    busy: Callable[..., tuple[ManagedProcess, list[str], list[str]]], store: Store, reads: Reads, number: int
) -> None:
    process, running, waiting = busy()
    os.killpg(process.pid, number)
    process.wait_for("Stopping")
    began = time.monotonic()
    os.killpg(process.pid, number)
    assert process.wait() == 4
    assert time.monotonic() - began < 10, "no grace"
    assert outcomes(reads, running + waiting) == {State.PENDING}, "handed back"
    assert {record(reads, job_id).crashes for job_id in running} == {0}
    assert store.verify() == []


def test_c128_what_was_told_to_stop_ends_when_its_worker_is_forced(
    busy: Callable[..., tuple[ManagedProcess, list[str], list[str]]], store: Store, reads: Reads, tmp_path: Path
) -> None:
    """A job that was cancelled is not handed back for another worker to run."""
    process, running, _ = busy()
    freezing.freeze(process.pid)  # so that its bodies do not hear of it
    assert store.cancel([running[0][-22:]]) == ["stopping"]
    for _ in range(2):
        os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait() in (0, 4)
    assert record(reads, running[0]).outcome is Outcome.CANCELLED
    assert store.verify() == []
