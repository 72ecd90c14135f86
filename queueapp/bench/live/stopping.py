"""Ctrl-C and SIGTERM as a wish to come to an end: what is under way is finished, and what was found is told."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from queueapp.cli.startup import on_stop_signals


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Whether to go on: until SIGINT or SIGTERM comes. The third one ends the program where it stands."""
    told: list[bool] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    on_stop_signals(lambda: told.append(True))
    try:
        yield lambda: not told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
