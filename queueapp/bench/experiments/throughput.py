"""`bench throughput`: how fast jobs go in and out, how soon an idle worker begins, and what the server pays for a job.

The parts: the scripts alone, called from here in full batches; enqueue through the public API, one by one and in bulk;
one real worker process that drains what was enqueued; an idle worker that single jobs reach.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from queueapp import enqueue_many
from queueapp.bench.dispatching import dispatched
from queueapp.bench.experiments.memory import jobs as realistic_jobs
from queueapp.bench.harness import Progress, Report
from queueapp.bench.server_cost import Cost, Meter
from queueapp.bench.statistics import percentiles
from queueapp.bench.tasks import noop, started
from queueapp.bench.worker_process import worker
from queueapp.store import shards
from queueapp.store.records import Completed, LeasedJob
from queueapp.store.store import Store

TENANTS = 50
SLOTS = 16
BULK = 1_000
LEASE_BATCH = 100
LEASE_MS = 30_000
DRAIN_TIMEOUT_S = 300.0
BUDGETS = {"enqueue": 5.0, "lease": 9.0, "finish": 6.0}
"""Commands that one job may cost the server, in full batches."""


def run(
    report: Report,
    client: redis.Redis,
    progress: Progress,
    directory: Path,
    *,
    count: int,
    starts: int,
    dispatch: str = "direct",
) -> None:
    """All parts, in order. `count` jobs go through the pool, `starts` single jobs wait for an idle worker.

    `dispatch` is of the parts that a worker takes part in; the scripts alone are those of direct dispatch.
    """
    _scripts(report, client, progress, min(count, 20_000))
    singles = max(1, count // 10)
    with dispatched(["bench", started.queue_name], dispatch):
        _enqueue(report, client, progress, "single", singles, lambda: _one_by_one(singles, progress))
        _enqueue(report, client, progress, "bulk", count - singles, lambda: in_bulk(count - singles, progress))
        _drain(report, client, progress, directory, count)
        _start_latency(report, progress, directory, starts)


# -- the scripts alone -------------------------------------------------------------------------------------------


def _scripts(report: Report, client: redis.Redis, progress: Progress, count: int) -> None:
    """Server time and commands of each script in full batches; costs are estimates, as by default."""
    store = shards.store("bench-scripts")
    batch = list(realistic_jobs(count, TENANTS))
    store.enqueue(batch[:1])  # the scripts are known to the server before anything is counted
    leased = _lease(store, 1, 1)
    store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=1) for job in leased])
    meter = Meter(client)
    store.enqueue(batch[1:])
    _script_figures(report, progress, "enqueue", meter.read(), count - 1)
    held: list[LeasedJob] = []
    seq = 1
    while len(held) < count - 1:
        seq += 1
        held += _lease(store, seq, LEASE_BATCH)
    _script_figures(report, progress, "lease", meter.read(), count - 1)
    for first in range(0, len(held), LEASE_BATCH):
        page = held[first : first + LEASE_BATCH]
        store.complete([Completed(id=job.id, attempts=job.attempts, run_ms=5) for job in page])
    _script_figures(report, progress, "finish", meter.read(), count - 1)


def _lease(store: Store, seq: int, want: int) -> list[LeasedJob]:
    return list(store.check_and_lease("bench", seq, want=want, begin=want, lease_ms=LEASE_MS).jobs)


def _script_figures(report: Report, progress: Progress, part: str, cost: Cost, jobs: int) -> None:
    commands, budget = cost.commands_per(jobs), BUDGETS[part]
    report.figures[f"{part}_commands_per_job"] = commands
    report.figures[f"{part}_server_us_per_job"] = cost.us_per(jobs)
    progress.say(
        f"  {part:<8} {cost.us_per(jobs):6.1f} µs of server time and {commands:4.1f} commands a job (budget {budget:g})"
    )
    if commands > budget:
        report.missed.append(f"The script {part} runs {commands:.1f} commands a job; its budget is {budget:g}.")


# -- enqueue through the public API ------------------------------------------------------------------------------


def _enqueue(
    report: Report, client: redis.Redis, progress: Progress, how: str, count: int, send: Callable[[], None]
) -> None:
    meter, begun = Meter(client), time.perf_counter()
    send()
    seconds = time.perf_counter() - begun
    report.figures[f"enqueue_{how}_per_s"] = count / seconds
    report.figures[f"enqueue_{how}_api_server_us_per_job"] = meter.read().us_per(count)
    progress.say(f"  enqueue, {how:<6} {count / seconds:10,.0f} jobs/s through the public API")


def _one_by_one(count: int, progress: Progress) -> None:
    tasks = [noop.using(tenant=f"customer-{number:04d}") for number in range(TENANTS)]
    for number in range(count):
        tasks[number % TENANTS].enqueue(number)
        if number % 500 == 0:
            progress.show(f"  {number:,} of {count:,} enqueued one by one")


def in_bulk(count: int, progress: Progress) -> None:
    """No-op jobs of `TENANTS` tenants in turn, through the public API. Raises what the first refused one was told."""
    tasks = [noop.using(tenant=f"customer-{number:04d}") for number in range(TENANTS)]
    for first in range(0, count, BULK):
        page = range(first, min(first + BULK, count))
        refused = [outcome.error for outcome in enqueue_many(tasks[n % TENANTS].bind(n) for n in page) if outcome.error]
        if refused:
            raise refused[0]
        progress.show(f"  {first:,} of {count:,} enqueued in bulk")


# -- a real worker -----------------------------------------------------------------------------------------------


def _drain(report: Report, client: redis.Redis, progress: Progress, directory: Path, count: int) -> None:
    """Jobs per second between the first twentieth and the last job, on the server's clock."""
    meter = Meter(client)
    with worker("bench", slots=SLOTS, log=directory / "drain.log"):
        first, first_ms = await_completed(client, progress, count // 20, count)
        last, last_ms = await_completed(client, progress, count, count)
    cost = meter.read()
    per_s = (last - first) * 1000 / max(1, last_ms - first_ms)
    report.figures["drain_per_s"] = per_s
    report.figures["drain_server_us_per_job"] = cost.us_per(count)
    report.figures["drain_commands_per_job"] = cost.commands_per(count)
    progress.say(
        f"  drain           {per_s:10,.0f} jobs/s by one worker with {SLOTS} slots "
        f"({cost.us_per(count):.1f} µs of server time, {cost.commands_per(count):.1f} commands a job)"
    )


def await_completed(
    client: redis.Redis, progress: Progress, wanted: int, total: int, pool: str = "bench"
) -> tuple[int, int]:
    """`(completed, server's ms)` as soon as at least `wanted` jobs have completed."""
    stats, end = shards.keys(pool)["stats"], time.monotonic() + DRAIN_TIMEOUT_S
    while time.monotonic() < end:
        pipeline = client.pipeline(transaction=False)
        pipeline.hget(stats, "completed")
        pipeline.time()
        answer: Any = pipeline.execute()
        completed = int(answer[0] or 0)
        if completed >= wanted:
            return completed, answer[1][0] * 1000 + answer[1][1] // 1000
        progress.show(f"  {completed:,} of {total:,} drained")
        time.sleep(0.02)
    raise TimeoutError(f"Only part of the {total:,} jobs was drained within {DRAIN_TIMEOUT_S:g} s.")


def _start_latency(report: Report, progress: Progress, directory: Path, count: int) -> None:
    """From before the call of `enqueue` to the first line of the body, in an idle worker."""
    pool = started.queue_name
    with worker(pool, slots=SLOTS, log=directory / "start.log"):
        results = []
        for number in range(count + 20):
            results.append(started.using(tenant=f"customer-{number % TENANTS:04d}").enqueue(time.time()))
            time.sleep(0.008)
            progress.show(f"  {number:,} of {count:,} single jobs sent to an idle worker")
        latencies = [result.wait(timeout=10).return_value for result in results[20:]]  # the first ones warm it up
    p50, p99 = percentiles(latencies, 50, 99)
    report.figures |= {"start_ms_p50": p50, "start_ms_p99": p99}
    progress.say(f"  start           {p50:10.2f} ms p50, {p99:.2f} ms p99 from enqueue to the body in an idle worker")
