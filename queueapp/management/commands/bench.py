"""Measures the queue. Everything it does is in `queueapp.bench`."""

from __future__ import annotations

import sys
from argparse import RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.command import BenchCommand, run_bench
from queueapp.cli.command import DuctorCommand


class Command(DuctorCommand):
    help = (
        "Measures the queue on a server, database and worker of its own, started for the purpose and gone afterwards; "
        "REDIS_URL is not looked at. `simulate` needs none of them; `produce` and `record` work on a pool of this "
        "project. Each experiment has a --help of its own. "
        "Exit codes: 0 all promises kept; 1 one was missed, with a sentence that says which."
    )
    examples = """examples:
  {command} memory
  {command} memory --jobs 10000 --tenants 5
  {command} throughput --json figures.json
  {command} throughput --peers                    other queues beside it: installs them, takes about an hour
  {command} throughput --peers bullmq,huey --aof on --rounds 3 --seconds 1
  {command} walk                                  loads 1.5 million jobs: takes some minutes
  {command} walk --policy wfq --tenants 10000 --jobs 100000
  {command} flows --json figures.json             durable runs: takes some minutes
  {command} simulate --policy wfq --load 1.25 --json figures.json
  {command} simulate --jobs 20000 --seeds 10      longer bursts, more of them
  {command} simulate --policy all --workload heavy_tailed --profile full
  {command} simulate --trace recorded.jsonl --weight acme=3 --ceiling globex=4
  {command} produce multi_tenant --pool emails --rate 100      into a pool of this project, with its own workers
  {command} record --pool emails --seconds 600 --output recorded.jsonl
  {command} matrix --scheduler fifo,wfq,tiered --repetitions 3      with real workers, and plots
  {command} sweep --scheduler fifo,tiered --workload multi_tenant
"""
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        experiments = parser.add_subparsers(dest="bench", required=True, metavar=" | ".join(EXPERIMENTS))
        for name, experiment in EXPERIMENTS.items():
            told = "".join(f"\n  {parser.prog} {name} {words}" for words in experiment.examples)
            own = experiments.add_parser(
                name,
                help=experiment.help,
                epilog=f"examples:{told}" if told else None,
                formatter_class=RawDescriptionHelpFormatter,
            )
            for option in experiment.options:
                own.add_argument(option.name if option.bare else f"--{option.name}", **option.reading())
            own.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, as JSON")

    def perform(self, **options: Any) -> None:
        experiment = EXPERIMENTS[options["bench"]]
        command = BenchCommand(
            bench=options["bench"],
            options={option.key: options[option.key] for option in experiment.options},
            json=options["json"],
        )
        try:
            missed = run_bench(command, sys.stdout)
        except KeyboardInterrupt:
            self.stderr.write("Stopped before the end.")
            sys.exit(130)
        for sentence in missed:
            self.stderr.write(f"MISSED: {sentence}")
        if missed:
            sys.exit(1)
