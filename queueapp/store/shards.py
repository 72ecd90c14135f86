"""From a pool's name to its shard, and from a public job id back to its pool. Every pool has one shard, number 0.

A pool's code stands in its keys and ids. It is a digest of the name, so that any process can say it without asking;
`{namespace}:pools` in the store records which name a code was given to. Whoever writes to a pool records it first and
is refused when the code belongs to another name (a clash of digests). A name that the store has under another code (a
renamed pool) keeps that code.
"""

from __future__ import annotations

import os
import threading

import redis
from django.core.signals import setting_changed

from queueapp.conf import known_pools, settings
from queueapp.errors import StoreMisconfigured
from queueapp.store import connection
from queueapp.store.async_store import AsyncStore
from queueapp.store.keys import ShardKeys, pool_code, split_public_id
from queueapp.store.reads import Reads
from queueapp.store.store import Store

SHARD = 0

_lock = threading.Lock()
_recorded: dict[str, str] = {}
"""Pool name → its code, as the store has it. Codes never change; a renamed pool is read anew by a new process."""


def keys(pool: str) -> ShardKeys:
    """The keys of a pool's shard, without asking the store: the code that it is known to have, else the digest."""
    return ShardKeys(settings.namespace, _recorded.get(pool) or pool_code(pool), SHARD)


def store(pool: str) -> Store:
    """The store of a pool. The first call of a process for a pool records its code.

    Raises StoreUnavailable or StoreMisconfigured when the store cannot be asked or the code belongs to another pool.
    """
    client = connection.commands()
    _record(client, pool)
    return Store(client, keys(pool))


def async_store(pool: str) -> AsyncStore:
    """The store of a pool for the running event loop. Records nothing: that would have to wait inside the loop."""
    return AsyncStore(connection.async_commands(), keys(pool))


def reads(pool: str) -> Reads:
    """What can be read of a pool, on the client that gives up early. Writes nothing."""
    return Reads(connection.reads(), keys(pool))


def locate(public_id: str) -> tuple[str, str] | None:
    """`(pool name, inner id)` of a public job id; None when no pool has its code or it is no job id.

    The store is asked only about a code that is not of a pool known here.
    """
    parts = split_public_id(public_id)
    if parts is None or parts[1] != SHARD:
        return None
    code, _, job_id = parts
    for pool in known_pools() | set(_recorded):
        if keys(pool).code == code:
            return pool, job_id
    with connection.translate_errors():
        name = _text(connection.reads().hget(_registry(), code))
    return (name, job_id) if name is not None else None


def pools() -> dict[str, str]:
    """Every pool that the store has seen: name → code."""
    with connection.translate_errors():
        return _all(connection.reads())


def forget() -> None:
    """Forget what the store said; the next use asks again."""
    with _lock:
        _recorded.clear()


def _record(client: redis.Redis, pool: str) -> None:
    if pool in _recorded:
        return
    with _lock, connection.translate_errors():
        code = _all(client).get(pool)
        if code is None:
            code = pool_code(pool)
            client.hsetnx(_registry(), code, pool)
            holder = _text(client.hget(_registry(), code))
            if holder != pool:
                raise StoreMisconfigured(
                    f"The pools {pool!r} and {holder!r} have the same code {code!r} and cannot share the namespace "
                    f"{settings.namespace!r}. Give one of them another name."
                )
        _recorded[pool] = code


def _registry() -> str:
    return f"{settings.namespace}:pools"


def _all(client: redis.Redis) -> dict[str, str]:
    return {str(_text(name)): str(_text(code)) for code, name in client.hgetall(_registry()).items()}


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def _forget_on_change(*, setting: str, **_: object) -> None:
    if setting == "DUCTOR":
        forget()


setting_changed.connect(_forget_on_change, dispatch_uid="queueapp.store.shards")


def _new_lock() -> None:
    """A child of a fork must not inherit a lock that a thread of its parent held."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)
