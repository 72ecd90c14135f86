"""Processes that freeze."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from time import monotonic


def freeze(pid: int) -> None:
    """Stops a process, as a paused virtual machine would be.

    Each thread has stopped when it returns: SIGSTOP only asks for it, and on a busy machine a thread that runs goes on
    until the one that got the signal has its turn.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = monotonic() + 30
    while not _has_stopped(pid):
        assert monotonic() < deadline, f"process {pid} has not stopped within 30 s of SIGSTOP"


def _has_stopped(pid: int) -> bool:
    states = set()
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # a thread that has just ended
            states.add(stat.read_text().rpartition(")")[2].split()[0])
    return states <= {"T", "Z", "X"}
