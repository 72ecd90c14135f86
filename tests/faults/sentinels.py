"""A primary, a replica and three Sentinels, as a host has them: processes of their own that a test kills and freezes.

The replica can be made to follow over a wire (`follow`), so that what the primary takes on does not reach it. All of
them listen at ports of this machine; the programs are those of the tests' own server.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from queueapp.store import embedded
from tests import freezing
from tests.integration.conftest import until
from tests.integration.proxy import client_of

NAME = "main"
DOWN_MS = 700
"""After so long a silent server is taken for dead."""
FIXED_S = 8.0
"""So long a Sentinel leaves a replica alone that follows another address than the primary's own."""


@dataclass(slots=True, eq=False)
class Node:
    """One server and its port."""

    server: embedded.EmbeddedServer
    port: int

    @property
    def client(self) -> redis.Redis:
        return client_of(f"redis://127.0.0.1:{self.port}/0")

    def ask(self) -> dict[str, Any]:
        """What it says of replication; {} while it does not, or while a Sentinel cuts its clients off."""
        with self.client as client:
            try:
                told: dict[str, Any] = client.info("replication")
            except redis.RedisError:
                return {}
        return told

    def kill(self) -> None:
        """As power goes: nothing more is written or sent. Its parent reaps it, so that it is no zombie."""
        os.kill(self.server.pid, signal.SIGKILL)
        until(self.server.ended)

    def freeze(self) -> None:
        freezing.freeze(self.server.pid)

    def thaw(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.server.pid, signal.SIGCONT)


@dataclass(slots=True, eq=False)
class Watched:
    """All of it. `primary` is the one of the start, `replica` the one that is promoted."""

    primary: Node
    replica: Node
    sentinels: list[tuple[str, int]]

    @property
    def setting(self) -> dict[str, Any]:
        """DUCTOR["REDIS_URL"], as a host writes it."""
        return {"SENTINELS": self.sentinels, "MASTER_NAME": NAME}

    def promoted(self) -> bool:
        """Every Sentinel names the replica, and it takes writes."""
        named = {self._ask(port).get("port") for _, port in self.sentinels}
        return named == {self.replica.port} and self.replica.ask().get("role") == "master"

    def in_step(self) -> bool:
        """What the primary had taken on when this was asked has reached the replica."""
        wanted = self.primary.ask()["master_repl_offset"]
        until(lambda: self.replica.ask().get("slave_repl_offset", 0) >= wanted, timeout=10)
        return True

    def follow(self, port: int) -> None:
        """The replica listens to its primary at `port` from now on; after `FIXED_S` a Sentinel takes it back."""
        with self.replica.client as client:
            client.replicaof("127.0.0.1", port)
        until(lambda: self.replica.ask().get("master_link_status") == "up", timeout=10)
        self.in_step()

    def ready(self) -> bool:
        """The Sentinels know the replica and each other."""
        for _, port in self.sentinels:
            seen = self._ask(port)
            if seen.get("num-slaves") != 1 or seen.get("num-other-sentinels") != len(self.sentinels) - 1:
                return False
        return self.replica.ask().get("master_link_status") == "up"

    @staticmethod
    def _ask(port: int) -> dict[str, Any]:
        with redis.Redis(port=port, socket_timeout=2, decode_responses=True) as client:
            try:
                seen: dict[str, Any] = client.sentinel_master(NAME)
            except redis.RedisError:
                return {}
        return seen


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def has_sentinel(program: Path) -> bool:
    """A server built without it says so at once; one that has it wants a file."""
    answer = subprocess.run([program, "--sentinel"], capture_output=True, timeout=10, check=False, text=True)
    return "config" in (answer.stdout + answer.stderr).lower()


@contextmanager
def watched(start: Callable[..., embedded.EmbeddedServer], directory: Path, *extra: str) -> Iterator[Watched]:
    """`start` makes a server (the fixture `own_server`); `extra` are further arguments of both."""
    ports = [free_port() for _ in range(5)]
    common = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *extra)
    primary = Node(start("--port", str(ports[0]), *common, durable=True), ports[0])
    follows = ("--replicaof", "127.0.0.1", str(ports[0]))
    replica = Node(start("--port", str(ports[1]), *follows, *common, durable=True), ports[1])
    program = str(embedded.BINARY or embedded.find_binary())
    processes = []
    try:
        for port in ports[2:]:
            path = directory / f"sentinel-{port}.conf"
            path.write_text(
                f"port {port}\ndir {directory}\nlogfile {directory}/sentinel-{port}.log\n"
                f"sentinel monitor {NAME} 127.0.0.1 {ports[0]} 2\n"
                f"sentinel down-after-milliseconds {NAME} {DOWN_MS}\n"
                f"sentinel failover-timeout {NAME} 4000\n"
            )
            processes.append(subprocess.Popen([program, str(path), "--sentinel"], start_new_session=True))
        made = Watched(primary, replica, [("127.0.0.1", port) for port in ports[2:]])
        until(made.ready, timeout=30, what="the Sentinels know the replica and each other")
        yield made
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
        for node in (primary, replica):
            node.thaw()


def wait_for_promotion(nodes: Watched) -> float:
    """How long it took."""
    began = time.monotonic()
    until(nodes.promoted, timeout=30, what="the replica is promoted")
    return time.monotonic() - began
