"""The processes of one machine. Everything it does is in `queueapp.cli.stack`."""

from __future__ import annotations

import sys
from argparse import SUPPRESS
from typing import Any

from django.core.management.base import CommandError, CommandParser

from queueapp.cli.command import DuctorCommand, address, number, whole
from queueapp.cli.stack import StackCommand, run_stack, serve_web


class Command(DuctorCommand):
    help = (
        "Starts all that a machine needs for development: the embedded store (without REDIS_URL), the web server, a "
        "scheduler and workers. Changed code needs a restart. One Ctrl-C stops everything in order: workers first, the "
        "store last."
    )
    examples = """examples:
  {command}
  {command} --workers 2 --slots 8
  {command} --port 8080 --migrate
  {command} -v 2                         the worker logs every job
  {command} --no-web --workers 0         beside `runserver` and `worker`, which start anew when code changes
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address of the web server (default: 127.0.0.1).")
        parser.add_argument(
            "--port",
            type=whole(1, 65_535),
            help="Port of the web server (default: 8000, or a free one when it is taken).",
        )
        parser.add_argument(
            "--workers", type=whole(0, 100), default=1, metavar="N", help="Worker processes (default: 1)."
        )
        parser.add_argument("--slots", type=whole(1, 1000), help="Slots of each worker.")
        parser.add_argument("--pool", default="", metavar="A,B", help="Pools of the workers; default: every known one.")
        parser.add_argument("--grace", type=number(0, 86_400), metavar="SECONDS", help="Grace of the workers.")
        parser.add_argument("--no-web", dest="web", action="store_false", help="No web server.")
        parser.add_argument("--no-scheduler", dest="scheduler", action="store_false", help="No scheduler.")
        parser.add_argument(
            "--metrics-addr",
            type=address,
            metavar="HOST:PORT",
            help="Serve /metrics of all processes together, /healthz and /readyz there; port 0 takes a free one.",
        )
        parser.add_argument("--migrate", action="store_true", help="Run `migrate` first.")
        parser.add_argument("--serve-web", metavar="ADDRESS", help=SUPPRESS)

    def perform(self, **options: Any) -> None:
        if options["serve_web"]:
            serve_web(options["serve_web"])
            return
        command = StackCommand(
            host=options["host"],
            port=options["port"],
            workers=options["workers"],
            slots=options["slots"],
            pools=options["pool"],
            grace_s=options["grace"],
            web=options["web"],
            scheduler=options["scheduler"],
            migrate=options["migrate"],
            metrics_addr=options["metrics_addr"],
            verbosity=options["verbosity"],
        )
        try:
            code = run_stack(command, sys.stdout)
        except OSError as error:
            raise CommandError(str(error)) from error
        if code:
            sys.exit(code)
