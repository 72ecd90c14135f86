"""Measures the queue. Everything it does is in `queueapp.bench`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from queueapp.bench.command import EXPERIMENTS, BenchCommand, run_bench
from queueapp.cli.command import DuctorCommand, whole

DEFAULT_JOBS = {"memory": 100_000, "throughput": 50_000}


class Command(DuctorCommand):
    help = (
        "Measures the queue on a server, database and worker of its own, started for the purpose and gone afterwards; "
        "REDIS_URL is not looked at. memory: server memory of a waiting job. throughput: enqueue one by one and in "
        "bulk, drain by one real worker, latency of an idle worker, server time and commands of a job. "
        "Exit codes: 0 all promises kept; 1 one was missed, with a sentence that says which."
    )
    examples = """examples:
  {command} memory
  {command} memory --jobs 10000 --tenants 5
  {command} throughput --json figures.json
"""
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("bench", choices=sorted(EXPERIMENTS), help="What to measure.")
        parser.add_argument(
            "--jobs",
            type=whole(100, 10_000_000),
            metavar="N",
            help="Jobs that are measured (default: 100000 for memory, 50000 for throughput).",
        )
        parser.add_argument(
            "--tenants", type=whole(1, 100_000), default=50, metavar="N", help="Tenants of `memory` (default: 50)."
        )
        parser.add_argument(
            "--starts",
            type=whole(10, 100_000),
            default=500,
            metavar="N",
            help="Single jobs of `throughput` that an idle worker starts (default: 500).",
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures there, as JSON.")

    def perform(self, **options: Any) -> None:
        command = BenchCommand(
            bench=options["bench"],
            jobs=options["jobs"] or DEFAULT_JOBS[options["bench"]],
            tenants=options["tenants"],
            starts=options["starts"],
            json=options["json"],
        )
        try:
            missed = run_bench(command, sys.stdout)
        except KeyboardInterrupt:
            self.stderr.write("Stopped before the end; nothing was kept.")
            sys.exit(130)
        for sentence in missed:
            self.stderr.write(f"MISSED: {sentence}")
        if missed:
            sys.exit(1)
