"""How a pool of a benchmark dispatches: by the store, by a leader in this process, or in no order but that of arrival.

`none` is the control arm: jobs go to workers as they come, whoever sent them, and no policy is asked. It exists here
only; the store and the settings know `direct` and `scheduled`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from queueapp.bench.waiting import until
from queueapp.scheduler.leading import DispatchThread
from queueapp.scheduler.loop import Scheduler
from queueapp.store import connection, shards
from queueapp.store.configuration import PoolConf
from queueapp.store.dispatching import wait_leader

WAYS = ("direct", "scheduled", "none")
NO_WINDOW = 1_000_000
"""More than a benchmark enqueues: whatever comes is ready at once."""
LEADS_WITHIN_S = 10.0


def conf(way: str, policy: str = "tiered") -> PoolConf:
    """The configuration of a pool that dispatches in this way."""
    if way == "none":
        return PoolConf(policy="fifo", dispatch="scheduled", window=NO_WINDOW)
    return PoolConf(policy=policy, dispatch="scheduled" if way == "scheduled" else "direct")


@contextmanager
def dispatched(pools: Sequence[str], way: str, policy: str = "tiered") -> Iterator[None]:
    """The pools dispatch in this way; where that needs a leader, one leads in this process until the end."""
    for pool in pools:
        shards.store(pool).configure(time.time_ns() // 1000, pool=conf(way, policy))
    if way == "direct":
        yield
        return
    leading = DispatchThread("bench", connection.blocking, wait_leader)
    scheduler = Scheduler("bench", lambda: pools, shards.store, leading=leading)
    thread = threading.Thread(target=scheduler.run, name="bench-scheduler", daemon=True)
    thread.start()
    try:
        until(
            lambda: len(scheduler.leading()) == len(pools) and all(scheduler.leading().values()),
            lambda: f"Nobody leads {', '.join(pools)} within {LEADS_WITHIN_S:g} s.",
            within_s=LEADS_WITHIN_S,
        )
        yield
    finally:
        scheduler.stop()
        thread.join()
