"""A proxy between clients and a server: it can stop forwarding without closing, or answer in the server's stead.

A silently dead network looks like `freeze()`: what is sent is swallowed, nothing comes back, no connection is reset.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import redis


class Proxy:
    """Listens on a TCP port of this machine and forwards to the unix socket or port of `server_url`."""

    def __init__(self, server_url: str) -> None:
        self._target = urlsplit(server_url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._closed = False
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.error: bytes | None = None
        """Set: every command is answered with this error, and nothing is forwarded."""
        self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def freeze(self) -> None:
        """Swallow everything from now on, on old and new connections."""
        self._open.clear()

    def thaw(self) -> None:
        """Forward again, on new connections: what was swallowed stays lost, and so do its connections."""
        self._drop()
        self._open.set()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._sockets.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self.error is not None:
                self._answer_errors(client)
                return
            server = self._connect()
            with self._lock:
                self._sockets.append(server)
            threading.Thread(target=self._pump, args=(server, client), daemon=True).start()
            self._pump(client, server)
        except OSError:
            return

    def _answer_errors(self, client: socket.socket) -> None:
        """One error per command: clients send whole commands, each of which begins with `*`."""
        while data := client.recv(65536):
            error = self.error
            if error is None:
                client.close()
                return
            commands = max(1, data.count(b"\r\n*") + data.startswith(b"*"))
            self.refused += commands
            client.sendall(error * commands)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._open.is_set():
                    target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> socket.socket:
        if self._target.scheme == "unix":
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(unquote(self._target.path))
            except OSError:
                server.close()
                raise
            return server
        return socket.create_connection((self._target.hostname or "127.0.0.1", self._target.port or 6379))


def client_of(url: str) -> redis.Redis:
    """A plain client for the test's own use."""
    return redis.Redis.from_url(url, protocol=2, socket_timeout=10)
