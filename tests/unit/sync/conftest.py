"""Rows, a commit that runs what was registered for it, and stores that are away or silent."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings
from pytest_django import DjangoCaptureOnCommitCallbacks

from queueapp.models import Pool, Tenant
from queueapp.store import connection
from queueapp.sync import comparison, delivery, intent


@pytest.fixture
def pool() -> Pool:
    return Pool.objects.create(name="mail")


@pytest.fixture
def tenant() -> Tenant:
    return Tenant.objects.create(key="acme")


@pytest.fixture
def commit(redis_url: str, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Callable[[], Any]:
    """`with commit():` runs what the block registered for after the commit. The store is the tests' server."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


@pytest.fixture(autouse=True)
def _from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_turn", comparison.Turn())
    monkeypatch.setattr(delivery, "_pending", delivery._Pending())
    for module in (intent, delivery, comparison):
        monkeypatch.setattr(module, "versions", intent._Versions())


@pytest.fixture
def away() -> Iterator[None]:
    """A store that refuses connections at once."""
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": "unix:///nonexistent/store.sock"}):
        yield


@pytest.fixture
def silent() -> Iterator[None]:
    """A store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": url}):
            yield
            # Closed first, so that whoever still waits for an answer gives up and lets go of what it holds.
            listener.close()
            connection.reset()
