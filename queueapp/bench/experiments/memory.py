"""`bench memory`: server memory of one waiting job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import redis

from queueapp.bench.harness import Progress, Report
from queueapp.producer.rows import require_pool
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob

POOL = "bench"
PAYLOAD_BYTES = 100
TASK = "customer.billing.statements.tasks.send_monthly_statement_pdf"
"""A dotted path of 60 characters."""
BUDGET_BYTES = 400
BATCH = 5_000


def payload(number: int) -> bytes:
    """JSON arguments of exactly `PAYLOAD_BYTES`, different for each job."""
    head = f'{{"a":[{100_000_000 + number}],"k":{{"reference":"'
    return (head + "x" * (PAYLOAD_BYTES - len(head) - 3) + '"}}').encode()


def jobs(count: int, tenants: int) -> Iterator[NewJob]:
    """Jobs as a host's would be, the tenants in turn."""
    for number in range(count):
        yield NewJob(
            id=new_id(),
            task=TASK,
            tenant=f"customer-{number % tenants:04d}",
            payload=payload(number),
            fingerprint=f"{number:016x}",
        )


def run(report: Report, client: redis.Redis, progress: Progress, *, count: int, tenants: int) -> None:
    """Fills the pool and divides what the server's memory grew by."""
    require_pool(POOL)
    store = shards.store(POOL)
    before = settled_memory(client)
    batch: list[NewJob] = []
    for number, job in enumerate(jobs(count, tenants), start=1):
        batch.append(job)
        if len(batch) == BATCH or number == count:
            store.enqueue(batch)
            batch.clear()
            progress.show(f"  {number:,} of {count:,} jobs waiting")
    after = settled_memory(client)
    waiting = shards.reads(POOL).overview().waiting
    if waiting != count:
        report.missed.append(f"{waiting:,} jobs wait where {count:,} were enqueued.")
    bytes_per_job = (after - before) / count
    report.figures |= {
        "bytes_per_job": bytes_per_job,
        "jobs": count,
        "tenants": tenants,
        "payload_bytes": PAYLOAD_BYTES,
        "task_path_characters": len(TASK),
        "server_bytes": after - before,
    }
    if bytes_per_job > BUDGET_BYTES:
        report.missed.append(f"A waiting job takes {bytes_per_job:.0f} bytes; at most {BUDGET_BYTES} are promised.")
    progress.say(f"  {bytes_per_job:6.1f} bytes of server memory per waiting job (at most {BUDGET_BYTES} promised)")
    progress.say(f"  {count:,} jobs of {tenants} tenants, {PAYLOAD_BYTES} bytes of arguments, task path of {len(TASK)}")


def settled_memory(client: redis.Redis, tries: int = 100) -> int:
    """`used_memory` without buffers, once it stands still: tables grow in steps behind the last write."""
    last, steady = -1, 0
    for _ in range(tries):
        info: Any = client.info("memory")
        used = int(info["used_memory"]) - int(info.get("mem_aof_buffer", 0)) - int(info.get("mem_clients_normal", 0))
        steady = steady + 1 if abs(used - last) < 4_096 else 0
        if steady >= 5:
            return used
        last = used
        time.sleep(0.05)
    return last
