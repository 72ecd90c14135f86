"""The processes of the demonstration: `manage.py stack` as anybody would start it, and the killing of a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ductor_project.demo.show.site import Site
from queueapp.cli.stack import free_port
from queueapp.store import shards
from queueapp.store.views import WorkerEntry

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0
WORKERS = 2
SLOTS = 1
"""Of each worker. Imports compute, and two threads that compute only wait for each other."""
LIVE_MS = 10_000


class StackFailed(Exception):
    """The stack did not come up, or is gone."""


class RunningStack:
    """Web server, scheduler and two workers. `log` has what they said."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self._process = process
        self.port = port
        self.log = log

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def require_running(self) -> None:
        """Raises StackFailed, with the end of the log, when the stack has ended."""
        if self._process.poll() is not None:
            raise StackFailed(f"The stack ended with code {self._process.returncode}. It said:\n{self.last_words()}")

    def last_words(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def await_ready(self, pool: str) -> None:
        """Returns when the site answers and both workers have made themselves known."""
        end, site = time.monotonic() + START_TIMEOUT_S, Site(HOST, self.port)
        while not (site.answers() and len(live_workers(pool)) >= WORKERS):
            self.require_running()
            if time.monotonic() > end:
                raise StackFailed(f"The stack is not up after {START_TIMEOUT_S:g} s. It said:\n{self.last_words()}")
            time.sleep(0.1)
        site.close()

    def stop(self) -> None:
        """As Ctrl-C does it, and for good when that takes too long."""
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGTERM):
            if self._process.poll() is None:
                self._process.send_signal(number)
                try:
                    self._process.wait(STOP_TIMEOUT_S / 3)
                except subprocess.TimeoutExpired:
                    continue
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def stack(directory: Path, pools: list[str]) -> Iterator[RunningStack]:
    """The stack, apart from the terminal, so that Ctrl-C reaches us alone and we stop it before the server."""
    log, port = directory / "stack.log", free_port(HOST, None)
    command = [
        *(sys.executable, sys.argv[0], "ductor_stack", "--host", HOST, "--port", str(port)),
        *("--workers", str(WORKERS), "--slots", str(SLOTS), "--pool", ",".join(pools), "--grace", "5"),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    running = RunningStack(process, port, log)
    try:
        yield running
    finally:
        running.stop()


def live_workers(pool: str) -> list[WorkerEntry]:
    """The workers of a pool that were heard of lately and whose process exists."""
    overview = shards.reads(pool).overview()
    return [
        worker
        for worker in overview.workers
        if overview.now_ms - worker.last_ms < LIVE_MS and _exists(int(worker.info.get("pid", 0)))
    ]


def kill_worker(pool: str, number: int) -> tuple[int, int]:
    """SIGKILL one of the workers, in the order of their names. Returns `(pid, jobs that it held)`."""
    workers = sorted(live_workers(pool), key=lambda worker: worker.id)
    victim = workers[number % len(workers)]
    pid = int(victim.info["pid"])
    os.kill(pid, signal.SIGKILL)
    return pid, victim.held


def _exists(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
