"""Duties: one file each. A duty does a bounded share of its work and says when it wants to go on.

Every scheduler does every duty, leader or not: each is atomic and harmless to repeat, in the store by script, in SQL by
version. A duty lets StoreError through; the loop waits and calls again.
"""

from __future__ import annotations


class Pace:
    """Often while there is work, seldom while there is none: doubles from `busy_s` to `idle_s`."""

    def __init__(self, busy_s: float, idle_s: float) -> None:
        self._busy_s = busy_s
        self._idle_s = idle_s
        self._now_s = busy_s

    def after(self, *, worked: bool, more: bool) -> float:
        """The pause after a share that found work or not, and may have left some."""
        self._now_s = self._busy_s if worked else min(self._idle_s, self._now_s * 2)
        return 0.0 if more else self._now_s
