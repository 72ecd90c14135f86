"""A worker in a thread of this very process, for what is to be seen from inside it: clocks, queries, memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from queueapp.bench.waiting import until
from queueapp.store import connection, shards
from queueapp.store.ids import new_id
from queueapp.worker.line import Line
from queueapp.worker.loop import Worker, WorkerOptions
from queueapp.worker.parker import Parker


@contextmanager
def worker_thread(pool: str, *, slots: int) -> Iterator[None]:
    """A worker of this pool, which has asked for work and knows that there is none; stopped at the end."""
    worker_id = f"bench-{new_id()}"
    line = Line(pool, shards.store(pool), worker_id, lease_ms=30_000)
    keys = [line.wake_key, line.stop_key]
    worker = Worker(
        [line],
        WorkerOptions(slots=slots),
        lambda post: Parker(connection.blocking, keys, post, own=[line.stop_key]),
    )
    thread = threading.Thread(target=worker.run, name="bench-worker")
    thread.start()
    try:
        until(lambda: line.quiet, lambda: "The worker did not come to rest.")
        yield
    finally:
        worker.stop()
        thread.join()
