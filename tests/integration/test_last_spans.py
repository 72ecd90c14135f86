"""A worker that leaves without the interpreter's own end: what it recorded last for a trace is sent before."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration import jobs
from tests.integration.conftest import Manage, notes, until

pytest.importorskip("opentelemetry.sdk.trace")
pytest.importorskip("sentry_sdk")


def test_what_was_recorded_last_is_sent_by_a_worker_that_is_cut_short(manage: Manage, tmp_path: Path) -> None:
    env = {"DJANGO_SETTINGS_MODULE": "tests.integration.traced_settings", "TEST_TRACES": str(tmp_path)}
    worker = manage("worker", "--no-reload", "--slots", "2", env=env)
    jobs.block.enqueue(str(tmp_path))
    until(lambda: notes(tmp_path, "block"))
    jobs.noop.enqueue().wait(timeout=30)
    worker.signal(signal.SIGTERM)
    worker.wait_for("Stopping")
    assert (tmp_path / "spans").read_text() == ""
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 4
    assert "process default" in (tmp_path / "spans").read_text().splitlines()
    assert "tests.integration.jobs.noop" in (tmp_path / "sentry").read_text().splitlines()
