"""What worker and scheduler do before they begin: names, waiting for migrations and for the store, signals."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TypeVar

from django.db import DEFAULT_DB_ALIAS, connections
from django.db import Error as DatabaseError
from django.db.migrations.executor import MigrationExecutor

from queueapp.conf import settings
from queueapp.errors import StoreError, StoreMisconfigured, StoreUnavailable
from queueapp.extensions import our_labels
from queueapp.outage import Outage
from queueapp.store import connection, shards
from queueapp.store.presence import Presence
from queueapp.store.safety import check_scripts, check_server
from queueapp.sync import installation

T = TypeVar("T")
logger = logging.getLogger(__name__)

NAME_MAX = 57
MIGRATIONS_EVERY_S = 1.0


def process_name(given: str | None) -> str:
    """What this process is called in front of its random part: the name given, or host and process id."""
    name = given or f"{socket.gethostname()}-{os.getpid()}"
    return re.sub(r"[^A-Za-z0-9._:@-]", "-", name)[:NAME_MAX]


def process_id(given: str | None) -> str:
    """An id of this process alone, at most 64 characters: every start has a new one, also under the same name."""
    return f"{process_name(given)}.{secrets.token_hex(3)}"


def wait_for_migrations() -> None:
    """Returns when our tables are as this release wants them; says what it waits for, once."""
    told = ""
    while reason := _unready():
        if reason != told:
            logger.warning("Waiting: %s", reason)
            told = reason
        time.sleep(MIGRATIONS_EVERY_S)
    if told:
        logger.info("The database is ready, going on")


def pending_migrations() -> str:
    """Our migrations that the database does not have yet, in words; "" when there is none."""
    connection = connections[settings.database or DEFAULT_DB_ALIAS]
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan([node for label in our_labels() for node in executor.loader.graph.leaf_nodes(label)])
    pending = {
        label: [migration.name for migration, _ in plan if migration.app_label == label] for label in our_labels()
    }
    return "; ".join(
        f"migrations of {label} are not applied ({', '.join(names)})" for label, names in pending.items() if names
    )


def _unready() -> str:
    try:
        pending = pending_migrations()
    except DatabaseError as error:
        connections.close_all()
        return f"the database cannot be used ({' '.join(str(error).split())})"
    if pending:
        return f"{pending}; run `manage.py migrate`"
    return ""


def when_reachable(call: Callable[[], T]) -> T:
    """`call()`, again and again with growing pauses while the store cannot be reached."""
    outage = Outage(logger)
    while True:
        try:
            value = call()
        except StoreUnavailable as error:
            time.sleep(outage.failed("store", error))
        else:
            outage.worked("store")
            return value


def look_at_server() -> None:
    """Waits until the store answers; warns of one that may lose work. Raises StoreMisconfigured for one too old."""
    for warning in when_reachable(lambda: check_server(connection.commands())):
        logger.warning("Unsafe store: %s", warning)


def claim_namespace() -> str:
    """Waits until the store says that the namespace is ours; our id. Raises ForeignInstallation when it is not."""
    return when_reachable(installation.claim)


def open_pools(pools: Iterable[str]) -> None:
    """Waits until the store takes writes of these pools. Raises StoreMisconfigured when waiting would not help."""

    def open_each() -> None:
        for pool in pools:
            shards.store(pool)
            try:
                check_scripts(pool)
            except (StoreUnavailable, StoreMisconfigured):
                raise
            except StoreError as error:
                # A fault of this pool alone, which its own calls will meet and report; the others can be served.
                logger.debug("Pool %s: %s", pool, error)

    when_reachable(open_each)


def begin_presence() -> Presence | None:
    """The sign of life of this process, to be started by the caller; None when the settings want none."""
    if settings.leader_presence == "off":
        return None
    return Presence(connection.blocking, sharded=settings.leader_presence == "shard")


def on_stop_signals(stop: Callable[[], None]) -> None:
    """SIGTERM and SIGINT call `stop`, each time; the third ends the process as if there were no handler."""
    count = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count == 3:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
