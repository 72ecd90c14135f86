"""Rows, a commit that runs what was registered for it, and stores that are away or silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from queueapp.models import Pool, Tenant
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
    for module in (intent, delivery, comparison):
        monkeypatch.setattr(module, "versions", intent._Versions())
