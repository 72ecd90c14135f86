"""`manage.py scheduler`: one process that does what time sets off."""

from __future__ import annotations

import logging

from queueapp import extensions
from queueapp.cli import startup
from queueapp.inspection.collector import STORE, LeaderCollector
from queueapp.inspection.pools import declared_pools
from queueapp.monitoring.health import Vitals
from queueapp.monitoring.listener import listen
from queueapp.scheduler.duties.outbox_size import OutboxSize
from queueapp.scheduler.duties.records import Records
from queueapp.scheduler.duties.relay import Relay
from queueapp.scheduler.duties.schedules import Schedules
from queueapp.scheduler.duties.sync_repair import SyncRepair
from queueapp.scheduler.leading import DispatchThread
from queueapp.scheduler.loop import Scheduler
from queueapp.store import connection, shards
from queueapp.store.dispatching import wait_leader
from queueapp.store.presence import Presence
from queueapp.store.safety import forget_old_functions
from queueapp.sync.installation import Ownership

logger = logging.getLogger(__name__)


def make_scheduler(owner: str, installation: str, presence: Presence | None = None) -> Scheduler:
    """A scheduler of every known pool, for as long as the namespace is this installation's."""
    leading = DispatchThread(owner, connection.blocking, wait_leader)
    return Scheduler(
        owner,
        declared_pools,
        shards.store,
        [SyncRepair(), Schedules(), Relay(), OutboxSize(), Records(), *(make() for make in extensions.duties.values())],
        ownership=Ownership(installation),
        leading=leading,
        presence=presence,
    )


def run_scheduler(name: str | None, metrics_addr: tuple[str, int] | None = None) -> None:
    """The whole life of the process. A second signal need not be waited for: the scheduler holds no work."""
    scheduler: Scheduler | None = None

    def stop() -> None:
        if scheduler is None:
            raise SystemExit(0)
        scheduler.stop()

    startup.on_stop_signals(stop)
    vitals = Vitals()
    listen(metrics_addr, vitals, [STORE, LeaderCollector(lambda: scheduler.leading() if scheduler else {})])
    startup.wait_for_migrations()
    # A store that is away is waited for; one that refuses us is an error to be seen at the start.
    startup.look_at_server()
    forget_old_functions(connection.commands())
    installation = startup.claim_namespace()
    startup.open_pools(declared_pools())
    presence = startup.begin_presence()
    scheduler = make_scheduler(startup.process_id(name), installation, presence)
    vitals.parts.append(scheduler)
    if presence is not None:
        presence.start()
    scheduler.run()
    if presence is not None:
        presence.stop()
