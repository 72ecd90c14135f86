"""A run that was frozen past its lease wakes and writes: its own database refuses it."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import freezing
from tests.integration import fenced
from tests.integration.conftest import Manage, notes, until

pytestmark = pytest.mark.faults


@pytest.fixture
def database(worker: Manage, tmp_path: Path) -> Path:
    """The one that the worker processes use, with an account."""
    path = tmp_path / "db.sqlite3"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "CREATE TABLE tests_fenced_account"
            " (id integer PRIMARY KEY, fence_job bigint, fence bigint, balance integer)"
        )
        connection.execute("INSERT INTO tests_fenced_account VALUES (1, 0, 0, 100)")
    return path


def balance(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        found: int = connection.execute("SELECT balance FROM tests_fenced_account").fetchone()[0]
    return found


def test_the_write_of_a_run_that_was_frozen_past_its_lease_is_refused(
    worker: Manage, database: Path, tmp_path: Path
) -> None:
    frozen = worker("--slots", "1", LEASE_SECONDS=1)
    paid = fenced.pay_in.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "read-1"))
    freezing.freeze(frozen.pid)
    second = worker("--slots", "1", LEASE_SECONDS=1)
    until(lambda: notes(tmp_path, "read-2"))
    (tmp_path / "go-2").touch()
    paid.wait(timeout=20)
    assert balance(database) == 102
    frozen.signal(signal.SIGCONT)
    (tmp_path / "go-1").touch()
    until(lambda: notes(tmp_path, "refused") or notes(tmp_path, "written-1"), what="the first run wakes")
    assert (balance(database), notes(tmp_path, "written-1")) == (102, [])
    assert frozen.stop() == 0
    assert second.stop() == 0
