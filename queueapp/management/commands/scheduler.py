"""Does what time sets off. Everything it does is in `queueapp.cli.scheduler`."""

from __future__ import annotations

from argparse import SUPPRESS
from typing import Any

from django.core.management.base import CommandParser

from queueapp.cli import logs, probes
from queueapp.cli.command import DuctorCommand, address
from queueapp.cli.leash import put_on_leash
from queueapp.cli.scheduler import run_scheduler


class Command(DuctorCommand):
    help = (
        "Promotes due jobs, recovers those of lost workers, trims old results, and carries over what the admin "
        "configured, for every pool, until it is stopped by SIGTERM or Ctrl-C. Run two or more: all work, one of them "
        "leads. Exit codes: 0 stopped; 1 could not start, or --check found nobody leading; 2 wrong options."
    )
    examples = """examples:
  {command}
  {command} --log json
  {command} --metrics-addr :9100         serve metrics and probes
  {command} --check                      exit 0 when every pool has a leader (for exec probes)
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--scheduler-id", metavar="NAME", help="Name of this scheduler (default: host and process id)."
        )
        parser.add_argument(
            "--check", action="store_true", help="Only look whether every pool has a leader: exit 0 or 1."
        )
        parser.add_argument(
            "--metrics-addr",
            type=address,
            metavar="HOST:PORT",
            help="Serve /metrics, /healthz and /readyz there, for Prometheus and probes; port 0 takes a free one.",
        )
        parser.add_argument("--log", choices=("text", "json"), help="Form of the log lines on stderr.")
        parser.add_argument("--leash", action="store_true", help=SUPPRESS)

    def perform(self, **options: Any) -> None:
        if options["check"]:
            self.stdout.write(probes.in_time(probes.check_scheduler))
            return
        if options["leash"]:
            put_on_leash()
        logs.set_up(options["log"], options["verbosity"])
        run_scheduler(options["scheduler_id"], options["metrics_addr"])
