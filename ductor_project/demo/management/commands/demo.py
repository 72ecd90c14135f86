"""The demonstration. Everything it does is in `ductor_project.demo.show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ductor_project.demo.show.processes import StackFailed
from ductor_project.demo.show.run import DemoCommand, DemoFailed, Demonstration
from ductor_project.demo.show.site import SiteError
from queueapp.bench import ground
from queueapp.bench.harness import Progress
from queueapp.cli.command import DuctorCommand, whole

SETTINGS = "ductor_project.demo.settings"


class Command(DuctorCommand):
    help = (
        "Shows the queue at work: five tenants upload CSV files over HTTP, two worker processes import them, once with "
        "the pool on fifo and once on tiered, and one worker is killed on the way; then a flow imports a few more, and "
        "retries a chunk that fails at first. Runs on a server, database and directory of its own; REDIS_URL and "
        "DATABASE_URL are not looked at. Takes about 45 s. "
        "Exit codes: 0 all promises kept; 1 one was missed, with a sentence that says which."
    )
    examples = """examples:
  {command}
  {command} --keep                look around afterwards: prints the URLs and an admin password
  {command} --json figures.json
"""
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--keep", action="store_true", help="Leave the stack up until Ctrl-C.")
        parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures there, as JSON.")
        parser.add_argument(
            "--jobs",
            type=whole(250, 100_000),
            metavar="N",
            help="Imports of one run (default: as many as take about 9 s on this machine).",
        )

    def perform(self, **options: Any) -> None:
        directory = ground.entered(SETTINGS)
        if directory is None:
            # The same program again, in an environment of its own.
            ground.enter(SETTINGS, sys.orig_argv[1:])
        command = DemoCommand(jobs=options["jobs"], keep=options["keep"], json=options["json"])
        try:
            with ground.held(directory):
                report = Demonstration(command, directory, Progress(sys.stdout, every_s=3.0)).run()
        except KeyboardInterrupt:
            self.stderr.write("Stopped before the end; every process has ended and nothing was kept.")
            sys.exit(130)
        except (DemoFailed, StackFailed, SiteError) as error:
            raise CommandError(str(error)) from error
        for sentence in report.missed:
            self.stderr.write(f"MISSED: {sentence}")
        if report.missed:
            sys.exit(1)
