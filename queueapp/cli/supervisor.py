"""`manage.py worker --processes N`: N workers as processes of their own, kept at that number until it is stopped.

The supervisor runs no job and needs neither store nor database: it starts workers afresh (never forked), starts others
for those that end, passes signals on, and answers for all of them (`--metrics-addr`, where it reads how the pools stand
when there is a scheduler). A scheduler that was asked for is the first worker's, so that what may hang or leak is
always in a process that can be replaced.

`after` decides what a worker's end means. `Supervisor.run` is one thread; `stop` may be called from anywhere.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Protocol

from queueapp.cli.joint_metrics import JointMetrics, pools_led_by
from queueapp.cli.probing import ask_all
from queueapp.cli.processes import Child
from queueapp.monitoring.page import directory
from queueapp.worker.loop import EXIT_CUT_SHORT, EXIT_DONE, EXIT_OVERDUE

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_SPENT = 6
"""A worker has had its fill, of jobs or of memory: told to its supervisor only."""
MARGIN_S = 5.0
"""Beyond their grace, workers get so long to say what there is to say, before they are killed."""
STOP = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorCommand:
    """The options of one `manage.py worker --processes N`."""

    processes: int
    name: str
    """Each worker's name is this one with a number behind it."""
    arguments: Sequence[str] = ()
    """Options that every worker gets as they are."""
    grace_s: float
    with_scheduler: bool = False
    batch: bool = False
    metrics_addr: tuple[str, int] | None = None


class Verdict(Enum):
    """What follows when a worker has ended by itself."""

    DONE = auto()
    """Nothing: there was nothing left to do."""
    AT_ONCE = auto()
    """Another one: it ended in good order."""
    PAUSE = auto()
    """Another one after a pause, which grows while they die young."""
    GIVE_UP = auto()
    """The supervisor ends, too: no worker could start."""


def after(code: int | None, *, came_up: bool, anyone_up: bool, batch: bool) -> Verdict:
    """`came_up`: this worker had begun its work; `anyone_up`: some worker of this supervisor ever had.

    What waiting would mend, a worker waits for: one that ends with 1 before any has worked is a mistake to be seen.
    """
    if came_up and code in {EXIT_OVERDUE, EXIT_SPENT}:
        return Verdict.AT_ONCE
    if came_up and code == EXIT_DONE:
        return Verdict.DONE if batch else Verdict.AT_ONCE
    if not anyone_up and code in {1, 2}:
        return Verdict.GIVE_UP
    return Verdict.PAUSE


class Process(Protocol):
    """What `processes.Child` is to its supervisor."""

    name: str
    restart_at: float | None

    @property
    def running(self) -> bool: ...
    @property
    def up(self) -> bool: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> None: ...
    def schedule_restart(self, *, at_once: bool = False) -> float: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


MakeProcess = Callable[[str, Sequence[str], "SimpleQueue[object]", Mapping[str, str] | None], Process]


def _child(
    name: str, arguments: Sequence[str], died: SimpleQueue[object], environment: Mapping[str, str] | None
) -> Process:
    return Child(name, arguments, None, died, environment)


class Supervisor:
    """The running workers. `run` blocks until there is nothing left to do, or `stop` was called."""

    def __init__(
        self, command: SupervisorCommand, make: MakeProcess = _child, clock: Callable[[], float] = monotonic
    ) -> None:
        self._command = command
        self._make = make
        self._clock = clock
        self._mail: SimpleQueue[object] = SimpleQueue()
        self._workers: list[Process] = []
        self._sockets: dict[str, Path] = {}
        self._metrics: JointMetrics | None = None
        self._anyone_up = False
        self._finished: set[str] = set()
        """Names of workers that found nothing left to do."""
        self._stops = 0
        self._code = EXIT_DONE

    def stop(self) -> None:
        """As a signal does: the first time gracefully, the second at once, the third by force."""
        self._mail.put(STOP)

    def run(self) -> int:
        """Starts the workers, watches over them, ends them. Returns the exit code."""
        self._open()
        try:
            for worker in self._workers:
                worker.start()
            facts = {"supervisor": self._command.name, "processes": self._command.processes}
            logger.info("Supervisor started", extra=facts)
            while not self._over():
                self._watch()
        finally:
            self._end()
            if self._metrics is not None:
                self._metrics.close()
        logger.info("Supervisor stopped", extra={"supervisor": self._command.name, "exit": self._code})
        return self._code

    def _open(self) -> None:
        command = self._command
        environment: Mapping[str, str] | None = None
        numbers = range(1, command.processes + 1)
        if command.metrics_addr is not None:
            collectors = pools_led_by(f"{command.name}-1") if command.with_scheduler else []
            shared = directory()
            self._metrics = JointMetrics(
                command.metrics_addr, collectors, unready=self._unready, ailing=self._ailing, shared=shared
            )
            environment = self._metrics.environment if shared is None else None
            self._sockets = {
                f"{command.name}-{number}": self._metrics.directory / f"{number}.sock" for number in numbers
            }
        for number in numbers:
            name = f"{command.name}-{number}"
            arguments = ["ductor_worker", *command.arguments, "--no-reload", "--supervised", "--worker-id", name]
            if number == 1 and command.with_scheduler:
                arguments.append("--with-scheduler")
            if name in self._sockets:
                arguments += ["--probe-socket", str(self._sockets[name])]
            self._workers.append(self._make(name, arguments, self._mail, environment))

    def _over(self) -> bool:
        return self._stops > 0 or self._code != EXIT_DONE or len(self._finished) == len(self._workers)

    def _watch(self) -> None:
        """Waits for the end of a worker, for a signal, or until one is due to be started again."""
        due = [worker.restart_at for worker in self._workers if worker.restart_at is not None]
        message = self._next(min(due) - self._clock() if due else None)
        if message is not None and message is not STOP:
            self._ended(next(worker for worker in self._workers if worker is message))
        if self._over():
            return
        for worker in self._workers:
            if worker.restart_at is not None and self._clock() >= worker.restart_at:
                worker.start()

    def _next(self, timeout_s: float | None) -> object:
        try:
            message = self._mail.get(timeout=None if timeout_s is None else max(0.0, timeout_s))
        except Empty:
            return None
        if message is STOP:
            self._stops += 1
        return message

    def _ended(self, worker: Process) -> None:
        code, came_up = worker.exit_code, worker.up
        self._anyone_up = self._anyone_up or any(each.up for each in self._workers)
        verdict = after(code, came_up=came_up, anyone_up=self._anyone_up, batch=self._command.batch)
        facts: dict[str, object] = {"child": worker.name, **_how(code)}
        match verdict:
            case Verdict.DONE:
                self._finished.add(worker.name)
            case Verdict.GIVE_UP:
                logger.error("No worker can start; giving up", extra=facts)
                self._code = EXIT_FAILED
            case Verdict.AT_ONCE:
                worker.schedule_restart(at_once=True)
                logger.info("A worker has ended; another takes its place", extra=facts)
            case Verdict.PAUSE:
                facts["pause_s"] = worker.schedule_restart()
                logger.warning("A worker died; another will take its place", extra=facts)

    def _end(self) -> None:
        """SIGTERM, one more for each further stop, SIGKILL when patience ends or at the third."""
        ending = [worker for worker in self._workers if worker.running]
        if ending:
            logger.info("Stopping the workers", extra={"processes": len(ending)})
        for worker in self._workers:
            worker.terminate()
        deadline, told, killed = self._clock() + self._command.grace_s + MARGIN_S, 1, False
        while any(worker.running for worker in ending):
            if self._clock() >= deadline or self._stops >= 3:
                killed = True
                for worker in ending:
                    worker.kill()
            elif self._stops > told:
                told += 1
                for worker in ending:
                    worker.terminate()
            self._next(0.1)
        cut_short = killed or any(worker.up and worker.exit_code not in _GOOD for worker in ending)
        if cut_short and self._code == EXIT_DONE:
            self._code = EXIT_CUT_SHORT

    # -- for probes, in threads of the page ------------------------------------------------------------------------

    def _unready(self) -> str:
        if self._stops:
            return "it is stopping"
        down = [worker.name for worker in self._workers if not worker.running]
        if down:
            return f"not running: {', '.join(down)}"
        return ask_all(self._sockets, "/readyz", starting="starting")

    def _ailing(self) -> str:
        """One that does not run is started again, one that starts is not ill."""
        running = {worker.name for worker in self._workers if worker.running}
        asked = {name: path for name, path in self._sockets.items() if name in running}
        return ask_all(asked, "/healthz", starting="")


_GOOD = frozenset({EXIT_DONE, EXIT_OVERDUE, EXIT_SPENT})


def _how(code: int | None) -> dict[str, object]:
    """How a process ended, for people."""
    if code is not None and code < 0:
        with suppress(ValueError):
            return {"signal": signal.Signals(-code).name}
    return {"code": code}


def on_stop_signals(supervisor: Supervisor) -> None:
    """SIGTERM and SIGINT stop it, each time. SIGHUP ends it as any process, and with it its workers, gracefully."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())


def end_of_signals() -> None:
    """All has ended: one more signal, while the interpreter tidies up, must not change the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
