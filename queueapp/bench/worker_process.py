"""A real worker process for a benchmark: `manage.py worker` on the benchmark's own settings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from queueapp.bench import SETTINGS
from queueapp.bench.waiting import until
from queueapp.store import shards

STOP_TIMEOUT_S = 30.0


@contextmanager
def worker(
    pool: str, *, slots: int, log: Path, coroutines: int = 0, settings: str = SETTINGS
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of `pool` that has made itself known; stopped gracefully at the end. What it says goes to `log`."""
    command = [sys.executable, "-m", "django", "ductor_worker", "--pool", pool, "--slots", str(slots), "--no-reload"]
    command += ["--coroutines", str(coroutines)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": settings},
        )
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
    pid = str(process.pid)
    until(
        lambda: any(entry.info.get("pid") == pid for entry in shards.reads(pool).overview().workers),
        lambda: f"The worker did not start. It said:\n{log.read_text(errors='replace')[-2000:]}",
        goes_on=lambda: process.poll() is None,
    )
