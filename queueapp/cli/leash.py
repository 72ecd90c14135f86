"""The leash: a child ends when its parent does, however that ended.

The parent (`stack`, `worker --processes`, or the supervisor of a reloading worker) holds the other end of what the
child reads, and never writes: of the child's standard input, or of a pipe of its own where standard input belongs to a
debugger. When the parent is gone, even by SIGKILL, the child reads the end and stops itself as SIGTERM would.
"""

from __future__ import annotations

import os
import signal
import threading
import time


def put_on_leash(descriptor: int = 0, patience_s: float | None = None) -> None:
    """Ends this process gracefully when what it reads from `descriptor` ends, and by force `patience_s` later."""
    threading.Thread(target=_watch, args=(descriptor, patience_s), name="ductor-leash", daemon=True).start()


def _watch(descriptor: int, patience_s: float | None) -> None:
    try:
        while os.read(descriptor, 1024):
            pass
    except ConnectionError:
        pass  # the other end of a socket went while something of ours was on its way
    os.kill(os.getpid(), signal.SIGTERM)
    if patience_s is not None:
        time.sleep(patience_s)
        os.kill(os.getpid(), signal.SIGKILL)
