"""Presence: the sign of life of one process. While it lives it stays subscribed to a channel of its own in every shard.

The kernel closes the socket of a process that dies, the server drops its subscription within milliseconds, and scripts
count subscribers (`lua/include/presence.lua`): a leader's lease and a worker's leases can be taken over long before
they end. Nothing else depends on it: where a server or its ACL refuses SUBSCRIBE, leases decide as they would without.

A thread owns the connection and does nothing but listen. When it is cut the channels stop to be told at once, so that
what is alive renews and says "do not watch me" before anybody takes over, and are told again when the server has
confirmed them anew. A connection that nobody cuts may still lead to the wrong server, such as a primary that is a
replica by now: scripts, which run on the new one, see nobody there, and whoever called them says so (`doubt`). A child
that is forked closes its copy of the socket: else it would keep its dead parent alive.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import weakref
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from queueapp.errors import StoreError, StoreMisconfigured
from queueapp.store.connection import translate_errors
from queueapp.store.keys import ShardKeys

logger = logging.getLogger(__name__)

LISTEN_S = 5.0
"""So often the server is asked for a sign of life of its own."""
SILENT_S = 12.0
"""A connection that has told nothing for so long is dead, although nobody closed it."""
PAUSE_S, PAUSE_MAX_S = 0.02, 1.0
"""Between two tries to come back. Nobody may count as lost because of an outage that it only needed to notice:
`STEADY_S` is longer."""
REFUSED_PAUSE_S = 30.0
DOUBT_S, DOUBT_MAX_S = 10.0, 600.0
"""Between two connections that are given up because no script sees them, at least; it doubles each time."""
STEADY_S = 3.0
"""Who has been subscribed for so long may say of others that they are gone."""


class Subscriber(Protocol):
    """The methods of a Redis client that a presence calls."""

    def pubsub(self, **options: Any) -> Any: ...

    def close(self) -> None: ...


class Presence:
    """One process's channels. `add`, `channel`, `steady` and `doubt` may be called from any thread."""

    def __init__(
        self,
        connect: Callable[[], Subscriber],
        *,
        sharded: bool = False,
        clock: Callable[[], float] = monotonic,
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """`connect` makes a client for a connection that may block; `sharded`: SSUBSCRIBE instead of SUBSCRIBE."""
        self._connect = connect
        self._sharded = sharded
        self._clock = clock
        self._token = token()
        self._names: dict[str, str] = {}
        """Shard prefix → channel."""
        self._since: dict[str, float] = {}
        """Channel → when the server confirmed it. Replaced as a whole or by key, so that readers need no lock."""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._pubsub: Any = None
        self._added = threading.Event()
        self._listeners: list[Callable[[str], None]] = []
        self._doubted = False
        self._doubt_at, self._doubt_s = clock(), DOUBT_S
        self._thread = threading.Thread(target=self._run, name="ductor-presence", daemon=True)
        _alive.add(self)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread and the subscription with it."""
        self._stopping.set()
        self._added.set()
        self._drop_connection()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """`listener` is called by the thread: with the prefix of a shard whose channel was confirmed, or "" when all
        were lost."""
        self._listeners.append(listener)

    def add(self, keys: ShardKeys) -> None:
        """Subscribes to this process's channel in the shard, now if there is a connection, else when there is one."""
        name = keys[f"presence:{self._token}"]
        with self._lock:
            self._names[keys.prefix] = name
            pubsub = self._pubsub
        self._added.set()
        if pubsub is not None and pubsub.subscribed:
            try:
                self._subscribe(pubsub, [name])
            except Exception:
                logger.debug("The thread finds out by itself that the connection is gone", exc_info=True)

    def channel(self, keys: ShardKeys) -> str:
        """The channel with its kind, as scripts take it; "" while it is not confirmed."""
        name = self._names.get(keys.prefix, "")
        return f"{'s' if self._sharded else 'p'}{name}" if name in self._since else ""

    def steady(self, keys: ShardKeys) -> str:
        """The same, once it has been confirmed for `STEADY_S`; "" before."""
        since = self._since.get(self._names.get(keys.prefix, ""))
        return self.channel(keys) if since is not None and self._clock() - since >= STEADY_S else ""

    def doubt(self) -> None:
        """A script sees nobody on a channel that `channel` told. The thread connects anew, within `LISTEN_S`.

        Not at once again: who may not count subscribers never sees one.
        """
        now = self._clock()
        if now >= self._doubt_at:
            self._doubted = True
            self._doubt_at, self._doubt_s = now + self._doubt_s, min(DOUBT_MAX_S, 2 * self._doubt_s)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s, refused = PAUSE_S, False
        while not self._stopping.is_set():
            began = self._clock()
            try:
                with translate_errors():
                    self._listen()
            except StoreMisconfigured as error:
                if not refused:
                    logger.warning("No sign of life, so that leases alone decide: %s", error)
                refused = True
            except StoreError as error:
                # Whoever calls the store meets the same and says it.
                logger.debug("The sign of life was cut: %s", error)
            except Exception:
                if not self._stopping.is_set():
                    logger.exception("The sign of life failed; leases alone decide meanwhile")
            self._drop_connection()
            lasted = self._clock() - began >= STEADY_S
            pause_s = REFUSED_PAUSE_S if refused else PAUSE_S if lasted else min(PAUSE_MAX_S, pause_s * 2)
            self._stopping.wait(pause_s)

    def _listen(self) -> None:
        """Until the connection is cut."""
        client = self._connect()
        try:
            pubsub = client.pubsub(ignore_subscribe_messages=False)
            while not self._names and not self._stopping.is_set():
                self._added.wait()
            with self._lock:
                self._pubsub, names, self._doubted = pubsub, [*self._names.values()], False
            self._subscribe(pubsub, names)
            heard_at = self._clock()
            while not (self._stopping.is_set() or self._doubted):
                message = self._next_message(pubsub)
                now = self._clock()
                if message is not None:
                    heard_at = now
                    self._heard(message, now)
                elif now - heard_at >= SILENT_S:
                    return
                else:
                    pubsub.ping()
        finally:
            client.close()

    def _next_message(self, pubsub: Any) -> dict[str, Any] | None:
        take = pubsub.get_sharded_message if self._sharded else pubsub.get_message
        message: dict[str, Any] | None = take(timeout=LISTEN_S)
        return message

    def _heard(self, message: dict[str, Any], now: float) -> None:
        if message["type"] not in {"subscribe", "ssubscribe"}:
            return
        name = message["channel"].decode()
        with self._lock:
            prefix = next((prefix for prefix, added in self._names.items() if added == name), None)
            if prefix is None:
                return
            self._since[name] = now
        self._tell(prefix)

    def _subscribe(self, pubsub: Any, names: list[str]) -> None:
        if self._sharded:
            pubsub.ssubscribe(*names)
        else:
            pubsub.subscribe(*names)

    def _drop_connection(self) -> None:
        with self._lock:
            pubsub, self._pubsub = self._pubsub, None
            told, self._since = bool(self._since), {}
        if pubsub is not None:
            try:
                pubsub.close()
            except Exception:
                logger.debug("A connection did not close cleanly", exc_info=True)
        if told and not self._stopping.is_set():
            self._tell("")

    def _tell(self, prefix: str) -> None:
        for listener in [*self._listeners]:
            listener(prefix)

    def close_in_child(self) -> None:
        """After a fork, in the child: its copy of the socket must not outlive the parent's."""
        connection = getattr(self._pubsub, "connection", None)
        if connection is not None:
            connection.disconnect()  # redis-py shuts down only what its own process has opened


_alive: weakref.WeakSet[Presence] = weakref.WeakSet()


def _close_in_children() -> None:
    for presence in [*_alive]:
        presence.close_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_children)
