"""`--metrics-addr`: a small HTTP server in a process of ours, for Prometheus and for probes.

It answers /metrics, /healthz (200 while the process's loop turns) and /readyz (200 while the process can do its work),
in threads of its own: a hung loop or store never keeps it from saying so. It needs no password: bind it to an address
that only the inside can reach.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socket import AF_INET, AF_INET6, AF_UNIX, SHUT_RDWR, socket
from socketserver import TCPServer, ThreadingMixIn
from time import monotonic
from typing import Any, cast

from django.db import connections
from prometheus_client.registry import Collector

from queueapp.errors import DuctorError
from queueapp.monitoring.health import Vitals
from queueapp.monitoring.page import directory, page

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
POLL_S = 0.1
"""How soon it notices that it is to end."""
PATIENCE_S = 10.0
"""A client that has not sent its request and read the answer by then is cut off, however busily it does so."""
CLIENTS_MOST = 50
"""Answered at once. Others are closed unheard: clients must not take the memory and descriptors of the jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a process says of itself. Each is called in the server's threads."""

    page: Callable[[str], tuple[bytes, str]]
    """From the header Accept to the text of the metrics and its content type."""
    ailing: Callable[[], str]
    """What is wrong with the process, "" when nothing."""
    unready: Callable[[], str]
    """Why it cannot do its work just now, "" when it can."""


class Listener:
    """The server. Bound when made, so that a port that is taken is known at once; `start` begins to answer."""

    def __init__(self, host: str, port: int, answers: Answers, socket_path: Path | None = None) -> None:
        """Raises DuctorError when the address cannot be had. Port 0 takes a free one.

        With `socket_path` it listens there, instead of at an address: for the parent of this process.
        """
        try:
            self._server = _Server(host, port, answers, socket_path)
        except OSError as error:
            where = f"{f'[{host}]' if ':' in host else host}:{port}"
            reason = error.strerror or str(error)
            raise DuctorError(f"Cannot listen on {where} ({reason}); give another --metrics-addr.") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="ductor-metrics", daemon=True
        )

    @property
    def url(self) -> str:
        if self._server.address_family == AF_UNIX:
            return f"unix:{self._server.server_address!s}"
        host, port = self._server.server_address[:2]
        text = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{text}]' if ':' in text else text}:{port}"

    def start(self) -> None:
        self._thread.start()
        level = logging.DEBUG if self._server.address_family == AF_UNIX else logging.INFO
        logger.log(level, "Metrics and probes", extra={"url": f"{self.url}/metrics"})

    def close(self) -> None:
        """Ends it; answers that are under way are cut off with the process."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def listen(where: tuple[str, int] | None, vitals: Vitals, collectors: Sequence[Collector] = ()) -> Listener | None:
    """A listener for a worker or scheduler, answering from now on; None when no address was given."""
    if where is None:
        return None
    listener = Listener(
        *where,
        Answers(
            page=lambda accept: page(accept, collectors, directory()),
            ailing=vitals.ailing,
            unready=vitals.unready,
        ),
    )
    listener.start()
    return listener


def answer_probes(socket_path: Path, vitals: Vitals) -> Listener:
    """A listener for the parent of this process, which asks for its health and adds up the metrics by itself."""
    socket_path.unlink(missing_ok=True)  # of a process before, under the same name
    answers = Answers(page=lambda accept: (b"", TEXT), ailing=vitals.ailing, unready=vitals.unready)
    listener = Listener("", 0, answers, socket_path)
    listener.start()
    return listener


class _Server(ThreadingMixIn, TCPServer):
    """Not http.server's own: that one asks the name service for the host's full name, which may take its time."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, answers: Answers, socket_path: Path | None) -> None:
        self.address_family = AF_UNIX if socket_path else AF_INET6 if ":" in host else AF_INET
        self.answers = answers
        self._clients: dict[socket, float] = {}
        """Connections that are being answered → when they began."""
        # str: the library's types know of addresses with ports alone.
        super().__init__(cast("Any", str(socket_path)) if socket_path else (host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._clients) >= CLIENTS_MOST:
            self.shutdown_request(request)
            return
        self._clients[request] = monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._clients.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between requests, every `POLL_S` at least: the sockets' own timeouts begin anew with every byte."""
        late = monotonic() - PATIENCE_S
        for client, since in list(self._clients.items()):
            if since < late:
                with suppress(OSError):
                    client.shutdown(SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("A client of metrics or probes went away", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE_S
    server_version = "ductor"
    sys_version = ""

    def do_GET(self) -> None:
        try:
            status, text, content_type = self._answer(self.server.answers, self.path.partition("?")[0])
        except Exception:
            logger.exception("A page of metrics or a probe failed", extra={"path": self.path})
            status, text, content_type = 500, b"it failed; the log says how\n", TEXT
        finally:
            with suppress(Exception):
                connections.close_all()
        self._send(status, text, content_type)

    do_HEAD = do_GET

    def _answer(self, answers: Answers, path: str) -> tuple[int, bytes, str]:
        if path == "/metrics":
            return 200, *answers.page(self.headers.get("Accept", ""))
        if path not in {"/healthz", "/readyz"}:
            return 404, b"not found: /metrics, /healthz and /readyz are\n", TEXT
        wrong = answers.ailing() or (answers.unready() if path == "/readyz" else "")
        return 503 if wrong else 200, f"{wrong or 'ok'}\n".encode(), TEXT

    def _send(self, status: int, text: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # The library's own answer repeats what was asked.
        self._send(code, b"refused\n", TEXT)

    def log_message(self, format: str, *args: object) -> None:
        logger.debug(format, *args)
