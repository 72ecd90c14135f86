"""A wire between a process and its server that fails where a test wants it to: at this command, in that direction.

`strike` waits for a command by name and acts before it reaches the server, or after the server has done it and before
its reply is read. Others are slow (`delay_s`), lose replies (`swallow`), break in the middle of one (`cut_after`), or
close one half only (`half_close`). What it says to the server is read as clients write it: whole arrays of strings.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from tests.integration.proxy import Proxy

When = Literal["before", "after"]


@dataclass(slots=True)
class Strike:
    """`act` is called once, at the first command whose name or function is `word` and which is as `where` says."""

    word: bytes
    when: When
    act: Callable[[], None]
    where: Callable[[Sequence[bytes]], bool] = lambda command: True
    done: threading.Event = field(default_factory=threading.Event)

    def meets(self, command: list[bytes]) -> bool:
        return not self.done.is_set() and self.word in (command[0].upper(), *command[1:2]) and bool(self.where(command))

    def strike(self) -> None:
        self.done.set()
        self.act()


class Wire(Proxy):
    """Forwards, command by command, until it shall not."""

    def __init__(self, server_url: str) -> None:
        self._strike: Strike | None = None
        self.delay_s = 0.0
        """Before each piece of a reply."""
        self.cut_after: int | None = None
        """So many bytes of replies are forwarded in all, then every connection breaks: once."""
        self.swallow: bytes | None = None
        """The reply to the next command of this name or function gets lost with its connection: once."""
        self._budget_lock = threading.Lock()
        self._serving: list[threading.Thread] = []
        super().__init__(server_url)

    def strike(
        self,
        word: str,
        when: When,
        act: Callable[[], None],
        where: Callable[[Sequence[bytes]], bool] = lambda command: True,
    ) -> Strike:
        """At the next command of this name or function; `where` looks at all its words."""
        self._strike = Strike(word.encode(), when, act, where)
        return self._strike

    def half_close(self) -> None:
        """No client hears anything more on the connections of now, although what it says still arrives."""
        with self._lock:
            sockets = [*self._sockets]
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

    def _serve(self, client: socket.socket) -> None:
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        with self._lock:
            self._sockets.append(server)
        line = _Line(self, client, server)
        replies = threading.Thread(target=line.replies, daemon=True)
        replies.start()
        self._serving.append(threading.current_thread())
        line.commands()
        replies.join()
        client.close()
        server.close()

    def close(self) -> None:
        super().close()
        for thread in self._serving:
            thread.join(5)

    def take_bytes(self, wanted: int) -> int:
        """How many of them may still be forwarded."""
        with self._budget_lock:
            if self.cut_after is None:
                return wanted
            given = min(wanted, self.cut_after)
            self.cut_after = None if given < wanted else self.cut_after - given
            return given


class _Line:
    """One connection through the wire."""

    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._wire, self._client, self._server = wire, client, server
        self._held: Strike | None = None
        """Its command has been sent: the first piece of the reply is its moment."""
        self._lost = False

    def commands(self) -> None:
        buffer = b""
        with suppress(OSError):
            while data := self._client.recv(65536):
                buffer += data
                for command, raw in self._whole(buffer):
                    buffer = buffer[len(raw) :]
                    if not self._forward(command, raw):
                        return self._end()
        self._end()

    def _forward(self, command: list[bytes], raw: bytes) -> bool:
        strike, swallow = self._wire._strike, self._wire.swallow
        if strike is not None and strike.meets(command):
            if strike.when == "before":
                strike.strike()
                return False
            self._held = strike
        if swallow is not None and swallow in (command[0].upper(), *command[1:2]):
            self._wire.swallow = None
            self._lost = True
        if self._wire._open.is_set():
            self._server.sendall(raw)
        return True

    def replies(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(65536):
                if self._held is not None:
                    self._held.strike()
                    break
                if self._lost:
                    break
                if self._wire.delay_s:
                    time.sleep(self._wire.delay_s)
                if not self._wire._open.is_set():
                    continue
                given = self._wire.take_bytes(len(data))
                self._client.sendall(data[:given])
                if given < len(data):
                    break
        self._end()

    def _end(self) -> None:
        for side in (self._client, self._server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _whole(buffer: bytes) -> Iterator[tuple[list[bytes], bytes]]:
        """The whole commands at the beginning of what was read, each with its bytes."""
        at = 0
        while at < len(buffer):
            begin, words = at, list[bytes]()
            end = buffer.find(b"\r\n", at)
            if end < 0:
                return
            count, at = int(buffer[at + 1 : end]), end + 2
            for _ in range(count):
                end = buffer.find(b"\r\n", at)
                if end < 0:
                    return
                size = int(buffer[at + 1 : end])
                if len(buffer) < end + 2 + size + 2:
                    return
                words.append(buffer[end + 2 : end + 2 + size])
                at = end + 2 + size + 2
            yield words, buffer[begin:at]
