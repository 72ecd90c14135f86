"""Reloading in development: a worker starts anew when code changes, and hands back what it holds before.

Django's autoreloader watches the files. Its own parent process would end the child without warning; ours passes SIGTERM
on and waits. Ctrl-C reaches parent and child alike.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from collections.abc import Callable

from django.utils import autoreload

RELOAD_CODE = 3
"""What Django's reloader exits with when it wants the process started again."""


def run_reloading(main: Callable[[], object], stop: Callable[[], None], patience_s: float) -> int:
    """Runs `main` in a child that is started again after each change. `stop` is called as often as it takes to end it.

    `patience_s` is how long `main` may take to return after the first `stop`; after it `stop` is called again.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) != "true":
        return _supervise()
    ended = threading.Event()

    def watched() -> None:
        try:
            main()
        finally:
            ended.set()

    def hand_back() -> None:
        for patience in (patience_s, 2.0):
            if not ended.is_set():
                stop()
                ended.wait(patience)

    # However the reloader ends this process (a change, SIGTERM, Ctrl-C), it does so by SystemExit or by returning.
    atexit.register(hand_back)
    autoreload.run_with_reloader(watched)
    return 0


def _supervise() -> int:
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true"}
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: object) -> None:
        if child is not None:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        child = subprocess.Popen(autoreload.get_child_arguments(), env=environment, close_fds=False)
        code = child.wait()
        if code != RELOAD_CODE:
            return code
