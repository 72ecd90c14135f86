"""`bench coroutines`: asynchronous bodies beside functions in threads, and thousands of them at once.

Promised: no-op bodies drain at least as fast as functions do, and of many that wait for a second at once the last ends
within a second and a half of the first.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import redis

from queueapp import enqueue_many
from queueapp.bench.experiments.throughput import await_completed
from queueapp.bench.harness import Progress, Report
from queueapp.bench.tasks import anoop, asleep, noop
from queueapp.bench.worker_process import worker
from queueapp.producer.task import DuctorTask
from queueapp.store import shards

SLOTS = 16
COROUTINES = 100
SPREAD_S = 1.5
TIMEOUT_S = 120.0
PAGE = 1_000


def run(
    report: Report,
    client: redis.Redis,
    progress: Progress,
    directory: Path,
    *,
    jobs: int,
    sleeping: int,
    rounds: int,
) -> None:
    """`jobs` no-op jobs of each kind in each round, in turn; `sleeping` that wait for a second at once."""
    drained: dict[str, list[float]] = {"threads": [], "coroutines": []}
    for number in range(rounds + 1):
        for kind, task in (("threads", noop), ("coroutines", anoop)):
            per_s = _drained(client, progress, directory, task, jobs)
            if number:  # the first round warms the server up
                drained[kind].append(per_s)
    ratio = median(drained["coroutines"]) / median(drained["threads"])
    report.figures |= {f"{kind}_per_s": median(found) for kind, found in drained.items()} | {"ratio": ratio}
    progress.say(
        f"  no-op bodies: {median(drained['threads']):,.0f} jobs/s in {SLOTS} threads, "
        f"{median(drained['coroutines']):,.0f} as coroutines (at most {COROUTINES} at once): {ratio:.2f} times"
    )
    if ratio < 1:
        report.missed.append(f"Coroutines drain at {ratio:.2f} times the pace of threads; promised is at least 1.")
    spread_s = _slept(progress, directory, sleeping)
    report.figures["sleeping_spread_s"] = spread_s
    progress.say(f"  {sleeping:,} that sleep for a second at once: the last ended {spread_s:.2f} s after the first")
    if spread_s > SPREAD_S:
        report.missed.append(
            f"The last of {sleeping:,} sleepers ended {spread_s:.2f} s after the first, not {SPREAD_S:g}."
        )


def _drained(client: redis.Redis, progress: Progress, directory: Path, task: DuctorTask, count: int) -> float:
    """Jobs per second between the first twentieth and the last, on the server's clock."""
    before = int(client.hget(shards.keys(task.queue_name)["stats"], "completed") or 0)
    _enqueue(task, count)
    with worker(task.queue_name, slots=SLOTS, coroutines=COROUTINES, log=directory / "drain.log"):
        pool, total = task.queue_name, before + count
        first, first_ms = await_completed(client, progress, before + count // 20, total, pool)
        last, last_ms = await_completed(client, progress, total, total, pool)
    return (last - first) * 1000 / max(1, last_ms - first_ms)


def _slept(progress: Progress, directory: Path, count: int) -> float:
    """Seconds from the first end to the last."""
    results = _enqueue(asleep, count)
    with worker(asleep.queue_name, slots=SLOTS, coroutines=count, log=directory / "sleep.log"):
        end = time.monotonic() + TIMEOUT_S
        ended = []
        for number, result in enumerate(results):
            ended.append(float(result.wait(timeout=max(0.0, end - time.monotonic())).return_value))
            progress.show(f"  {number:,} of {count:,} have slept")
    return max(ended) - min(ended)


def _enqueue(task: DuctorTask, count: int) -> list[Any]:
    outcomes = [
        outcome
        for first in range(0, count, PAGE)
        for outcome in enqueue_many(task.bind() for _ in range(min(PAGE, count - first)))
    ]
    refused = [outcome.error for outcome in outcomes if outcome.error]
    if refused:
        raise refused[0]
    return [outcome.result for outcome in outcomes]
