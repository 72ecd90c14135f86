"""Processor time of another process, from /proc: what it has used since its start, in user and in kernel mode."""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")


def used_s(pid: int, proc: Path = PROC) -> float:
    """Seconds, in steps of a clock tick. RuntimeError where the system tells it in no /proc, or there is no such
    process."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError as error:
        raise RuntimeError(f"{proc / str(pid) / 'stat'} cannot be read: idle costs are measured on Linux.") from error
    fields = text.rpartition(")")[2].split()  # the name before it may have spaces and brackets in it
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
