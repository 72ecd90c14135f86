"""What a worker or scheduler looks at before it begins: is this server fit to keep a queue?

Called at start, and by the probes of containers. A server that cannot run our scripts is refused by name; one that may
lose work gets a warning.
"""

from __future__ import annotations

import logging
from typing import Any

import redis
from redis.exceptions import NoPermissionError

from queueapp.errors import StoreError, StoreMisconfigured, StoreUnavailable
from queueapp.store import connection, examination, fitness, scripts, shards
from queueapp.store.connection import translate_errors
from queueapp.store.store import Store

logger = logging.getLogger(__name__)


def check_server(client: redis.Redis) -> list[str]:
    """Warnings about the server behind `client`. Raises StoreMisconfigured when it is too old.

    Raises StoreUnavailable while it loads its data: it answers INFO by then, and denies its append-only file.
    A user whose rights do not reach INFO gets no warnings: the scripts themselves need no such right.
    """
    with translate_errors():
        try:
            info: dict[str, Any] = client.info("everything")
        except NoPermissionError:
            return []
    version = fitness.version_of(info)
    if version.level == "error":
        raise StoreMisconfigured(version.sentence)
    if info.get("loading"):
        raise StoreUnavailable(f"The store at {connection.label()} is loading its data after a start.")
    remarks = [fitness.eviction_of(info), *fitness.persistence_of(info, {})]
    return [remark.sentence for remark in remarks if remark.loses]


def check_room(client: redis.Redis) -> None:
    """Raises StoreMisconfigured when the server is full, as it would for the next job. Asks INFO where it may."""
    with translate_errors():
        try:
            info: dict[str, Any] = client.info("memory")
        except NoPermissionError:
            return
    if fitness.is_full(info):
        raise StoreMisconfigured(
            f"The store at {connection.label()} is full (`maxmemory` reached) and refuses new jobs. Raise `maxmemory`, "
            "or let work end."
        )


def check_scripts(pool: str) -> None:
    """Raises StoreError when scripts that write cannot run in this pool's shard: a missing right, a read-only replica.

    Runs one that has nothing to do and changes nothing: that a server answers PING is not enough. Gives up early.
    """
    Store(connection.reads(), shards.keys(pool)).extend_lease([], lease_ms=1000)


def forget_old_functions(client: redis.Redis) -> None:
    """Removes the libraries that other releases left: each release has its own, and the server keeps them for ever.

    A process of such a release that still runs loads again what it misses. What is not permitted, or fails, stays, and
    the log says so; the others go. One that somebody else has removed meanwhile is gone, too.
    """
    ours = {scripts.script(name).function for name in scripts.names()}
    try:
        with translate_errors():
            listed: Any = client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", f"{scripts.PREFIX}*")
    except StoreError as error:
        logger.info("Functions of earlier releases stay on the server: %s", error)
        return
    left: dict[str, StoreError] = {}
    for name in (examination.library_name(entry) for entry in listed):
        if name not in ours:
            try:
                with translate_errors():
                    client.function_delete(name)
            except StoreError as error:
                if "library not found" not in str(error).lower():
                    left[name] = error
    if left:
        first, fault = next(iter(left.items()))
        logger.info("%d functions of earlier releases stay on the server, the first %s: %s", len(left), first, fault)
