"""The arm `worker` of `bench failover`: how long the jobs of a worker that was killed wait until they run elsewhere.

A worker holds 64 jobs that run until they are told to stop, a second one stands idle, a scheduler watches. SIGKILL to
the first: measured is the time from there to the last of the 64 new leases, by the stamps that the store wrote.
"""

from __future__ import annotations

import time
from pathlib import Path

import redis

from queueapp import enqueue_many
from queueapp.bench.experiments.failover_trials import WORKER, Trial
from queueapp.bench.harness import Progress
from queueapp.bench.scheduler_process import SchedulerProcess
from queueapp.bench.tasks import held
from queueapp.bench.waiting import until
from queueapp.bench.worker_process import worker
from queueapp.store import shards
from queueapp.store.presence import STEADY_S

POOL = held.queue_name
LEASES = 64


def trials(client: redis.Redis, progress: Progress, directory: Path, count: int) -> list[Trial]:
    """Raises RuntimeError where the jobs do not all run elsewhere."""
    found = []
    watcher = SchedulerProcess("watcher", directory)
    try:
        watcher.await_start()
        time.sleep(STEADY_S + 0.5)  # who has only just come says nothing of others
        for number in range(1, count + 1):
            outage_ms = _outage_ms(client, directory)
            found.append(Trial(arm=WORKER, number=number, lease=None, outage_ms=outage_ms, jobs=LEASES))
            progress.show(f"  {WORKER}: {number} of {count} trials")
    finally:
        watcher.end()
    return found


def _outage_ms(client: redis.Redis, directory: Path) -> float:
    keys = shards.keys(POOL)
    with worker(POOL, slots=LEASES, log=directory / "doomed.log") as doomed:
        sent = enqueue_many([held.bind() for _ in range(LEASES)])
        ids = [one.result.id.rpartition(".")[2] for one in sent if one.result is not None]
        until(lambda: _attempts(client, ids) == [1] * LEASES, lambda: "The jobs do not run.")
        until(lambda: client.zcard(keys["watched"]) == 1, lambda: "The worker's subscription is not seen.")
        with worker(POOL, slots=LEASES, log=directory / "other.log"):
            until(lambda: client.zcard(keys["watched"]) == 2, lambda: "The other worker's subscription is not seen.")
            seconds, micros = client.time()
            doomed.kill()
            doomed.wait()
            try:
                until(lambda: _attempts(client, ids) == [2] * LEASES, lambda: "The jobs do not run elsewhere.")
                last_ms = max(int(at) for at in _fields(client, ids, "st"))
            finally:
                shards.store(POOL).cancel(ids)
            until(lambda: client.zcard(keys["active"]) == 0, lambda: "The jobs do not stop.")
    return last_ms - (int(seconds) * 1000 + int(micros) // 1000)


def _attempts(client: redis.Redis, ids: list[str]) -> list[int]:
    return [int(value or 0) for value in _fields(client, ids, "a")]


def _fields(client: redis.Redis, ids: list[str], name: str) -> list[bytes]:
    with client.pipeline(transaction=False) as pipeline:
        for job_id in ids:
            pipeline.hget(shards.keys(POOL).run(job_id), name)
        values: list[bytes] = pipeline.execute()
    return values
