"""The leash: a child ends when its parent does, however that ended.

The parent (`stack`, or the supervisor of a reloading worker) holds the writing end of a pipe and never writes: of the
child's standard input, or of a pipe of its own where standard input belongs to a debugger. When the parent is gone,
even by SIGKILL, the child reads the end of the pipe and stops itself as SIGTERM would.
"""

from __future__ import annotations

import os
import signal
import threading


def put_on_leash(descriptor: int = 0) -> None:
    """Ends this process gracefully when what it reads from `descriptor` ends."""
    threading.Thread(target=_watch, args=(descriptor,), name="ductor-leash", daemon=True).start()


def _watch(descriptor: int) -> None:
    while os.read(descriptor, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
