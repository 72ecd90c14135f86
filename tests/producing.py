"""Tasks for the tests of the producer, and a worker of four lines that runs what waits."""

from __future__ import annotations

from typing import Any

from queueapp import Key, backoff, task
from queueapp.codec import decode_arguments, encode_result
from queueapp.compat import TaskContext
from queueapp.producer.task import find
from queueapp.producer.tenancy import tenant
from queueapp.store.ids import new_id
from queueapp.store.records import Completed, Failed
from queueapp.store.store import Store
from queueapp.worker.outcome import error_record, traceback_text


@task
def add(a: Any, b: Any = 0) -> Any:
    return a + b


@task
async def add_async(a: int, b: int = 0) -> int:
    return a + b


@task(takes_context=True)
def attempt(context: TaskContext) -> int:
    return context.attempt


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task(lane="mail", cost=3, max_attempts=4, backoff=backoff.fixed(7), aliases=["tests.producing.old_name"])
def chosen() -> None: ...


@task(concurrency=[Key(f"key {number}", limit=1) for number in range(4)])
def many_keys() -> None: ...


@task
def nested() -> str:
    return str(add.enqueue(1).id)


def run_waiting(store: Store) -> int:
    """Runs everything that can run now; returns how many jobs that were."""
    worker, ran = f"test-{new_id()}", 0
    while jobs := store.check_and_lease(worker, ran + 1, want=10, begin=10, lease_ms=30_000).jobs:
        for job in jobs:
            args, kwargs, _ = decode_arguments(job.payload)
            finish: dict[str, Any] = {"id": job.id, "attempts": job.attempts, "run_ms": 1}
            try:
                with tenant(job.tenant):
                    value = find(job.task).call(*args, **kwargs)
            except Exception as error:
                text = traceback_text(error)
                store.fail([Failed(error=error_record(error, text), retry_ms=None, **finish)])
            else:
                store.complete([Completed(result=encode_result(value), **finish)])
            ran += 1
    return ran
