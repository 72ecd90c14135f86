"""What is in force in the store, and how often it was written to."""

from __future__ import annotations

from typing import Any

import pytest

from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.sync import intent


def scopes(name: str = "mail") -> dict[tuple[str, str], ScopeLimits]:
    return shards.reads(name).scope_limits()


def counted(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[int]:
    """How many scopes each `write` of a module brings over."""
    sizes: list[int] = []

    def write(*args: Any) -> bool:
        sizes.append(len(args[3]))
        return intent.write(*args)

    monkeypatch.setattr(module, "write", write)
    return sizes
