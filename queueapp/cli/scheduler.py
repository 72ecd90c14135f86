"""`manage.py scheduler`: one process that does what time sets off."""

from __future__ import annotations

import logging

from queueapp.cli import startup
from queueapp.inspection.pools import declared_pools
from queueapp.scheduler.duties.sync_repair import SyncRepair
from queueapp.scheduler.loop import Scheduler
from queueapp.store import shards

logger = logging.getLogger(__name__)


def make_scheduler(owner: str) -> Scheduler:
    """A scheduler of every known pool."""
    return Scheduler(owner, declared_pools, shards.store, [SyncRepair()])


def run_scheduler(name: str | None) -> None:
    """The whole life of the process. A second signal need not be waited for: the scheduler holds no work."""
    scheduler: Scheduler | None = None

    def stop() -> None:
        if scheduler is None:
            raise SystemExit(0)
        scheduler.stop()

    startup.on_stop_signals(stop)
    startup.wait_for_migrations()
    # A store that is away is waited for; one that refuses us is an error to be seen at the start.
    startup.look_at_server()
    startup.open_pools(declared_pools())
    scheduler = make_scheduler(startup.process_id(name))
    scheduler.run()
