"""`worker --max-memory`: how much memory this process has, and a look at it once a second, beside the work."""

from __future__ import annotations

import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path

EVERY_S = 1.0
MIB = 1024 * 1024
_STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Memory of this process that is in use now; where the system only tells the most that it ever was, that."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


class MemoryWatch:
    """Calls `passed` once, with the bytes in use, when this process has more than `limit_bytes`."""

    def __init__(
        self, limit_bytes: int, passed: Callable[[int], None], measure: Callable[[], int] = resident_bytes
    ) -> None:
        self._limit_bytes = limit_bytes
        self._passed = passed
        self._measure = measure
        self._closing = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="ductor-memory", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def look(self) -> bool:
        """Whether it has passed the limit; tells so."""
        found = self._measure()
        if found <= self._limit_bytes:
            return False
        self._passed(found)
        return True

    def _watch(self) -> None:
        while not self._closing.wait(EVERY_S):
            if self.look():
                return
