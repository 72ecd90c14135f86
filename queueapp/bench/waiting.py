"""The wait of the benchmarks: for a process to start, for a leader, for what a trial brings about. Called wherever a
benchmark cannot go on without; an end that may fail to come, or that is itself what is measured, has a loop of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WITHIN_S = 30.0
LOOK_S = 0.005


def until(
    holds: Callable[[], bool],
    otherwise: Callable[[], str],
    *,
    within_s: float = WITHIN_S,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Looks until it holds. Raises RuntimeError with what `otherwise` says when that takes longer than `within_s`
    seconds, or when it cannot come about any more: what it depends on does not go on.
    """
    end = time.monotonic() + within_s
    while not holds():
        if not goes_on() or time.monotonic() > end:
            raise RuntimeError(otherwise())
        time.sleep(LOOK_S)
