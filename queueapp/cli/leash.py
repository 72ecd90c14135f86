"""The leash: a child of `stack` ends when the stack does, however that ended.

The stack holds the writing end of each child's standard input and never writes. When it is gone, even by SIGKILL, the
child reads the end of its input and stops itself as SIGTERM would.
"""

from __future__ import annotations

import os
import signal
import threading


def put_on_leash() -> None:
    """Ends this process gracefully when its standard input ends."""
    threading.Thread(target=_watch, name="ductor-leash", daemon=True).start()


def _watch() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
