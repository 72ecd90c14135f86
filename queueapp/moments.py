"""Moments: the store counts milliseconds since the epoch, whoever shows or compares them takes aware datetimes.

Pure. Moments of the store come from the server's clock; `now_ms` is that of this process and decides nothing there.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime


def moment(at_ms: int) -> datetime | None:
    """An aware datetime of milliseconds since the epoch; None for 0, which the store uses for "not yet"."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC) if at_ms else None


def now_ms() -> int:
    """The moment on this process's clock."""
    return time.time_ns() // 1_000_000
