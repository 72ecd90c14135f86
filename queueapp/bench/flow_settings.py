"""The settings of `bench flows`: those of the other benchmarks, and flows with what they need.

SQLite commits as in the example project: to its log, without a wait for the disk.
"""

from __future__ import annotations

from queueapp.bench.settings import *  # noqa: F403  # all but what follows

INSTALLED_APPS = [*INSTALLED_APPS, "flows"]  # noqa: F405  # theirs
DATABASES = {
    "default": {
        **DATABASES["default"],  # noqa: F405
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }
}
DUCTOR = {
    **DUCTOR,  # noqa: F405
    "POOLS": {name: {} for name in ("bench-chain", "bench-crowd", "bench-fan")},
}
