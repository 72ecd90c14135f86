"""Child processes of `stack` and of `worker --processes`: started afresh, never forked, apart from the terminal.

The child's standard input is one end of a pair of sockets. Nothing is ever written to the other end, which goes with
the parent (`leash`); the child writes to it once, when it has come up. A child's lines go through `say`, or, without
it, where the parent's own go.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from time import monotonic

from django.utils.autoreload import get_child_arguments

PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
HEALTHY_S = 60.0
"""A child that lived so long is restarted without a long pause."""
_CAME_UP = b"u"


def came_up(descriptor: int = 0) -> None:
    """Called in a child: it has everything that it needs. Its parent is told."""
    os.write(descriptor, _CAME_UP)


def program() -> list[str]:
    """What starts this program anew, without its arguments."""
    given = len(sys.argv) - 1
    command: list[str] = get_child_arguments()
    return command[: len(command) - given]


class Child:
    """One child. Only its parent's own thread calls its methods; `died` gets the child when its process has ended."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        say: Callable[[str, str], None] | None,
        died: SimpleQueue[object],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment`: what the child gets beside ours."""
        self.name = name
        self._command = [*program(), *arguments]
        self._environment = environment
        self._say = say
        self._died = died
        self._process: subprocess.Popen[str] | None = None
        self._ours: socket.socket | None = None
        self._up = False
        self._started = 0.0
        self._pause_s = 0.0
        self.restart_at: float | None = None

    def start(self) -> None:
        """In a session of its own, so that Ctrl-C reaches the parent alone, which stops its children in order."""
        self.restart_at = None
        self._started, self._up = monotonic(), False
        if self._ours is not None:
            self._ours.close()
        self._ours, theirs = socket.socketpair()
        self._ours.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                self._command,
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE if self._say else None,
                stderr=subprocess.STDOUT if self._say else None,
                text=True,
                errors="replace",
                bufsize=1,
                start_new_session=True,
                env={**os.environ, **self._environment} if self._environment else None,
            )
        threading.Thread(target=self._relay, args=(self._process,), daemon=True).start()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def up(self) -> bool:
        """This process of it has come up, whether or not it still runs."""
        if not self._up and self._ours is not None:
            try:
                self._up = self._ours.recv(1) == _CAME_UP
            except OSError:
                return False  # nothing yet, or it died with what it had not read
        return self._up

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def schedule_restart(self, *, at_once: bool = False) -> float:
        """Called when it has died; the pause grows while it keeps dying young."""
        young = monotonic() - self._started < HEALTHY_S
        if at_once:
            self._pause_s = 0.0
        else:
            self._pause_s = min(PAUSE_MAX_S, self._pause_s * 2 or PAUSE_S) if young else PAUSE_S
        self.restart_at = monotonic() + self._pause_s
        return self._pause_s

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _relay(self, process: subprocess.Popen[str]) -> None:
        if process.stdout is not None and self._say is not None:
            for line in process.stdout:
                self._say(self.name, line.rstrip("\n"))
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._died.put(self)
