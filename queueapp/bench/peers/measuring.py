"""Measures one figure of one peer, on a server that holds nothing else: jobs sent, drained, started, kept waiting.

Peers are driven in processes of their own (`drivers`). When a body began is written into memory that this process
shares with theirs (`Marks`), the same for every peer; no queue is asked how far it is, and no body calls the server.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import redis

from queueapp.bench.experiments.memory import settled_memory
from queueapp.bench.peers.environments import Environment
from queueapp.bench.peers.roster import SLOTS
from queueapp.bench.statistics import percentiles

COMMAND_TIMEOUT_S = 180.0
DRAIN_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 8.0
SETTLE_TIMEOUT_S = 60.0
POLL_S = 0.02
WARM_STARTS = 20
"""Single jobs that do not count: the worker has only just come."""
AOF_BYTES = 256 * 1024**2
"""An append-only file that has grown beyond is written anew between two measurements, never during one."""


class NotMeasured(Exception):
    """A figure that could not be had; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """Milliseconds until a body began in an idle worker."""

    p50: float
    p99: float
    """From the return of the call that sent it."""
    call_p50: float
    """From before that call."""


class Marks:
    """The moments at which bodies began, each on the clock that all processes of a machine share; 0: not yet."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        path.write_bytes(bytes(8 * count))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    def read(self) -> array[float]:
        return array("d", self._map[:])

    def missing(self) -> int:
        return self.read().count(0.0)

    def close(self) -> None:
        self._map.close()
        self.path.unlink(missing_ok=True)


class Measurement:
    """One peer on the server of this benchmark."""

    def __init__(self, environment: Environment, client: redis.Redis, url: str, directory: Path) -> None:
        self.environment, self.peer = environment, environment.peer
        self._client, self._url, self._directory = client, url, directory

    def enqueue_per_s(self, how: str, count: int) -> float | None:
        """Jobs a second that one caller sends, `single` or `bulk`; None when the peer has no such call."""
        self._clear()
        words = [str(self.peer.chunk)] if how == "bulk" else []
        seconds = self._run(how, str(count), *words)["seconds"]
        return None if seconds is None else count / float(seconds)

    def drain_per_s(self, variant: str, count: int, ms: int, *, workers: int = 1, body: str = "") -> float:
        """Jobs a second that `workers` begin which were started on them, from the first twentieth to the last.

        `body` is for a driver that has several.
        """
        self._clear()
        with self._marks(count) as marks:
            self._run("fill", str(count), str(self.peer.chunk), str(ms), body=body)
            with ExitStack() as stack:
                running = [stack.enter_context(self._worker(variant, marks, number)) for number in range(workers)]
                self._await(marks, running)
            began = sorted(marks.read())
        return rate(began)

    def starts(self, variant: str, count: int) -> Starts:
        """How soon single jobs begin in a worker that is idle."""
        self._clear()
        with self._marks(count + WARM_STARTS) as marks, self._worker(variant, marks, 0):
            calls = self._run("starts", str(count + WARM_STARTS), marks=marks)["calls"]
            began = marks.read()
        return latencies(calls[WARM_STARTS:], began.tolist()[WARM_STARTS:])

    def bytes_per_job(self, count: int) -> float:
        """Server memory of a waiting job with a text, with its share of what the queue keeps once."""
        self._clear()
        before = settled_memory(self._client)
        self._run("texts", str(count), str(self.peer.chunk))
        return (settled_memory(self._client) - before) / count

    # -- processes ---------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._client.flushall(asynchronous=False)
        found: Any = self._client.info("persistence")
        if found.get("aof_current_size", 0) > AOF_BYTES:
            self._client.bgrewriteaof()
            settle(self._client)

    @contextmanager
    def _marks(self, count: int) -> Iterator[Marks]:
        marks = Marks(self._directory / "marks", count)
        try:
            yield marks
        finally:
            marks.close()

    def _variables(self, marks: Marks | None) -> dict[str, str]:
        variables = self.environment.variables() | {
            "PEER_URL": self._url,
            "PEER_SOCKET": unquote(urlsplit(self._url).path),
        }
        return variables | ({"PEER_MARKS": str(marks.path)} if marks is not None else {})

    def _run(self, *words: str, marks: Marks | None = None, body: str = "") -> dict[str, Any]:
        """A command of the driver to its end; what it told."""
        with (self._directory / "driver.log").open("w+b") as log:
            process = subprocess.Popen(
                self.environment.command(*words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._variables(marks) | {"PEER_BODY": body},
                start_new_session=True,
            )
            try:
                out, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise NotMeasured(f"{' '.join(words)}: no end within {COMMAND_TIMEOUT_S:g} s") from None
            finally:
                _end(process, at_once=True)
        try:
            found: dict[str, Any] = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            raise NotMeasured(f"{' '.join(words)}: {self._said('driver.log')}") from None
        return found

    @contextmanager
    def _worker(self, variant: str, marks: Marks, number: int) -> Iterator[subprocess.Popen[bytes]]:
        with (self._directory / f"worker-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                self.environment.command("work", str(SLOTS), variant),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._variables(marks),
                cwd=self._directory,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            _end(process)

    def _await(self, marks: Marks, running: list[subprocess.Popen[bytes]]) -> None:
        """Until every body has begun. The time counts from the last one that did."""
        missing, end = marks.missing(), time.monotonic() + DRAIN_TIMEOUT_S
        while missing:
            time.sleep(POLL_S)
            before, missing = missing, marks.missing()
            if missing < before:
                end = time.monotonic() + DRAIN_TIMEOUT_S
            if any(process.poll() is not None for process in running):
                raise NotMeasured(f"its worker ended: {self._said('worker-0.log')}")
            if time.monotonic() > end:
                raise NotMeasured(f"{missing:,} of {marks.count:,} jobs did not begin: {self._said('worker-0.log')}")

    def _said(self, log: str) -> str:
        lines = [line.strip() for line in (self._directory / log).read_text(errors="replace").splitlines()]
        return next((line[:200] for line in reversed(lines) if line), "it said nothing")


def _end(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    """Ends a process that we started, gracefully if it will, with whatever it started in its session."""
    if process.poll() is None and not at_once:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# -- the server ----------------------------------------------------------------------------------------------------


def persist(client: redis.Redis, *, on: bool) -> None:
    """Turns the append-only file of an empty server on or off. It is not written anew by the server's own choice."""
    client.flushall(asynchronous=False)
    client.config_set("auto-aof-rewrite-percentage", "0")
    client.config_set("appendonly", "yes" if on else "no")
    settle(client)


def settle(client: redis.Redis) -> None:
    """Until no append-only file is being written anew."""
    end = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        found: Any = client.info("persistence")
        if not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"]:
            return
        if time.monotonic() > end:
            raise TimeoutError(f"The server's append-only file was not written anew within {SETTLE_TIMEOUT_S:g} s.")
        time.sleep(POLL_S)


# -- from moments to figures ---------------------------------------------------------------------------------------


def rate(began: list[float]) -> float:
    """Jobs a second from the first twentieth of the moments, in their order, to the last."""
    first = len(began) // 20
    return (len(began) - 1 - first) / max(began[-1] - began[first], 1e-9)


def latencies(calls: list[tuple[float, float]], began: list[float]) -> Starts:
    """`calls`: when each call began and ended. A body that began before its call had returned waited for nothing."""
    returned = [max(0.0, at - after) * 1000 for (_, after), at in zip(calls, began, strict=True)]
    called = [(at - before) * 1000 for (before, _), at in zip(calls, began, strict=True)]
    p50, p99 = percentiles(returned, 50, 99)
    return Starts(p50=p50, p99=p99, call_p50=percentiles(called, 50)[0])
