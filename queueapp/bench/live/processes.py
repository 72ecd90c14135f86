"""The real processes of a cell: workers, and a scheduler that leads, recovers and promotes. Started and stopped
together; none of them lives longer than its cell, so that what one has learnt or remembers reaches no other.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from queueapp.bench.live.plan import MOST_WORKERS
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.worker_process import await_worker, start_worker, stop_workers
from queueapp.store import shards

START_S = 120.0
"""For one of them to start, on a machine that has more to do: a run of hours does not end for that."""
KEPT = 100_000_000
"""What has ended is kept until it has been read, however much it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dice:
    """Faults on order for the workers of a cell (`queueapp.worker.faults`): shares of all runs, and the seed."""

    failing: float = 0.0
    lost: float = 0.0
    seed: int = 0

    def words(self, number: int) -> list[str]:
        """Words of the command line of worker `number` (from 0): each has dice of its own."""
        if not self.failing and not self.lost:
            return []
        return [
            *("--fail-rate", str(self.failing)),
            *("--fail-before-ack-rate", str(self.lost)),
            *("--fail-seed", str(self.seed * MOST_WORKERS + number)),  # behind those of the repetition before
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The processes of a cell, all of which work."""

    workers: Sequence[subprocess.Popen[bytes]]
    scheduler: SchedulerProcess
    logs: Sequence[Path]

    def goes_on(self) -> bool:
        return self.scheduler.running and all(worker.poll() is None for worker in self.workers)

    def require(self) -> None:
        """Raises RuntimeError, with what they said last, when one of them is gone: its cell measures nothing."""
        if not self.goes_on():
            said = "\n".join(log.read_text(errors="replace")[-1000:] for log in self.logs)
            raise RuntimeError(f"A process of the cell has ended before its time. They said:\n{said}")


@contextmanager
def serving(pool: str, directory: Path, *, workers: int, slots: int, lease_ms: int, dice: Dice) -> Iterator[Serving]:
    """Processes that serve `pool`: a scheduler that leads it, and workers of `slots` slots that it knows."""
    logs = [directory / f"worker-{number}.log" for number in range(workers)]
    own = {"POOLS": {}, "LEASE_SECONDS": lease_ms / 1000, "RESULT_MAX": KEPT, "DEAD_MAX": KEPT}  # the pool has a row
    scheduler = SchedulerProcess("scheduler", directory, own=own)
    started: list[subprocess.Popen[bytes]] = []
    try:
        for number, log in enumerate(logs):
            started.append(
                start_worker(
                    pool,
                    slots=slots,
                    log=log,
                    options=["--worker-id", f"worker-{number}", *dice.words(number)],
                    own=own,
                )
            )
        scheduler.await_start(START_S)
        scheduler.await_lead(shards.reads(pool))
        for process, log in zip(started, logs, strict=True):
            await_worker(pool, process, log, START_S)
        yield Serving(workers=started, scheduler=scheduler, logs=[*logs, directory / "scheduler.log"])
    finally:
        if scheduler.running:
            scheduler.signal(signal.SIGTERM)
        stop_workers(started)
        scheduler.end()
