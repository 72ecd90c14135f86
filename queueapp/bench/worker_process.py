"""A real worker process for a benchmark: `manage.py worker` on the benchmark's own settings."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queueapp.store import shards

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


@contextmanager
def worker(pool: str, *, slots: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of `pool` that has made itself known; stopped gracefully at the end. What it says goes to `log`."""
    command = [sys.executable, "-m", "django", "ductor_worker", "--pool", pool, "--slots", str(slots), "--no-reload"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    try:
        _await_registration(pool, process, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_registration(pool: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    pid = str(process.pid)
    while not any(entry.info.get("pid") == pid for entry in shards.reads(pool).overview().workers):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"The worker did not start. It said:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)
