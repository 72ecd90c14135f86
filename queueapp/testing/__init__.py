"""For the tests of host projects: run jobs at once, record them, or run them from a real store. See `docs/testing.md`.

The names are imported when first used: the pytest plugin lives here, too, and must not import Django.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueapp.testing.assertions import aassert_enqueued, assert_enqueued, assert_not_enqueued
    from queueapp.testing.blocking import StoreBlocked
    from queueapp.testing.draining import Drained, DrainLimit, adrain, drain
    from queueapp.testing.mixin import DuctorTestMixin
    from queueapp.testing.modes import immediate, recorded
    from queueapp.testing.recorder import EnqueuedJob, Recorder
    from queueapp.testing.server import Ductor, throwaway_store

__all__ = [
    "DrainLimit",
    "Drained",
    "Ductor",
    "DuctorTestMixin",
    "EnqueuedJob",
    "Recorder",
    "StoreBlocked",
    "aassert_enqueued",
    "adrain",
    "assert_enqueued",
    "assert_not_enqueued",
    "drain",
    "immediate",
    "recorded",
    "throwaway_store",
]

_HOMES = {
    "DrainLimit": "draining",
    "Drained": "draining",
    "Ductor": "server",
    "DuctorTestMixin": "mixin",
    "EnqueuedJob": "recorder",
    "Recorder": "recorder",
    "StoreBlocked": "blocking",
    "aassert_enqueued": "assertions",
    "adrain": "draining",
    "assert_enqueued": "assertions",
    "assert_not_enqueued": "assertions",
    "drain": "draining",
    "immediate": "modes",
    "recorded": "modes",
    "throwaway_store": "server",
}
"""Public name → the module of this package that holds it."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
