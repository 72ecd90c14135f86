"""Worker and scheduler processes for the integration tests: started, watched line by line, and never left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test.utils import override_settings

from queueapp.store import connection, embedded
from queueapp.store.reads import Reads
from queueapp.store.views import JobRecord

ROOT = Path(__file__).resolve().parents[2]


class ManagedProcess:
    """One `manage.py` process. Its output is kept, standard output and error together."""

    def __init__(self, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        self.arguments = arguments
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        with self._changed:
            return "\n".join(self.lines)

    def wait_for(self, text: str, timeout: float = 30.0) -> None:
        """Waits until a line with this text came."""
        with self._changed:
            if not self._changed.wait_for(lambda: any(text in line for line in self.lines), timeout):
                pytest.fail(f"{self.arguments} did not say {text!r} but:\n" + "\n".join(self.lines))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 30.0) -> int:
        """Waits for the end; the exit code."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.arguments} did not end:\n{self.output}")
        self._reader.join(5)
        return code

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def discard(self) -> None:
        if self.process.poll() is None:
            # SIGKILL, because a stopped process does not die of SIGTERM; with it goes a child that a reloader has.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()


Manage = Callable[..., ManagedProcess]


@pytest.fixture(scope="session")
def _migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database file, made once and copied for each test."""
    path = tmp_path_factory.mktemp("database") / "db.sqlite3"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.integration.process_settings",
        "DATABASE_URL": f"sqlite:///{path}",
    }
    subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "migrate", "-v0"], cwd=ROOT, env=environment, check=True, timeout=120
    )
    return path


@pytest.fixture
def manage(process_environment: dict[str, str], tmp_path: Path, _migrated: Path) -> Iterator[Manage]:
    """Start `manage.py` processes: `manage("worker", "--batch", LEASE_SECONDS=2)`; capitals are settings of DUCTOR."""
    shutil.copy(_migrated, tmp_path / "db.sqlite3")
    processes: list[ManagedProcess] = []

    def start(*arguments: str, env: dict[str, str] | None = None, **settings: Any) -> ManagedProcess:
        environment = {
            **process_environment,
            "DJANGO_SETTINGS_MODULE": "tests.integration.process_settings",
            "TEST_DUCTOR": json.dumps(settings),
            **(env or {}),
        }
        process = ManagedProcess(arguments, environment)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.discard()


@pytest.fixture
def worker(manage: Manage) -> Manage:
    """Start a worker: `worker("--slots", "1", LEASE_SECONDS=2)`."""

    def start(*arguments: str, **settings: Any) -> ManagedProcess:
        return manage("worker", "--no-reload", *arguments, **settings)

    return start


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short path for a server that keeps its data."""
    path = Path(tempfile.mkdtemp(prefix="ductor-outage-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def own_store(directory: Path, namespace: str) -> Iterator[embedded.EmbeddedServer]:
    """A server of this test alone, with an append-only file; the test's own code uses it, too."""
    server = embedded.start(directory, extra=("--appendfsync", "always"))
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": server.url, "NAMESPACE": namespace}):
        connection.reset()
        yield server
        connection.reset()
    embedded.start(directory).stop()
    server.stop()


def warnings_of(process: ManagedProcess) -> list[str]:
    """What an operator would be woken by."""
    return [line for line in process.lines if " WARNING " in line or " ERROR " in line]


def until(condition: Callable[[], Any], timeout: float = 30.0, what: str = "") -> Any:
    """Polls until the condition holds; its value."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout:g} s: {what or condition}")
        time.sleep(0.01)


def notes(place: Path, name: str) -> list[tuple[int, float]]:
    """(process id, monotonic time) of each time that a job noted `name`."""
    path = place / name
    if not path.exists():
        return []
    return [(int(pid), float(at)) for pid, at in (line.split() for line in path.read_text().splitlines())]


def record(reads: Reads, public_id: str) -> JobRecord:
    """The job as the store has it."""
    found = reads.job(public_id[-22:])
    assert found is not None, f"{public_id} is gone"
    return found
