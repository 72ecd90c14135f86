"""`manage.py stack`: one command starts everything, one Ctrl-C ends it, workers first and the store last."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.test.utils import override_settings

from queueapp.cli.stack import free_port
from queueapp.store import connection, embedded
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, notes, until

pytestmark = pytest.mark.faults


@pytest.fixture
def base(namespace: str) -> Iterator[Path]:
    """The directory of a project of its own, whose embedded server the test's code uses, too."""
    path = Path(tempfile.mkdtemp(prefix="ductor-stack-"))
    url = embedded.url(path / ".ductor")
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": url, "NAMESPACE": namespace}):
        connection.reset()
        yield path
        connection.reset()
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def stack(manage: Manage, base: Path) -> Callable[..., ManagedProcess]:
    """Start a stack in that directory."""

    def start(*arguments: str) -> ManagedProcess:
        env = {"REDIS_URL": "", "TEST_BASE_DIR": str(base)}
        return manage("stack", "--migrate", *arguments, env=env)

    return start


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def started_workers(running: ManagedProcess) -> int:
    return sum("Worker started" in line for line in running.lines)


def test_everything_starts_works_and_ends_with_one_signal(
    stack: Callable[..., ManagedProcess], base: Path, tmp_path: Path
) -> None:
    port = free_port("127.0.0.1", None)
    running = stack("--workers", "2", "--port", str(port), "--grace", "10", "-v", "2")
    until(lambda: started_workers(running) == 2, what=running.output)
    running.wait_for("Leading")
    assert jobs.noop.enqueue("hello").wait(timeout=30).return_value == "hello"
    running.wait_for("state=SUCCESSFUL")  # at -v 2 the workers tell of every job
    running.wait_for("web:   http://")
    address = next(line.partition("admin: ")[2] for line in running.lines if "admin: " in line)
    until(lambda: _answers(address))

    # A worker that dies is started again.
    jobs.block.enqueue(str(tmp_path))
    [(pid, _)] = until(lambda: notes(tmp_path, "block"))
    os.kill(pid, signal.SIGKILL)
    running.wait_for("starting it again in 1 s")
    until(lambda: started_workers(running) == 3, what=running.output)

    # Ctrl-C: the running job ends first, the store goes last.
    jobs.block.enqueue(str(tmp_path), "finishing")
    until(lambda: notes(tmp_path, "finishing"))
    pids = {pid for pid, _ in notes(tmp_path, "finishing")}
    running.signal(signal.SIGINT)
    running.wait_for("Stopping")
    (tmp_path / "go").touch()
    assert running.wait(60) == 0
    assert "outcomes not reported" not in running.output
    assert "Trying again" not in running.output, "the store was there to the last"
    assert not any(alive(pid) for pid in pids)
    assert not _listens(base)


def test_c128_signals_to_its_whole_group_count_once_each(
    stack: Callable[..., ManagedProcess], base: Path, tmp_path: Path
) -> None:
    """C128: a signal that reaches every child as well kills tasks. The first lets them end, the second forces."""
    running = stack("--no-web", "--slots", "4", "--grace", "60")
    until(lambda: started_workers(running) == 1, what=running.output)
    blocked = [jobs.block.enqueue(str(tmp_path)) for _ in range(4)]
    until(lambda: len(notes(tmp_path, "block")) == 4)
    os.killpg(running.pid, signal.SIGTERM)
    running.wait_for("Stopping")
    for job in blocked:
        job.refresh()
        assert job.state == "active"
    os.killpg(running.pid, signal.SIGTERM)
    running.wait_for("running jobs given back")
    assert running.wait(60) == 0


def test_its_children_end_with_it_even_when_it_is_killed(
    stack: Callable[..., ManagedProcess], base: Path, tmp_path: Path
) -> None:
    running = stack("--no-web", "--grace", "1")
    until(lambda: started_workers(running) == 1, what=running.output)
    jobs.started.enqueue(str(tmp_path), "ran").wait(timeout=30)
    [(pid, _)] = notes(tmp_path, "ran")
    running.signal(signal.SIGKILL)
    running.process.wait(10)
    until(lambda: not alive(pid) or _is_zombie(pid))
    # The next owner takes the server over and may end it.
    server = embedded.start(base / ".ductor")
    assert server.owned
    server.stop()


def test_a_wished_port_that_is_taken_is_an_error(stack: Callable[..., ManagedProcess]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = stack("--port", str(port), "--workers", "0", "--no-scheduler")
        assert running.wait() == 1
    assert f"port {port} of 127.0.0.1 is not free" in running.output
    assert "Traceback" not in running.output


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _listens(base: Path) -> bool:
    path = embedded.socket_path((base / ".ductor").resolve())
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def test_a_free_port_is_found_when_the_usual_one_is_taken() -> None:
    with socket.socket() as usual:
        usual.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            usual.bind(("127.0.0.1", 8000))
            usual.listen()
        except OSError:
            pass  # somebody else has it: as good
        found = free_port("127.0.0.1", None)
    assert found not in {0, 8000}


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
