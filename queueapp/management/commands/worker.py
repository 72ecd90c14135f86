"""Runs jobs. Everything it does is in `queueapp.cli.worker`."""

from __future__ import annotations

import random
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import CommandError, CommandParser

from queueapp.cli import logs, probes, startup
from queueapp.cli.command import DuctorCommand, address, names, number, whole
from queueapp.cli.leash import put_on_leash
from queueapp.cli.supervisor import MARGIN_S, SupervisorCommand
from queueapp.cli.worker import WorkerCommand, run_supervisor, run_worker
from queueapp.conf import settings
from queueapp.worker.faults import Faults, StandIn
from queueapp.worker.loop import WorkerOptions


class Command(DuctorCommand):
    help = (
        "Runs jobs until it is stopped. The first SIGTERM or Ctrl-C leases nothing more and lets running jobs end, "
        "within --grace; the second gives everything back at once. Exit codes: 0 all done; 1 could not start; "
        "2 wrong options; 4 stopped before running jobs had ended, or before their outcomes were heard: those jobs "
        "run again; 5 bodies that had passed their time limit still ran. With --processes it starts so many workers, "
        "and others for those that end; the third signal kills them."
    )
    examples = """examples:
  {command}                              every known pool, 4 slots
  {command} --pool emails,reports        two pools, in turn
  {command} --slots 16 --no-reload       more threads; no restart on changed code
  {command} --batch                      run what is runnable now, then end
  {command} --processes 4 --slots 8      four processes, for bodies that compute; restarted when they die
  {command} --processes 2 --max-memory 512 --max-tasks 10000
                                         replace a process that has grown, or has done enough
  {command} --with-scheduler             one process for a small site
  {command} --metrics-addr :9101         serve metrics and probes
  {command} --exec sleep:5               an experiment: every job waits for 5 ms instead of its body
  {command} --check                      exit 0 when this host's worker is alive (for exec probes)
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--pool",
            "--queue-name",
            dest="pools",
            type=names,
            default=[],
            metavar="A,B",
            help="The pools to serve, in turn; default: every known one.",
        )
        parser.add_argument(
            "--slots",
            type=whole(1, 1000),
            default=4,
            help="Jobs that run at once, each in a thread (default: 4). More help waiting jobs, not computing ones.",
        )
        parser.add_argument(
            "--coroutines",
            type=whole(0, 100_000),
            default=100,
            metavar="N",
            help="`async def` jobs that run at once beside those, on one event loop (default: 100); 0: in slots, one "
            "in each.",
        )
        parser.add_argument(
            "--processes",
            type=whole(1, 256),
            metavar="N",
            help="Run N worker processes, each with its own slots, and start others for those that end.",
        )
        parser.add_argument(
            "--worker-id",
            metavar="NAME",
            help="Name of this worker (default: host and process id); a random part is added. With --processes each "
            "has its number behind it.",
        )
        parser.add_argument(
            "--grace",
            type=number(0, 86_400),
            metavar="SECONDS",
            help="How long to wait for running jobs when stopping (default: GRACE_SECONDS).",
        )
        parser.add_argument(
            "--batch", action="store_true", help="End when nothing is runnable; jobs due later do not count."
        )
        parser.add_argument(
            "--max-tasks",
            type=whole(1, 10**9),
            metavar="N",
            help="End after N jobs. With --processes each process is replaced then, up to a tenth sooner, so that not "
            "all are at once.",
        )
        parser.add_argument(
            "--max-memory",
            type=whole(1, 10**7),
            metavar="MB",
            help="End, with exit code 0, when this process has taken more memory and its running jobs have ended; "
            "whoever started it starts another. With --processes that is done for each, up to a tenth sooner.",
        )
        parser.add_argument("--with-scheduler", action="store_true", help="Do a scheduler's work, too.")
        parser.add_argument(
            "--metrics-addr",
            type=address,
            metavar="HOST:PORT",
            help="Serve /metrics, /healthz and /readyz there, for Prometheus and probes; port 0 takes a free one.",
        )
        parser.add_argument("--check", action="store_true", help="Only look whether this worker is alive: exit 0 or 1.")
        parser.add_argument(
            "--reload",
            action=BooleanOptionalAction,
            default=None,
            help="Start anew when code changes (default: with DEBUG, unless --batch or --max-tasks).",
        )
        parser.add_argument("--log", choices=("text", "json"), help="Form of the log lines on stderr.")
        faults = parser.add_argument_group("faults on order, for tests and benchmarks")
        faults.add_argument(
            "--fail-rate", type=number(0, 1), default=0.0, metavar="RATE", help="Share of bodies that raise."
        )
        faults.add_argument(
            "--fail-before-ack-rate",
            type=number(0, 1),
            default=0.0,
            metavar="RATE",
            help="Share of outcomes that are never reported, as if the worker had died: their leases run out.",
        )
        faults.add_argument("--fail-seed", type=int, metavar="SEED", help="Seed of the dice.")
        faults.add_argument(
            "--exec",
            dest="stand_in",
            type=stand_in,
            metavar="sleep|cpu[:MS]",
            help="Instead of its body each job waits, or computes, for so long (default: 1 ms). It ends as completed.",
        )
        parser.add_argument("--leash", action="store_true", help=SUPPRESS)
        parser.add_argument("--supervised", action="store_true", help=SUPPRESS)
        parser.add_argument("--probe-socket", type=Path, help=SUPPRESS)

    def run_from_argv(self, argv: list[str]) -> None:
        self._given: Sequence[str] | None = argv[2:]
        super().run_from_argv(argv)

    def perform(self, **options: Any) -> None:
        if options["check"]:
            check = partial(probes.check_worker, options["worker_id"], options["pools"], processes=options["processes"])
            self.stdout.write(probes.in_time(check))
            return
        supervising, supervised = options["processes"] is not None, options["supervised"]
        once = options["batch"] or (options["max_tasks"] is not None and not supervising)
        reloading = options["reload"]
        if reloading is None:
            reloading = django_settings.DEBUG and not once
        elif reloading and once:
            raise CommandError("--reload does not go with --batch or --max-tasks.")
        grace_ms = settings.grace_ms if options["grace"] is None else round(options["grace"] * 1000)
        if options["leash"] or supervised:
            put_on_leash(patience_s=grace_ms / 1000 + MARGIN_S if supervised else None)
        logs.set_up(options["log"], options["verbosity"], options["worker_id"] if supervised else None)
        if supervising:
            code = run_supervisor(self._supervisor(options, grace_ms), reloading=reloading)
        else:
            code = run_worker(_worker(options, grace_ms), reloading=reloading)
        if code:
            sys.exit(code)

    def _supervisor(self, options: Any, grace_ms: int) -> SupervisorCommand:
        given = getattr(self, "_given", None)
        if given is None:
            raise CommandError("--processes starts this command line anew: give it on a command line.")
        return SupervisorCommand(
            processes=options["processes"],
            name=startup.process_name(options["worker_id"])[: startup.NAME_MAX - len("-256")],
            arguments=passed_on(given),
            grace_s=grace_ms / 1000,
            with_scheduler=options["with_scheduler"],
            batch=options["batch"],
            metrics_addr=options["metrics_addr"],
        )


def stand_in(text: str) -> StandIn:
    """`sleep`, `cpu`, `sleep:20`, `cpu:0.5`: what, and for how many milliseconds."""
    word, colon, given = text.partition(":")
    ms = number(0, 3_600_000)(given) if colon else 1.0
    match word:
        case "sleep":
            return StandIn("sleep", ms)
        case "cpu":
            return StandIn("cpu", ms)
    raise ArgumentTypeError(f"{text!r} is neither sleep[:MS] nor cpu[:MS]")


def passed_on(given: Sequence[str]) -> list[str]:
    """A command line without the options that concern its supervisor alone, or that it gives to each worker."""
    parser = ArgumentParser(add_help=False)
    for name in ("--processes", "--worker-id", "--metrics-addr"):
        parser.add_argument(name)
    for name in ("--with-scheduler", "--leash"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--reload", action=BooleanOptionalAction)
    return parser.parse_known_args(given)[1]


def _worker(options: Any, grace_ms: int) -> WorkerCommand:
    max_tasks, max_memory_mb = options["max_tasks"], options["max_memory"]
    if options["supervised"]:
        max_tasks = max_tasks and max_tasks - random.randint(0, max_tasks // 10)
        max_memory_mb = max_memory_mb and max_memory_mb - random.randint(0, max_memory_mb // 10)
    return WorkerCommand(
        pools=options["pools"],
        name=options["worker_id"],
        with_scheduler=options["with_scheduler"],
        metrics_addr=options["metrics_addr"],
        max_memory_mb=max_memory_mb,
        supervised=options["supervised"],
        probe_socket=options["probe_socket"],
        options=WorkerOptions(
            slots=options["slots"],
            coroutines=options["coroutines"],
            grace_ms=grace_ms,
            batch=options["batch"],
            max_tasks=max_tasks,
            replaceable=options["supervised"],
            faults=Faults(
                options["fail_rate"], options["fail_before_ack_rate"], options["fail_seed"], options["stand_in"]
            ),
        ),
    )
