"""`manage.py stack`: the processes of one machine, for development and demos: server, web, scheduler and workers.

The server comes first and goes last: one Ctrl-C stops the workers (who finish or give back what they run), then the
scheduler and the web server, then the store. The second Ctrl-C does not wait for running jobs, the third for nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from types import FrameType
from typing import TextIO

from django.core.management import call_command
from django.urls import NoReverseMatch, reverse

from queueapp.cli.joint_metrics import JointMetrics, pools_led_by
from queueapp.cli.leash import put_on_leash
from queueapp.cli.processes import Child
from queueapp.conf import settings
from queueapp.monitoring.health import outside
from queueapp.store import address, embedded

logger = logging.getLogger(__name__)

SERVER_EVERY_S = 2.0
QUIET_END_S = 5.0
COLOURS = (36, 33, 32, 35, 34, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackCommand:
    """The options of one `manage.py stack`."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: 8000, or a free one when that is taken."""
    workers: int = 1
    slots: int | None = None
    pools: str = ""
    grace_s: float | None = None
    web: bool = True
    scheduler: bool = True
    migrate: bool = False
    metrics_addr: tuple[str, int] | None = None
    verbosity: int = 1
    """Of the workers; from 2 on they log every job."""


class Stack:
    """The running processes. `run` blocks until a signal has ended it all."""

    def __init__(self, command: StackCommand, out: TextIO) -> None:
        self._command = command
        self._out = out
        self._lock = threading.Lock()
        self._mail: SimpleQueue[object] = SimpleQueue()
        self._server: embedded.EmbeddedServer | None = None
        self._web: list[Child] = []
        self._schedulers: list[Child] = []
        self._workers: list[Child] = []
        self._metrics: JointMetrics | None = None
        self._stops = 0
        self._width = len("worker-00")

    def run(self) -> int:
        """Starts everything, watches over it, stops it in order. Returns the exit code."""
        previous = [signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)]
        try:
            self._start()
            while self._stops == 0:
                self._watch()
        finally:
            self._stop()
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), previous, strict=True):
                signal.signal(number, handler)
        return 0

    def _start(self) -> None:
        if wants_embedded():
            directory = address.project_directory()
            self._server = embedded.start(directory)
            self._say("stack", f"store: {self._server.url}" + ("" if self._server.owned else " (of another process)"))
        if self._command.migrate:
            call_command("migrate", interactive=False, verbosity=0)
        if self._command.metrics_addr:
            collectors = pools_led_by(f"stack-{os.getpid()}")
            self._metrics = JointMetrics(
                self._command.metrics_addr, collectors, unready=lambda: self._unready() or outside()
            )
            self._say("stack", f"metrics: {self._metrics.url}/metrics")
        port = free_port(self._command.host, self._command.port)
        if self._command.web:
            self._web = [self._child("web", ["ductor_stack", "--serve-web", f"{self._command.host}:{port}"])]
            for line in urls(self._command.host, port):
                self._say("stack", line)
        if self._command.scheduler:
            self._schedulers = [
                self._child("scheduler", ["ductor_scheduler", "--leash", "--scheduler-id", f"stack-{os.getpid()}"])
            ]
        self._workers = [
            self._child(f"worker-{number}", self._worker_arguments(number))
            for number in range(1, self._command.workers + 1)
        ]
        for child in [*self._schedulers, *self._web, *self._workers]:
            child.start()
        self._say("stack", "Changed code needs a restart. Ctrl-C stops everything: workers first, the store last.")

    def _worker_arguments(self, number: int) -> list[str]:
        command = self._command
        arguments = ["ductor_worker", "--no-reload", "--leash", "--worker-id", f"stack-{os.getpid()}-{number}"]
        arguments += ["--verbosity", str(command.verbosity)]
        if command.slots is not None:
            arguments += ["--slots", str(command.slots)]
        if command.pools:
            arguments += ["--pool", command.pools]
        if command.grace_s is not None:
            arguments += ["--grace", str(command.grace_s)]
        return arguments

    def _child(self, name: str, arguments: Sequence[str]) -> Child:
        environment = self._metrics.environment if self._metrics else None
        return Child(name, arguments, self._say, self._mail, environment)

    def _unready(self) -> str:
        """Which children do not run; for the probe."""
        down = [child.name for child in [*self._workers, *self._schedulers, *self._web] if not child.running]
        return f"not running: {', '.join(down)}" if down else ""

    def _watch(self) -> None:
        """Waits for a child's death, a signal or the next look at the server; starts again what has died."""
        children = [*self._workers, *self._schedulers, *self._web]
        waits = [child.restart_at - monotonic() for child in children if child.restart_at is not None]
        try:
            message = self._mail.get(timeout=max(0.0, min([SERVER_EVERY_S, *waits])))
        except Empty:
            message = None
        if isinstance(message, Child):
            code, pause_s = message.exit_code, message.schedule_restart()
            self._say("stack", f"{message.name} ended with code {code}; starting it again in {pause_s:g} s")
        if self._stops:
            return
        for child in children:
            if child.restart_at is not None and monotonic() >= child.restart_at:
                child.start()
        if self._server is not None and self._server.owned and self._server.ended():
            self._say("stack", "the store has ended; starting it again on its data")
            self._server.stop()
            self._server = embedded.start(address.project_directory())

    def _stop(self) -> None:
        grace_s = self._command.grace_s if self._command.grace_s is not None else settings.grace_ms / 1000
        self._say("stack", "stopping")
        self._end(self._workers, grace_s + QUIET_END_S)
        self._end([*self._schedulers, *self._web], QUIET_END_S)
        if self._metrics is not None:
            self._metrics.close()
        if self._server is not None:
            self._server.stop()
        self._say("stack", "stopped")

    def _end(self, children: Sequence[Child], patience_s: float) -> None:
        """SIGTERM, one more for each further signal that we get, SIGKILL when patience ends or at the third."""
        for child in children:
            child.restart_at = None
            child.terminate()
        deadline, told = monotonic() + patience_s, self._stops
        while any(child.running for child in children):
            if monotonic() >= deadline or self._stops >= 3:
                for child in children:
                    child.kill()
            elif self._stops > told:
                told = self._stops
                for child in children:
                    child.terminate()
            try:
                self._mail.get(timeout=0.1)
            except Empty:
                continue

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1
        self._mail.put(None)

    def _say(self, name: str, line: str) -> None:
        prefix = name.ljust(self._width)
        if self._out.isatty():
            prefix = f"\x1b[{COLOURS[sum(name.encode()) % len(COLOURS)]}m{prefix}\x1b[0m"
        with self._lock:
            self._out.write(f"{prefix} | {line}\n")
            self._out.flush()


def wants_embedded() -> bool:
    """Whether the settings leave the store to us."""
    return settings.redis_url in (None, "", address.EMBEDDED) and not settings.cache_alias


def free_port(host: str, wanted: int | None) -> int:
    """`wanted`, or without a wish 8000, or a free one when that is taken. A wished port that is taken is an error."""
    for port in [wanted] if wanted else [8000, 0]:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            # As the web server will: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                if wanted:
                    raise OSError(
                        f"port {wanted} of {host} is not free ({error.strerror}); give another --port"
                    ) from error
                continue
            found: int = probe.getsockname()[1]
            return found
    raise OSError(f"no port of {host} is free")


def urls(host: str, port: int) -> list[str]:
    """What to open in a browser."""
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    lines = [f"web:   {base}/"]
    with suppress(NoReverseMatch):
        lines.append(f"admin: {base}{reverse('admin:index')}")
    return lines


def serve_web(where: str) -> None:
    """The web child: Django's development server without its reloader."""
    put_on_leash()
    call_command("runserver", where, use_reloader=False, stdout=sys.stdout, stderr=sys.stderr)


def run_stack(command: StackCommand, out: TextIO) -> int:
    """The whole life of the stack."""
    return Stack(command, out).run()
