"""Runs jobs. Everything it does is in `queueapp.cli.worker`."""

from __future__ import annotations

import sys
from argparse import SUPPRESS, BooleanOptionalAction
from functools import partial
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import CommandError, CommandParser

from queueapp.cli import logs, probes
from queueapp.cli.command import DuctorCommand, address, names, number, whole
from queueapp.cli.leash import put_on_leash
from queueapp.cli.worker import WorkerCommand, run_worker
from queueapp.conf import settings
from queueapp.worker.faults import Faults
from queueapp.worker.loop import WorkerOptions


class Command(DuctorCommand):
    help = (
        "Runs jobs until it is stopped. The first SIGTERM or Ctrl-C leases nothing more and lets running jobs end, "
        "within --grace; the second gives everything back at once. Exit codes: 0 all done; 1 could not start; "
        "2 wrong options; 4 stopped before running jobs had ended, or before their outcomes were heard: those jobs "
        "run again."
    )
    examples = """examples:
  {command}                              every known pool, 4 slots
  {command} --pool emails,reports        two pools, in turn
  {command} --slots 16 --no-reload       more threads; no restart on changed code
  {command} --batch                      run what is runnable now, then end
  {command} --with-scheduler             one process for a small site
  {command} --metrics-addr :9101         serve metrics and probes
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
            "--worker-id",
            metavar="NAME",
            help="Name of this worker (default: host and process id); a random part is added.",
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
        parser.add_argument("--max-tasks", type=whole(1, 10**9), metavar="N", help="End after N jobs.")
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
        parser.add_argument("--leash", action="store_true", help=SUPPRESS)

    def perform(self, **options: Any) -> None:
        if options["check"]:
            check = partial(probes.check_worker, options["worker_id"], options["pools"])
            self.stdout.write(probes.in_time(check))
            return
        once = options["batch"] or options["max_tasks"] is not None
        reloading = options["reload"]
        if reloading is None:
            reloading = django_settings.DEBUG and not once
        elif reloading and once:
            raise CommandError("--reload does not go with --batch or --max-tasks.")
        if options["leash"]:
            put_on_leash()
        logs.set_up(options["log"], options["verbosity"])
        grace_ms = settings.grace_ms if options["grace"] is None else round(options["grace"] * 1000)
        command = WorkerCommand(
            pools=options["pools"],
            name=options["worker_id"],
            with_scheduler=options["with_scheduler"],
            metrics_addr=options["metrics_addr"],
            options=WorkerOptions(
                slots=options["slots"],
                grace_ms=grace_ms,
                batch=options["batch"],
                max_tasks=options["max_tasks"],
                faults=Faults(options["fail_rate"], options["fail_before_ack_rate"], options["fail_seed"]),
            ),
        )
        code = run_worker(command, reloading=reloading)
        if code:
            sys.exit(code)
