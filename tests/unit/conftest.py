"""Stores that are away or silent, what the producer says of jobs that they did not take, and how often one is asked;
a gate for bodies to wait at.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio.connection
import redis.connection
from django.conf import settings as django_settings
from django.test import override_settings

from queueapp.signals import enqueue_failed
from queueapp.store import connection


class SilentStore:
    """A store that takes connections and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._taken: list[socket.socket] = []
        self.url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"

    @property
    def asked(self) -> int:
        """How many connections came: a client that gave up waiting for an answer comes with another one."""
        self._listener.setblocking(False)
        while True:
            try:
                self._taken.append(self._listener.accept()[0])
            except BlockingIOError:
                return len(self._taken)

    def close(self) -> None:
        for taken in (self._listener, *self._taken):
            taken.close()


@pytest.fixture
def away() -> Iterator[None]:
    """A store that refuses connections at once."""
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": "redis://127.0.0.1:1/0"}):
        yield


@pytest.fixture
def silent() -> Iterator[SilentStore]:
    """A store that takes connections and never answers."""
    store = SilentStore(socket.create_server(("127.0.0.1", 0)))
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": store.url}):
        yield store
        # Closed first, so that whoever still waits for an answer gives up and lets go of what it holds.
        store.close()
        connection.reset()


@pytest.fixture
def failures() -> Iterator[list[dict[str, Any]]]:
    """What receivers of `enqueue_failed` were told."""
    seen: list[dict[str, Any]] = []

    def receive(**kwargs: Any) -> None:
        seen.append(kwargs)

    enqueue_failed.connect(receive, weak=False)
    yield seen
    enqueue_failed.disconnect(receive)


class RoundTrips:
    """How many messages went to the store, from threads and from event loops: a command or a pipeline is one."""

    def __init__(self) -> None:
        self.count = 0

    def since_last(self) -> int:
        number, self.count = self.count, 0
        return number


@pytest.fixture
def round_trips(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> RoundTrips:
    """Counts from here on; the functions are loaded by then."""
    counted = RoundTrips()

    def count(kind: Any) -> None:
        send = kind.send_packed_command

        def counting(self: Any, *arguments: Any, **options: Any) -> Any:
            counted.count += 1
            return send(self, *arguments, **options)

        monkeypatch.setattr(kind, "send_packed_command", counting)

    count(redis.connection.AbstractConnection)
    count(redis.asyncio.connection.AbstractConnection)
    return counted


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Bodies that wait for it are let go at the end in any case."""
    event = threading.Event()
    yield event
    event.set()
