"""A ground of one's own: a benchmark or the demonstration runs on a private directory, database and server.

`enter` starts the program again in an environment that names them, in the same process, so that Ctrl-C and exit code
stay its own; `held` then starts the server and takes everything away at the end. REDIS_URL and DATABASE_URL of the
caller's environment are never looked at: what is configured, flushed and stopped here was started here.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from queueapp.bench import MARK
from queueapp.store import connection, embedded

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

OURS = frozenset(
    {
        "REDIS_URL",
        "DATABASE_URL",
        "DUCTOR_NAMESPACE",
        "DEBUG",
        "SECRET_KEY",
        "ALLOWED_HOSTS",
        "CSRF_TRUSTED_ORIGINS",
        "HTTPS",
        "HSTS_SECONDS",
        "BEHIND_PROXY",
        "EMAIL_URL",
        "STATE_DIR",
        "STATIC_ROOT",
        "TIME_ZONE",
        "LOG_LEVEL",
        "LOG_FORM",
    }
)
"""Variables that the settings of the example project read; nothing of them reaches the ground."""


def entered(settings_module: str) -> Path | None:
    """The directory, when this process already runs on a ground of its own with these settings."""
    named = os.environ.get(MARK)
    return Path(named) if named and os.environ.get("DJANGO_SETTINGS_MODULE") == settings_module else None


def enter(settings_module: str, command: Sequence[str]) -> NoReturn:
    """Start `command` (arguments of this Python) in place of this program, with a new directory and its settings."""
    embedded.find_binary()  # without a server to start, say so before anything is made
    directory = Path(tempfile.mkdtemp(prefix="ductor-"))
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment |= {
        MARK: str(directory),
        "DJANGO_SETTINGS_MODULE": settings_module,
        "REDIS_URL": embedded.url(directory),
        "DATABASE_URL": f"sqlite:///{directory / 'db.sqlite3'}",
        "PYTHONPATH": os.pathsep.join(filter(None, [*_roots(), os.environ.get("PYTHONPATH", "")])),
        "PYTHONUNBUFFERED": "1",
    }
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(sys.executable, [sys.executable, *command], environment)
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _roots() -> list[str]:
    """Where the packages of this program are, for a program that starts from elsewhere."""
    return [str(Path(__file__).resolve().parent.parent.parent), os.getcwd()]


@contextmanager
def held(directory: Path) -> Iterator[embedded.EmbeddedServer]:
    """The server of the directory, durable as in `stack`. At the end it is stopped and the directory removed."""
    with ending():
        try:
            with embedded.start(directory) as server:
                try:
                    yield server
                finally:
                    connection.reset()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            # The socket stands elsewhere when the path of the directory is too long for one.
            with suppress(OSError):
                embedded.socket_path(directory).unlink(missing_ok=True)


SOON_S = 0.05


class Left(KeyboardInterrupt):
    """SIGTERM came."""


@contextmanager
def ending() -> Iterator[None]:
    """SIGTERM ends the program as Ctrl-C does, through every `finally`.

    Where Python only prints what is raised, in a callback of a weak reference or a `__del__`, it tells a hook so; then
    the program is told once more, a moment later, when that call is over.
    """
    hook = sys.unraisablehook

    def swallowed(what: UnraisableHookArgs) -> None:
        if issubclass(what.exc_type, Left):
            signal.setitimer(signal.ITIMER_REAL, SOON_S)
        else:
            hook(what)

    before = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGALRM)}
    sys.unraisablehook = swallowed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise Left
