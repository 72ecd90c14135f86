"""From a pool's name to its shard, and from a public job id back to its pool. Every pool has one shard, number 0.

A pool's code stands in its keys and ids. It is a digest of the name, so that any process can say it without asking;
`{namespace}:pools` in the store records which name a code was given to. Whoever writes to a pool records it first and
is refused when the code belongs to another name (a clash of digests).

A renamed pool keeps its code: `rename` writes the new name to that table, and whoever first meets the new name finds
the code there. Processes that run go on under the name they know, on the same keys; one that starts under the old name
is refused, like a clash.

`{namespace}:owner` beside it says which installation the namespace belongs to (`sync.installation`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, Protocol

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


class StandIn(Protocol):
    """What takes the place of every shard in a host's tests: `queueapp.testing.memory`, which needs no server."""

    def store(self, pool: str) -> Store: ...

    def async_store(self, pool: str) -> AsyncStore: ...

    def reads(self, pool: str) -> Reads: ...

    def pools(self) -> dict[str, str]: ...


stand_in: StandIn | None = None

_lock = threading.Lock()
_recorded: dict[str, str] = {}
"""Pool name → its code, as the store has it. Codes never change; a former name of a renamed pool stays good here."""
_asked: set[str] = set()
"""Pools of which this process knows whether the store has them under a code that is not their digest."""
_names: dict[str, str] = {}
"""Code → name, as the store had it last. Replaced, never changed, because it is read without the lock."""


def keys(pool: str) -> ShardKeys:
    """The keys of a pool's shard, without asking the store: the code that it is known to have, else the digest."""
    return ShardKeys(settings.namespace, _recorded.get(pool) or _known_code(pool) or pool_code(pool), SHARD)


def store(pool: str) -> Store:
    """The store of a pool. The first call of a process for a pool records its code.

    Raises StoreUnavailable or StoreMisconfigured when the store cannot be asked or the code belongs to another pool.
    """
    if stand_in is not None:
        return stand_in.store(pool)
    client = connection.commands()
    _record(client, pool)
    return Store(client, keys(pool))


def async_store(pool: str) -> AsyncStore:
    """The store of a pool for the running event loop. Who writes with it calls `arecord` first."""
    if stand_in is not None:
        return stand_in.async_store(pool)
    return AsyncStore(connection.async_commands(), keys(pool))


def reads(pool: str) -> Reads:
    """What can be read of a pool, on the client that gives up early. Writes nothing.

    The first call of a process for a pool asks for its code. Raises StoreUnavailable or StoreMisconfigured.
    """
    if stand_in is not None:
        return stand_in.reads(pool)
    client = connection.reads()
    if pool not in _recorded and pool not in _asked:
        with connection.translate_errors():
            _all(client)
        _asked.add(pool)
    return Reads(client, keys(pool))


async def arecord(pool: str) -> None:
    """As the first `store(pool)` of a process does, for the running event loop."""
    if stand_in is not None or pool in _recorded:
        return
    client = connection.async_commands()
    with connection.translate_errors():
        code = _learn(await client.hgetall(_registry())).get(pool)
        if code is None:
            code = pool_code(pool)
            await client.hsetnx(_registry(), code, pool)
            _only_holder(pool, code, await client.hget(_registry(), code))
    with _lock:
        _recorded[pool] = code


def locate(public_id: str) -> tuple[str, str] | None:
    """`(pool name, inner id)` of a public job id; None when no pool has its code or it is no job id.

    The store is asked only about a code that is not of a pool known here.
    """
    parts = split_public_id(public_id)
    if parts is None or parts[1] != SHARD:
        return None
    code, _, job_id = parts
    name = pools_of([code]).get(code)
    return (name, job_id) if name is not None else None


def pools_of(codes: Iterable[str]) -> dict[str, str]:
    """Code → pool name, of those that have a pool. However many codes are not of pools known here: one round trip."""
    known = known_pools() | set(_recorded)
    digests = {keys(pool).code: pool for pool in known}
    found = {code: _names.get(code) or digests.get(code) for code in codes}
    unknown = [code for code, name in found.items() if name is None]
    if unknown and stand_in is not None:
        found |= {code: name for name, code in stand_in.pools().items() if code in unknown}
    elif unknown:
        with connection.translate_errors():
            seen = _all(connection.reads())
        # Last, an id that was given out before this process knew that the pool had been renamed.
        first_codes = {pool_code(pool): pool for pool in known | set(seen)}
        found |= {code: _names.get(code) or first_codes.get(code) for code in unknown}
    return {code: name for code, name in found.items() if name is not None}


def pools() -> dict[str, str]:
    """Every pool that the store has seen: name → code."""
    if stand_in is not None:
        return stand_in.pools()
    with connection.translate_errors():
        return _all(connection.reads())


def rename(code: str, name: str) -> None:
    """Let the pool of this code be called `name` from now on. Keys and ids stay.

    Raises StoreMisconfigured when the store has the name for another pool, or would take it for one: the digest of
    `name` is the code of another.
    """
    global _names
    client = connection.commands()
    with _lock, connection.translate_errors():
        seen = _all(client)
        held, before = seen.get(name), _names.get(code)
        digest = pool_code(name)
        other = next((found for found in {held, digest} - {code, None} if found in _names), None)
        if other is not None:
            raise StoreMisconfigured(
                f"A pool cannot be called {name!r}: the store has the name or its code {other!r} for the pool "
                f"{_names[other]!r}. Choose another name."
            )
        client.hset(_registry(), code, name)
        _names = {**_names, code: name}
        if before is not None:
            _recorded.pop(before, None)
        _recorded[name] = code


def owner() -> str:
    """The installation that the namespace belongs to; "" when nobody has claimed it."""
    with connection.translate_errors():
        return _text(connection.commands().get(_owner())) or ""


def claim(installation: str) -> str:
    """Give the namespace to `installation` unless it has an owner; whose it is now.

    Reads before it writes: a full store, which takes no writes, must still let those in who own it.
    """
    client = connection.commands()
    with connection.translate_errors():
        holder = _text(client.get(_owner()))
        if holder is None:
            # One command: of two that claim at once, each learns who was first. None: it was us.
            found: Any = client.set(_owner(), installation, nx=True, get=True)
            holder = _text(found)
    return holder or installation


def take_over(installation: str) -> None:
    """Give the namespace to `installation`, whoever has it."""
    with connection.translate_errors():
        connection.commands().set(_owner(), installation)


def record_again() -> None:
    """After the store was emptied: record the codes that this process uses, so that others find the same ones."""
    client = connection.commands()
    with _lock, connection.translate_errors():
        for pool, code in _recorded.items():
            client.hsetnx(_registry(), code, pool)


def forget() -> None:
    """Forget what the store said; the next use asks again."""
    global _names
    with _lock:
        _recorded.clear()
        _asked.clear()
        _names = {}


def _record(client: redis.Redis, pool: str) -> None:
    if pool in _recorded:
        return
    with _lock, connection.translate_errors():
        code = _all(client).get(pool)
        if code is None:
            code = pool_code(pool)
            client.hsetnx(_registry(), code, pool)
            _only_holder(pool, code, client.hget(_registry(), code))
        _recorded[pool] = code


def _only_holder(pool: str, code: str, found: Any) -> None:
    holder = _text(found)
    if holder != pool:
        raise StoreMisconfigured(
            f"The pools {pool!r} and {holder!r} have the same code {code!r} and cannot share the namespace "
            f"{settings.namespace!r}. If {pool!r} was renamed, use the new name; else give one of them another name."
        )


def _known_code(pool: str) -> str | None:
    """The code that the store has for a pool, when it was seen there and is not the digest of the name."""
    return next((code for code, name in _names.items() if name == pool), None)


def _registry() -> str:
    return f"{settings.namespace}:pools"


def _owner() -> str:
    return f"{settings.namespace}:owner"


def _all(client: redis.Redis) -> dict[str, str]:
    return _learn(client.hgetall(_registry()))


def _learn(answer: Any) -> dict[str, str]:
    """The store's table of names as name → code; remembers it."""
    global _names
    _names = {str(_text(code)): str(_text(name)) for code, name in answer.items()}
    return {name: code for code, name in _names.items()}


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
