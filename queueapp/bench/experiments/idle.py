"""`bench idle`: what a worker and a scheduler cost that have nothing to do.

One process of each, of a project with one pool and no jobs. After they have settled, their own processor time is read
twice, some seconds apart, and what the server ran meanwhile. How soon an idle worker begins a job, `bench throughput`
measures.
"""

from __future__ import annotations

import time
from pathlib import Path

import redis

from queueapp.bench import cpu
from queueapp.bench.harness import Progress, Report
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.server_cost import Meter
from queueapp.bench.worker_process import worker
from queueapp.conf import DEFAULT_POOL
from queueapp.store import shards

SETTINGS = "queueapp.bench.idle_settings"
SLOTS = 16
MOST_PCT = 1.0
"""Of one core, both processes together."""
SHOW_S = 1.0


def run(
    report: Report, client: redis.Redis, progress: Progress, directory: Path, *, seconds: float, settle: float
) -> None:
    """Measures for `seconds`, `settle` seconds after both have started."""
    scheduler = SchedulerProcess("idle", directory, settings=SETTINGS)
    try:
        scheduler.await_start()
        scheduler.await_lead(shards.reads(DEFAULT_POOL))
        with worker(DEFAULT_POOL, slots=SLOTS, log=directory / "worker.log", settings=SETTINGS) as process:
            _sleep(progress, settle, "settling")
            pids = {"worker": process.pid, "scheduler": scheduler.pid}
            meter, begun = Meter(client), time.monotonic()
            before = {name: cpu.used_s(pid) for name, pid in pids.items()}
            _sleep(progress, seconds, "idle")
            used = {name: cpu.used_s(pid) - before[name] for name, pid in pids.items()}
            over_s, cost = time.monotonic() - begun, meter.read()
    finally:
        scheduler.end()
    judge(report, progress, {name: 100 * used_s / over_s for name, used_s in used.items()}, cost.commands / over_s)
    report.figures["server_us_per_s"] = cost.script_us / over_s


def judge(report: Report, progress: Progress, cpu_pct: dict[str, float], commands_per_s: float) -> None:
    """Shares of one core by process, and what the server ran in a second."""
    total = sum(cpu_pct.values())
    report.figures |= {f"{name}_cpu_pct": share for name, share in cpu_pct.items()}
    report.figures |= {"cpu_pct": total, "commands_per_s": commands_per_s}
    progress.say(
        f"  {total:.2f} % of a core (less than {MOST_PCT:g} % promised): "
        + ", ".join(f"{name} {share:.2f} %" for name, share in cpu_pct.items())
    )
    progress.say(f"  {commands_per_s:.1f} commands a second in the server, those inside scripts included")
    if total >= MOST_PCT:
        report.missed.append(
            f"An idle worker and scheduler take {total:.2f} % of a core; less than {MOST_PCT:g} % are promised."
        )


def _sleep(progress: Progress, seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while (left_s := end - time.monotonic()) > 0:
        progress.show(f"  {what}: {left_s:.0f} s left")
        time.sleep(min(SHOW_S, left_s))
