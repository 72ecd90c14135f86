"""Real scheduler processes for a benchmark: `manage.py scheduler` on the benchmark's own settings, to be shot at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from queueapp.bench import OWN, SETTINGS
from queueapp.bench.waiting import WITHIN_S, until
from queueapp.store.reads import Reads

STOP_TIMEOUT_S = 10.0


class SchedulerProcess:
    """One scheduler. What it says goes to a file of its own in `directory`; `own` is what its DUCTOR setting has beside
    what those of all processes have."""

    def __init__(
        self, name: str, directory: Path, *, settings: str = SETTINGS, own: Mapping[str, object] | None = None
    ) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        command = [sys.executable, "-m", "django", "ductor_scheduler", "--scheduler-id", name]
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, "DJANGO_SETTINGS_MODULE": settings, OWN: json.dumps(own or {})},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def await_start(self, within_s: float = WITHIN_S) -> None:
        """Until it works: as a leader, or as a standby."""
        self._await(lambda: b"Scheduler started" in self._log.read_bytes(), within_s)

    def leads(self, reads: Reads) -> bool:
        return reads.overview().leader.startswith(f"{self.name}.")

    def await_lead(self, reads: Reads, within_s: float = WITHIN_S) -> None:
        """Until it leads."""
        self._await(lambda: self.leads(reads), within_s)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        """Whatever state it is in."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _await(self, holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        until(holds, self._said, within_s=within_s, goes_on=lambda: self._process.poll() is None)

    def _said(self) -> str:
        said = self._log.read_text(errors="replace")[-2000:]
        return f"The scheduler {self.name} did not get that far. It said:\n{said}"
