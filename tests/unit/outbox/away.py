"""A store that is away, and a job whose commit found it so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import transaction
from django.test.utils import override_settings

from queueapp.producer.results import DuctorResult
from tests.producing import add

NOWHERE = "redis://localhost:1/0"


@contextmanager
def store_away(**more: Any) -> Iterator[None]:
    """Settings with a store that refuses connections at once, and more settings of Ductor."""
    with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": NOWHERE, **more}):
        yield


def kept(task: Any = add, *args: Any) -> DuctorResult:
    """The handle of a job that found no store after its commit."""
    with store_away(), transaction.atomic():
        result: DuctorResult = task.enqueue(*(args or (1,) if task.module_path == add.module_path else args))
    assert result.outbox == "default"
    return result
