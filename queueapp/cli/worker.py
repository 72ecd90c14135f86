"""`manage.py worker`: one process that runs jobs, from its options to its exit code."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.db import connections
from prometheus_client.registry import Collector

from queueapp import telemetry
from queueapp.cli import reload, startup
from queueapp.cli.memory import MIB, MemoryWatch
from queueapp.cli.processes import came_up
from queueapp.cli.scheduler import make_scheduler
from queueapp.cli.supervisor import (
    EXIT_SPENT,
    MARGIN_S,
    Supervisor,
    SupervisorCommand,
    end_of_signals,
    on_stop_signals,
)
from queueapp.conf import settings
from queueapp.inspection.collector import STORE, LeaderCollector
from queueapp.inspection.pools import declared_pools, first_tenants, require
from queueapp.metrics import TenantLabels
from queueapp.monitoring.health import Vitals
from queueapp.monitoring.listener import answer_probes, listen
from queueapp.outage import Outage
from queueapp.producer.discovery import load_tasks, registry
from queueapp.scheduler.loop import Scheduler
from queueapp.store import connection, shards
from queueapp.store.presence import Presence
from queueapp.sync.installation import Ownership
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_DONE, Worker, WorkerOptions
from queueapp.worker.meter import PoolMeter
from queueapp.worker.parker import Parker
from queueapp.worker.room import runs_on_loop

logger = logging.getLogger(__name__)

RELOAD_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """The options of one `manage.py worker`."""

    pools: Sequence[str] = ()
    """Empty: every known one."""
    name: str | None = None
    with_scheduler: bool = False
    metrics_addr: tuple[str, int] | None = None
    max_memory_mb: int | None = None
    """End after the running jobs when this process has passed it."""
    supervised: bool = False
    """A supervisor started this process, holds its standard input, and starts another when it ends."""
    probe_socket: Path | None = None
    """Where the supervisor asks how this process is."""
    options: WorkerOptions


class WorkerProcess:
    """A worker that is being started, works, or ends. `stop` may be called at any of these times."""

    def __init__(self, command: WorkerCommand) -> None:
        self._command = command
        self._vitals = Vitals()
        self._worker: Worker | None = None
        self._scheduler: Scheduler | None = None
        self._full = False
        """It has taken more memory than it may."""

    def stop(self) -> None:
        """As a signal does: the first time gracefully, the second at once."""
        if self._worker is None:
            # Nothing is leased yet: there is nothing to give back.
            os._exit(EXIT_DONE)
        self._worker.stop()

    def run(self) -> int:
        """Waits until there is everything a worker needs, works, returns the exit code."""
        listen(self._command.metrics_addr, self._vitals, self._collectors())
        if self._command.probe_socket is not None:
            answer_probes(self._command.probe_socket, self._vitals)
        startup.wait_for_migrations()
        pools = self._pools()
        for broken in load_tasks():
            logger.error("Tasks of an app are not available: %s", broken.error, extra={"app": broken.app})
        worker_id = startup.process_id(self._command.name)
        startup.look_at_server()
        installation = startup.claim_namespace()
        startup.open_pools(pools)
        presence = startup.begin_presence()
        lines = self._lines(pools, worker_id, presence)
        own = [line.stop_key for line in lines]
        keys = [*(line.wake_key for line in lines), *own]
        self._worker = Worker(
            lines,
            self._command.options,
            lambda post: Parker(connection.blocking, keys, post, own=own),
            ownership=Ownership(installation),
        )
        self._vitals.parts.append(self._worker)
        if presence is not None:
            presence.on_change(self._worker.look)
            presence.start()
        scheduling = self._start_scheduler(worker_id, installation, presence)
        logger.info("Worker started", extra={"worker": worker_id, "pools": ",".join(pools), "slots": self._slots})
        connections.close_all()  # this thread needs the database no more
        if self._command.supervised:
            came_up()
        memory = self._watch_memory()
        code = self._worker.run()
        if memory is not None:
            memory.close()
        if scheduling is not None and self._scheduler is not None:
            self._scheduler.stop()
            scheduling.join(5.0)
        if presence is not None:
            presence.stop()
        if self._command.supervised and code == EXIT_DONE and (self._full or self._worker.spent):
            code = EXIT_SPENT
        logger.info("Worker stopped", extra={"worker": worker_id, "ran": self._worker.ran, "exit": code})
        return code

    @property
    def _slots(self) -> int:
        return self._command.options.slots

    def _pools(self) -> list[str]:
        known = declared_pools()
        wanted = list(dict.fromkeys(self._command.pools)) or known
        require(wanted, known)
        return wanted

    def _lines(self, pools: Sequence[str], worker_id: str, presence: Presence | None) -> list[Line]:
        def channel(pool: str) -> str:
            return presence.channel(shards.keys(pool)) if presence is not None else ""

        if presence is not None:
            for pool in pools:
                presence.add(shards.keys(pool))
        outage = Outage(logging.getLogger("queueapp.worker"))
        info = {"name": startup.process_name(self._command.name), "pid": str(os.getpid())}
        labels = TenantLabels(first_tenants(settings.metrics_tenants), settings.metrics_tenants)
        return [
            Line(
                pool,
                shards.store(pool),
                worker_id,
                lease_ms=settings.lease_ms,
                info={**info, "slots": str(self._slots + self._coroutines(pool))},
                outage=outage,
                meter=PoolMeter(pool, labels),
                channel=partial(channel, pool),
                doubt=presence.doubt if presence is not None else lambda: None,
            )
            for pool in pools
        ]

    def _coroutines(self, pool: str) -> int:
        """How many of a pool's jobs can run at once beside those in slots: none unless it has asynchronous tasks."""
        looped = any(task.queue_name == pool and runs_on_loop(task) for task in registry.values())
        return self._command.options.coroutines if looped else 0

    def _watch_memory(self) -> MemoryWatch | None:
        limit_mb, worker = self._command.max_memory_mb, self._worker
        if limit_mb is None or worker is None:
            return None

        def passed(found: int) -> None:
            self._full = True
            logger.warning(
                "This process has taken more memory than --max-memory; it ends when its running jobs have",
                extra={"memory_mb": found // MIB, "max_memory_mb": limit_mb},
            )
            worker.retire()

        watch = MemoryWatch(limit_mb * MIB, passed)
        watch.start()
        return watch

    def _collectors(self) -> Sequence[Collector]:
        """How the pools stand is for schedulers to tell."""
        if not self._command.with_scheduler:
            return []
        return [STORE, LeaderCollector(lambda: self._scheduler.leading() if self._scheduler else {})]

    def _start_scheduler(self, owner: str, installation: str, presence: Presence | None) -> threading.Thread | None:
        if not self._command.with_scheduler:
            return None
        scheduler = self._scheduler = make_scheduler(owner, installation, presence)
        self._vitals.parts.append(scheduler)

        def schedule() -> None:
            try:
                scheduler.run()
            finally:
                connections.close_all()

        thread = threading.Thread(target=schedule, name="ductor-scheduler", daemon=True)
        thread.start()
        return thread


def run_worker(command: WorkerCommand, *, reloading: bool) -> int:
    """The whole life of the process. Ends it itself when bodies still run, because threads cannot be ended."""
    process = WorkerProcess(command)
    if reloading:
        return reload.run_reloading(process.run, process.stop, RELOAD_PATIENCE_S)
    startup.on_stop_signals(process.stop)
    code = process.run()
    if command.supervised:
        # From here on a signal would change the exit code, and what a body has left running hold up its successor.
        end_of_signals()
        last = threading.Timer(MARGIN_S, os._exit, (code,))
        last.daemon = True
        last.start()
    if command.supervised or code not in {EXIT_DONE, EXIT_SPENT}:
        telemetry.flush()
    if code not in {EXIT_DONE, EXIT_SPENT}:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def run_supervisor(command: SupervisorCommand, *, reloading: bool) -> int:
    """The whole life of a supervisor of worker processes."""
    supervisor = Supervisor(command)
    if reloading:
        return reload.run_reloading(_watching(supervisor.run), supervisor.stop, RELOAD_PATIENCE_S)
    on_stop_signals(supervisor)
    try:
        return supervisor.run()
    finally:
        end_of_signals()


def _watching(run: Callable[[], int]) -> Callable[[], int]:
    """The reloader watches what this process has imported, which of itself imports no tasks."""

    def watched() -> int:
        load_tasks()
        return run()

    return watched
