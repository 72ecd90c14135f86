"""A real worker process for a benchmark: `manage.py worker` on the benchmark's own settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from queueapp.bench import OWN, SETTINGS
from queueapp.bench.waiting import WITHIN_S, until
from queueapp.store import shards

STOP_TIMEOUT_S = 30.0


@contextmanager
def worker(
    pool: str, *, slots: int, log: Path, coroutines: int = 0, settings: str = SETTINGS
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of `pool` that has made itself known; stopped gracefully at the end. What it says goes to `log`."""
    process = start_worker(pool, slots=slots, log=log, coroutines=coroutines, settings=settings)
    try:
        await_worker(pool, process, log)
        yield process
    finally:
        stop_workers([process])


def start_worker(
    pool: str,
    *,
    slots: int,
    log: Path,
    coroutines: int = 0,
    settings: str = SETTINGS,
    options: Sequence[str] = (),
    own: Mapping[str, object] | None = None,
) -> subprocess.Popen[bytes]:
    """A worker that begins to start. `options` are further words of its command line, `own` is what its DUCTOR setting
    has beside what those of all processes have."""
    command = [sys.executable, "-m", "django", "ductor_worker", "--pool", pool, "--slots", str(slots), "--no-reload"]
    command += ["--coroutines", str(coroutines), *options]
    with log.open("wb") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": settings, OWN: json.dumps(own or {})},
        )


def await_worker(pool: str, process: subprocess.Popen[bytes], log: Path, within_s: float = WITHIN_S) -> None:
    """Until it has made itself known."""
    pid = str(process.pid)

    def known() -> bool:
        # Its own word first: the store is asked only when the answer is near, as the processor is wanted for the start.
        started = b"Worker started" in log.read_bytes()
        return started and any(entry.info.get("pid") == pid for entry in shards.reads(pool).overview().workers)

    until(
        known,
        lambda: f"The worker did not start. It said:\n{log.read_text(errors='replace')[-2000:]}",
        within_s=within_s,
        goes_on=lambda: process.poll() is None,
    )


def stop_workers(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Gracefully, all at once; at once where that takes too long."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
