"""Asking worker processes for their health, each through a socket in a folder that only this user may enter.

The supervisor's page calls it, in its own threads; the workers answer with `monitoring.listener.answer_probes`.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path

PATIENCE_S = 5.0
"""A worker asks store and database first, which may take their time to say no."""
AT_ONCE = 16


class _Connection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("worker", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def ask(path: Path, probe: str, starting: str) -> str:
    """What one worker says is wrong; "" when nothing is, `starting` while it does not listen yet."""
    connection = _Connection(path)
    try:
        connection.request("GET", probe)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
        return "" if answer.status == 200 else text
    except (FileNotFoundError, ConnectionRefusedError):
        return starting
    except (OSError, HTTPException):
        return f"it does not answer within {PATIENCE_S:g} s"
    finally:
        connection.close()


def ask_all(sockets: Mapping[str, Path], probe: str, starting: str) -> str:
    """What is wrong with which of them, one after another in one line; "" when nothing is."""
    if not sockets:
        return ""
    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(sockets)), thread_name_prefix="ductor-probe") as pool:
        answers = pool.map(partial(ask, probe=probe, starting=starting), sockets.values())
        return "; ".join(f"{name}: {wrong}" for name, wrong in zip(sockets, answers, strict=True) if wrong)
