"""A real store for tests: one throwaway server for each process, a random namespace for each test.

The server starts when first asked for and ends with the process. `DUCTOR_TEST_REDIS_URL` names another one, of which
only keys of the random namespace are touched. A child of a fork (Django's parallel test runner) uses its parent's.
"""

from __future__ import annotations

import atexit
import os
import secrets
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

from django.conf import settings as django_settings
from django.test.utils import TestContextDecorator, override_settings

from queueapp.errors import StoreError
from queueapp.producer import client
from queueapp.store import connection, embedded, shards
from queueapp.testing import assertions, draining
from queueapp.testing.blocking import block
from queueapp.testing.recorder import Recorder

URL_VARIABLE = "DUCTOR_TEST_REDIS_URL"

_server: tuple[int, Any, embedded.EmbeddedServer] | None = None
"""The process that started it, its context manager, and the server."""


class Ductor:
    """What the fixture `ductor` and `throwaway_store()` give: the jobs, and what can be asked and done about them."""

    def __init__(self, recorder: Recorder, url: str, namespace: str) -> None:
        self.recorded = recorder
        """The jobs that were enqueued, in order."""
        self.url = url
        self.namespace = namespace
        self.drain = draining.drain
        self.adrain = draining.adrain
        self.assert_enqueued = assertions.assert_enqueued
        self.aassert_enqueued = assertions.aassert_enqueued
        self.assert_not_enqueued = assertions.assert_not_enqueued


class ThrowawayStore(TestContextDecorator):
    """Points `DUCTOR` at the tests' server, in a namespace of its own, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self._entered: list[tuple[Ductor, override_settings, tuple[Any, ...]]] = []

    def __enter__(self) -> Ductor:  # type: ignore[override]  # the stubs think of the registry of apps alone
        return self.enable()

    def enable(self) -> Ductor:
        url, namespace = server_url(), f"test-{secrets.token_hex(8)}"
        given = {**getattr(django_settings, "DUCTOR", {})}
        given.pop("CACHE_ALIAS", None)
        override = override_settings(DUCTOR={**given, "REDIS_URL": url, "NAMESPACE": namespace})
        override.enable()
        ductor = Ductor(Recorder(), url, namespace)
        self._entered.append(
            (ductor, override, (shards.stand_in, client.watcher, assertions.recorder, block.opened_for))
        )
        shards.stand_in, block.opened_for = None, (url, namespace)
        client.watcher = assertions.recorder = ductor.recorded
        return ductor

    def disable(self) -> None:
        ductor, override, before = self._entered.pop()
        try:
            with suppress(StoreError):
                _remove(ductor.namespace)
        finally:
            shards.stand_in, client.watcher, assertions.recorder, block.opened_for = before
            override.disable()
            connection.reset()
            shards.forget()


def throwaway_store() -> ThrowawayStore:
    """A real store for a test: a context manager, and a decorator of functions and TestCase classes.

    Gives a `Ductor`. Raises NoStore, with what to install, where there is no server to start.
    """
    return ThrowawayStore()


def server_url() -> str:
    """The URL of this process's server, which is started now unless it runs."""
    global _server
    if given := os.environ.get(URL_VARIABLE):
        return given
    if _server is None:
        manager = embedded.throwaway()
        _server = os.getpid(), manager, manager.__enter__()
        atexit.register(stop_server)
        # Before Python 3.13 children of multiprocessing (`manage.py test --parallel`) run no atexit.
        Finalize(None, stop_server, exitpriority=10)
    return _server[2].url


def stop_server() -> None:
    """End the server, if this process started one."""
    global _server
    if _server is not None and _server[0] == os.getpid():
        connection.reset()
        _server[1].__exit__(None, None, None)
        _server = None


def _remove(namespace: str) -> None:
    with connection.translate_errors():
        client = connection.commands()
        for pattern in (f"{{{namespace}:*", f"{namespace}:*"):
            for key in client.scan_iter(pattern, count=1000):
                client.unlink(key)
