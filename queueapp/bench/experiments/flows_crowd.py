"""What many runs in flight notice of another tenant's flood: how long their steps wait with it and without it.

Two workers and a scheduler as processes of their own. As many runs are started at once in either arm; in the second
one, fresh jobs of another tenant wait in the pool from the beginning to the end, so many all the time. Weights
are equal. A step waits from the moment when it could begin, as its row has it, until its body does; the gap beside it
is from the end of the body before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import redis

from flows import models
from queueapp import enqueue_many
from queueapp.bench.flow_work import CROWD, LEAST_MS, MOST_MS, chain, fresh
from queueapp.bench.harness import Progress, Report
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.statistics import percentiles, ratio
from queueapp.bench.worker_process import await_worker, start_worker, stop_workers
from queueapp.store import shards

SETTINGS = "queueapp.bench.flow_settings"
WORKERS = 2
MOST_RATIO = 2.0
WITHIN_S = 300.0
LOOK_S = 0.1
PAGE = 500
WARM_RUNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """`flood` fresh jobs wait all the time; `slots` are those of each worker."""

    runs: int = 200
    steps: int = 20
    flood: int = 2_000
    slots: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What came of it; milliseconds, of all steps but the first ones."""

    waits: Sequence[float]
    gaps: Sequence[float]
    seconds: float
    flooded: int = 0
    """Fresh jobs that completed meanwhile."""


def run(report: Report, client: redis.Redis, progress: Progress, directory: Path, sizes: Sizes) -> None:
    """The arm without the flood, then the one with it, in the same processes."""
    with _processes(directory, sizes.slots):
        _arm(client, progress, "warming up", min(WARM_RUNS, sizes.runs), sizes.steps, 0)
        calm = _arm(client, progress, "calm", sizes.runs, sizes.steps, 0)
        flood = _arm(client, progress, "flood", sizes.runs, sizes.steps, sizes.flood)
    for name, arm in (("calm", calm), ("flood", flood)):
        half, most = percentiles(arm.waits, 50, 95)
        gap_half, gap_most = percentiles(arm.gaps, 50, 95)
        report.figures |= {
            f"{name}_wait_ms_p50": half,
            f"{name}_wait_ms_p95": most,
            f"{name}_gap_ms_p50": gap_half,
            f"{name}_gap_ms_p95": gap_most,
            f"{name}_steps_per_s": ratio(sizes.runs * sizes.steps, arm.seconds),
        }
        beside = f", beside {ratio(arm.flooded, arm.seconds):,.0f} fresh jobs/s" if arm.flooded else ""
        progress.say(
            f"  {name:<17} a step of {sizes.runs:,} runs waits {half:,.1f} ms p50, {most:,.1f} ms p95; "
            f"{ratio(sizes.runs * sizes.steps, arm.seconds):,.0f} steps/s{beside}"
        )
    report.figures |= {
        "flood_jobs_per_s": ratio(flood.flooded, flood.seconds),
        "wait_ratio": ratio(
            float(report.figures["flood_wait_ms_p95"] or 0), float(report.figures["calm_wait_ms_p95"] or 0)
        ),
        "gap_ratio": ratio(
            float(report.figures["flood_gap_ms_p95"] or 0), float(report.figures["calm_gap_ms_p95"] or 0)
        ),
    }
    progress.say(f"  with the flood p95 is {report.figures['wait_ratio']:.2f} times that without (below 2 promised)")


def judge(report: Report) -> None:
    """A sentence when steps wait longer under the flood than is promised."""
    found = report.figures["wait_ratio"]
    if found is None or not found < MOST_RATIO:
        report.missed.append(
            f"Under another tenant's flood the steps of runs in flight wait {found:.2f} times as long (p95); less than "
            f"{MOST_RATIO:g} times are promised."
        )


def _arm(client: redis.Redis, progress: Progress, name: str, runs: int, steps: int, flood: int) -> Arm:
    waiting = fresh.using(tenant="flood")
    completed = _completed(client)
    _top_up(waiting, flood)
    flow, begun = chain(CROWD, steps).using(tenant="runs"), time.monotonic()
    ids = [flow.start(LEAST_MS + number % (MOST_MS - LEAST_MS + 1)).id for number in range(runs)]
    while left := models.Run.objects.filter(pk__in=ids, state="running").count():
        if time.monotonic() - begun > WITHIN_S:
            raise TimeoutError(f"{left:,} of {runs:,} runs had not ended within {WITHIN_S:g} s.")
        _top_up(waiting, flood)
        progress.show(f"  {name}: {runs - left:,} of {runs:,} runs have ended")
        time.sleep(LOOK_S)
    seconds = time.monotonic() - begun
    ended = models.Run.objects.filter(pk__in=ids, state="completed").count()
    if ended != runs:
        raise RuntimeError(f"{name}: {ended:,} of {runs:,} runs completed.")
    waits, gaps = _times(ids)
    return Arm(waits=waits, gaps=gaps, seconds=seconds, flooded=_completed(client) - completed - runs * steps)


def _times(ids: Sequence[str]) -> tuple[list[float], list[float]]:
    steps = models.StepRun.objects.filter(run_id__in=ids).order_by("run_id", "step")
    rows: list[Any] = [*steps.values_list("run_id", "started_ms", "output")]
    waits, gaps = list[float](), list[float]()
    for (run_before, _, before), (run_id, could_begin_ms, body) in pairwise(rows):
        if run_before == run_id:
            waits.append(max(0.0, body["began_s"] * 1000 - could_begin_ms))
            gaps.append((body["began_s"] - before["ended_s"]) * 1000)
    return waits, gaps


def _top_up(task: Any, flood: int) -> None:
    """So many fresh jobs wait again."""
    if not flood:
        return
    missing = flood - shards.reads(CROWD).overview().waiting
    while missing > 0:
        page = [task.bind(LEAST_MS + number % (MOST_MS - LEAST_MS + 1)) for number in range(min(PAGE, missing))]
        refused = [outcome.error for outcome in enqueue_many(page) if outcome.error]
        if refused:
            raise refused[0]
        missing -= len(page)


def _completed(client: redis.Redis) -> int:
    found: Any = client.hget(shards.keys(CROWD)["stats"], "completed")
    return int(found or 0)


@contextmanager
def _processes(directory: Path, slots: int) -> Iterator[None]:
    scheduler = SchedulerProcess("crowd", directory, settings=SETTINGS)
    workers, logs = [], [directory / f"crowd-{number}.log" for number in range(WORKERS)]
    try:
        workers += [start_worker(CROWD, slots=slots, log=log, settings=SETTINGS) for log in logs]
        scheduler.await_start()
        for process, log in zip(workers, logs, strict=True):
            await_worker(CROWD, process, log)
        yield
    finally:
        stop_workers(workers)
        scheduler.end()
