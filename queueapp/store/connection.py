"""The connections to the store: who holds them, how long they wait, and what happens to them at a fork.

Three kinds of client, because their waits differ: `commands` (5 s), `blocking` (above the longest block), `reads` (1 s,
for dashboards that must not hang). Clients are made when first needed, shared by the threads of a process and never by
two processes. redis-py repeats a command by itself when its answer is late, which would run a script twice: repeating
is switched off in every client, and left to those who know that it is harmless. All answers are bytes, in RESP2, so
that redis-py 5 and 8 behave alike.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.connection
import redis.asyncio.retry
import redis.asyncio.sentinel
from django.core.signals import setting_changed
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from queueapp.store import address, faults
from queueapp.store.address import Address

CONNECT_TIMEOUT_S = 2.0
COMMAND_TIMEOUT_S = 5.0
BLOCKING_TIMEOUT_S = 8.0
"""A blocking command may block for less than this, never longer; nobody does for more than 5.5 s. So long it takes
who waits to notice a server that is frozen."""
READ_TIMEOUT_S = 1.0

_lock = threading.RLock()
_address: Address | None = None
_shared: dict[float, redis.Redis] = {}
_by_loop: dict[asyncio.AbstractEventLoop, tuple[redis.asyncio.Redis, AsyncGenerator[None]]] = {}


def commands() -> redis.Redis:
    """The client for scripts and commands, shared by the threads of this process."""
    return _client(COMMAND_TIMEOUT_S)


def reads() -> redis.Redis:
    """The client of dashboards: gives up after a second."""
    return _client(READ_TIMEOUT_S)


def blocking() -> redis.Redis:
    """A new client for one caller that waits inside the server (`BZPOPMIN`, `BLPOP`); the caller closes it."""
    return _sync_client(_where(), BLOCKING_TIMEOUT_S)


def async_commands() -> redis.asyncio.Redis:
    """The client of the running event loop, closed with it.

    Loops can be short (`asyncio.run`, one per request under WSGI), and connections cannot outlive theirs. An
    asynchronous generator that is started here is closed by the loop's own shutdown, and closes the client.
    """
    loop = asyncio.get_running_loop()
    with _lock:
        for ended in [known for known in _by_loop if known.is_closed()]:
            del _by_loop[ended]
        if loop not in _by_loop:
            client = _async_client(_where(), COMMAND_TIMEOUT_S)
            closing = _close_with_loop(client)
            # Its first step never waits, so that it can be taken without `await`.
            with suppress(StopIteration):
                closing.__anext__().__await__().__next__()
            _by_loop[loop] = client, closing
        return _by_loop[loop][0]


def sentinels() -> tuple[str, list[tuple[str, redis.Redis]]]:
    """The name that the primary has among its Sentinels, and for each that the settings name its address and a client,
    which the caller closes; ("", []) where there are none."""
    where = _where()
    options = {**where.sentinel_options, "socket_timeout": READ_TIMEOUT_S, "retry": Retry(NoBackoff(), 0)}
    return where.master_name, [
        (f"{host}:{port}", redis.Redis(host=host, port=port, protocol=2, **options)) for host, port in where.sentinels
    ]


def drop_idle(client: redis.Redis) -> None:
    """After a lost reply: what rests in the pool leads to the same server, which may be frozen, or a replica by now.

    Each of these connections would cost its next user another time-out. Those in use are their users' own.
    """
    client.connection_pool.disconnect(inuse_connections=False)


def label() -> str:
    """The store's address without credentials, for messages."""
    return _where().label


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn redis-py's exceptions of the block into StoreUnavailable, StoreMisconfigured or StoreError."""
    with faults.translating(label):
        yield


def reset() -> None:
    """Close every client; the next use reads the settings anew. Asynchronous ones end with their loop."""
    global _address
    with _lock:
        for client in _shared.values():
            client.close()
        _shared.clear()
        _by_loop.clear()
        _address = None


async def _close_with_loop(client: redis.asyncio.Redis) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await client.aclose()
        # The clients that ask the Sentinels belong to nobody else.
        manager = getattr(client.connection_pool, "sentinel_manager", None)
        for watcher in manager.sentinels if manager else ():
            await watcher.aclose()


def _where() -> Address:
    global _address
    with _lock:
        if _address is None:
            _address = address.resolve()
        return _address


def _client(read_timeout_s: float) -> redis.Redis:
    with _lock:
        if read_timeout_s not in _shared:
            _shared[read_timeout_s] = _sync_client(_where(), read_timeout_s)
        return _shared[read_timeout_s]


def _options(where: Address, read_timeout_s: float) -> dict[str, Any]:
    options = {**where.options, "socket_timeout": read_timeout_s, "protocol": 2, "decode_responses": False}
    if not where.unix:
        options["socket_connect_timeout"] = min(CONNECT_TIMEOUT_S, read_timeout_s)
        options["socket_keepalive"] = True
    return options


def _sync_client(where: Address, read_timeout_s: float) -> redis.Redis:
    options = _options(where, read_timeout_s) | {"retry": Retry(NoBackoff(), 0)}
    if where.sentinels:
        watchers = {**where.sentinel_options, "socket_timeout": CONNECT_TIMEOUT_S, "retry": Retry(NoBackoff(), 0)}
        sentinel = Sentinel(list(where.sentinels), sentinel_kwargs=watchers)
        watched: redis.Redis = sentinel.master_for(where.master_name, ssl=where.tls, **options)
        return watched
    kind: type = redis.UnixDomainSocketConnection if where.unix else redis.Connection
    if where.tls:
        kind = redis.SSLConnection
    return redis.Redis.from_pool(redis.ConnectionPool(connection_class=kind, **options))


def _async_client(where: Address, read_timeout_s: float) -> redis.asyncio.Redis:
    retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
    options = _options(where, read_timeout_s) | {"retry": retry}
    if where.sentinels:
        watchers = {**where.sentinel_options, "socket_timeout": CONNECT_TIMEOUT_S, "retry": retry}
        sentinel = redis.asyncio.sentinel.Sentinel(list(where.sentinels), sentinel_kwargs=watchers)
        watched: redis.asyncio.Redis = sentinel.master_for(where.master_name, ssl=where.tls, **options)
        return watched
    connections = redis.asyncio.connection
    kind: type = connections.UnixDomainSocketConnection if where.unix else connections.Connection
    if where.tls:
        kind = connections.SSLConnection
    return redis.asyncio.Redis.from_pool(redis.asyncio.ConnectionPool(connection_class=kind, **options))


def _forget_after_fork() -> None:
    """A child makes connections of its own; those it inherited belong to its parent and are dropped unclosed."""
    global _address, _lock
    _lock = threading.RLock()
    _shared.clear()
    _by_loop.clear()
    _address = None


def _reset_on_change(*, setting: str, **_: object) -> None:
    if setting in {"DUCTOR", "CACHES", "BASE_DIR", "DEBUG"}:
        reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
setting_changed.connect(_reset_on_change, dispatch_uid="queueapp.store.connection")
