"""Ductor, through its public API as any project has it, with 50 tenants in turn; its worker as `manage.py worker` is.

Runs in the environment and with the settings of the benchmark. Jobs with texts are put straight into the store, since
the name of a task is its path; they are what the API would have written, with a path of 60 characters. PEER_BODY=async
sends jobs whose bodies are coroutines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import django

from queueapp.bench.peers.drivers import marks

TENANTS = 50


def driver() -> marks.Driver:
    """Needs Django's settings; imports what needs them."""
    from queueapp import codec, enqueue_many
    from queueapp.bench.tasks import amarked, marked
    from queueapp.producer.rows import require_pool
    from queueapp.store import shards
    from queueapp.store.ids import new_id
    from queueapp.store.records import NewJob

    names = [f"customer-{number:04d}" for number in range(TENANTS)]
    body = amarked if os.environ.get("PEER_BODY") == "async" else marked
    tasks = [body.using(tenant=name) for name in names]
    pool = marked.queue_name
    require_pool(pool)

    def one(number: int, ms: int) -> None:
        tasks[number % TENANTS].enqueue(number, ms)

    def many(pairs: Sequence[marks.Pair]) -> None:
        for outcome in enqueue_many(tasks[number % TENANTS].bind(number, ms) for number, ms in pairs):
            if outcome.error:
                raise outcome.error

    def texts(count: int) -> None:
        payload = codec.encode_arguments([marks.TEXT], {})
        shards.store(pool).enqueue(
            [
                NewJob(
                    id=new_id(),
                    task=marks.TASK,
                    tenant=names[number % TENANTS],
                    payload=payload,
                    fingerprint=f"{number:016x}",
                )
                for number in range(count)
            ]
        )

    return marks.Driver(one=one, many=many, texts=texts)


if __name__ == "__main__":
    work = marks.asked_to_work()
    if work is not None:
        slots, pool = work
        marks.become("-m", "django", "ductor_worker", "--pool", pool, "--slots", str(slots), "--no-reload")
    django.setup()
    marks.main(driver())
    sys.exit()
