"""Child processes of the stack: started apart from the terminal, their lines prefixed, started again when they die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from time import monotonic

PAUSE_S = 1.0
PAUSE_MAX_S = 30.0
HEALTHY_S = 60.0
"""A child that lived so long is restarted without a long pause."""


class Child:
    """One child. Only the stack's own thread calls its methods; `died` gets the child when its process has ended."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        say: Callable[[str, str], None],
        died: SimpleQueue[object],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment`: what the child gets beside ours."""
        self.name = name
        self._command = [sys.executable, sys.argv[0], *arguments]
        self._environment = environment
        self._say = say
        self._died = died
        self._process: subprocess.Popen[str] | None = None
        self._started = 0.0
        self._pause_s = 0.0
        self.restart_at: float | None = None

    def start(self) -> None:
        """In a session of its own, so that Ctrl-C reaches the stack alone, which stops its children in order."""
        self.restart_at = None
        self._started = monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
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
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def schedule_restart(self) -> float:
        """Called when it has died; the pause grows while it keeps dying young."""
        young = monotonic() - self._started < HEALTHY_S
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
        assert process.stdout is not None
        for line in process.stdout:
            self._say(self.name, line.rstrip("\n"))
        process.wait()
        process.stdout.close()
        if process.stdin is not None:
            process.stdin.close()
        self._died.put(self)
