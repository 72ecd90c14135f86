"""Reloading in development: a worker starts anew when code changes, and hands back what it holds before.

Django's autoreloader watches the files. Its own parent process would end the child without warning; ours passes SIGTERM
on and waits. Ctrl-C reaches parent and child alike.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

from django.utils import autoreload

from queueapp import telemetry
from queueapp.cli.command import plain
from queueapp.cli.leash import put_on_leash
from queueapp.errors import DuctorError

RELOAD_CODE = 3
"""What Django's reloader exits with when it wants the process started again."""
LEASH_ENV = "DUCTOR_LEASH"
"""Number of the descriptor whose end tells the child that its supervisor is gone."""


def run_reloading(main: Callable[[], int], stop: Callable[[], None], patience_s: float) -> int:
    """Runs `main` in a child that is started again after each change. `stop` is called as often as it takes to end it.

    `patience_s` is how long `main` may take to return after the first `stop`; after it `stop` is called again. A `main`
    that returns, or is refused something, ends the process; one that raises waits for the change that mends it.
    """
    if os.environ.get(autoreload.DJANGO_AUTORELOAD_ENV) != "true":
        return _supervise()
    put_on_leash(int(os.environ[LEASH_ENV]))
    stopping, ended = threading.Event(), threading.Event()

    def watched() -> None:
        try:
            code = main()
        except DuctorError as error:
            print(f"CommandError: {plain(error)}", file=sys.stderr)
            code = 1
        finally:
            ended.set()
        if not stopping.is_set():
            telemetry.flush()
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def hand_back() -> None:
        stopping.set()
        for patience in (patience_s, 2.0):
            if not ended.is_set():
                stop()
                ended.wait(patience)

    # However the reloader ends this process (a change, SIGTERM, Ctrl-C), it does so by SystemExit or by returning.
    atexit.register(hand_back)
    autoreload.run_with_reloader(watched)
    return 0


def _supervise() -> int:
    leash, held = os.pipe()  # `held` stays open for as long as this process lives
    environment = {**os.environ, autoreload.DJANGO_AUTORELOAD_ENV: "true", LEASH_ENV: str(leash)}
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, frame: object) -> None:
        if child is not None:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    # A handler and not SIG_IGN, which the child would inherit: Ctrl-C reaches it by itself, here it is only survived.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        while True:
            child = subprocess.Popen(autoreload.get_child_arguments(), env=environment, pass_fds=(leash,))
            code = child.wait()
            if code != RELOAD_CODE:
                return code
    finally:
        os.close(held)
        os.close(leash)
