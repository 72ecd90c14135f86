"""A real worker in the test's own process: it runs what can run now on real slots, and ends."""

from __future__ import annotations

from queueapp.store import connection, shards
from queueapp.store.ids import new_id
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_DONE, Worker, WorkerOptions
from queueapp.worker.parker import Parker


def work(*pools: str, slots: int = 1, faults: Faults | None = None) -> int:
    """Runs what these pools (default: `default`) can run now; returns how many runs that were."""
    names = pools or ("default",)
    worker_id = f"test-{new_id()}"
    lines = [Line(pool, shards.store(pool), worker_id, lease_ms=30_000) for pool in names]
    own = [line.stop_key for line in lines]
    keys = [*(line.wake_key for line in lines), *own]
    worker = Worker(
        lines,
        WorkerOptions(slots=slots, batch=True, faults=faults or Faults()),
        lambda post: Parker(connection.blocking, keys, post, own=own),
    )
    assert worker.run() == EXIT_DONE
    return worker.ran
