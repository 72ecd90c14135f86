"""Blocks that roll back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.db import transaction


class Rollback(Exception):
    """Rolls a block back."""


@contextmanager
def rolled_back(alias: str = "default") -> Iterator[None]:
    with suppress(Rollback), transaction.atomic(using=alias):
        yield
        raise Rollback
