"""`manage.py bench`: from its options to the report, on a ground of its own, whatever project it is called from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from django.core.management import call_command

from queueapp.bench import ground
from queueapp.bench.harness import Progress, Report, identity
from queueapp.store import connection

SETTINGS = "queueapp.bench.settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCommand:
    """The options of one `manage.py bench`."""

    bench: str
    jobs: int
    tenants: int
    starts: int
    json: Path | None = None

    def arguments(self) -> list[str]:
        """The same command once more, for `python -m django`."""
        numbers = {"--jobs": self.jobs, "--tenants": self.tenants, "--starts": self.starts}
        words = ["ductor_bench", self.bench, *(str(word) for option in numbers.items() for word in option)]
        return [*words, "--json", str(self.json)] if self.json else words


def run_bench(command: BenchCommand, out: TextIO) -> list[str]:
    """Measures, prints, writes `--json`. Returns one sentence for each promise that was missed.

    Outside of a ground of its own it does not return: this program starts again on one.
    """
    directory = ground.entered(SETTINGS)
    if directory is None:
        ground.enter(SETTINGS, ["-m", "django", *command.arguments()])
    begun, progress = time.monotonic(), Progress(out)
    with ground.held(directory):
        call_command("migrate", interactive=False, verbosity=0)
        client = connection.commands()
        report = Report(bench=command.bench, run=identity(client, jobs=command.jobs))
        progress.say(
            f"bench {command.bench}: {report.run['server']}, append-only file on, {report.run['cpus']} processors"
        )
        EXPERIMENTS[command.bench](report, command, progress, directory)
    progress.clear()
    if command.json is not None:
        report.write(command.json)
        progress.say(f"  figures written to {command.json}")
    progress.say(f"  {time.monotonic() - begun:.1f} s")
    return report.missed


def _memory(report: Report, command: BenchCommand, progress: Progress, directory: Path) -> None:
    from queueapp.bench.experiments import memory

    memory.run(report, connection.commands(), progress, count=command.jobs, tenants=command.tenants)


def _throughput(report: Report, command: BenchCommand, progress: Progress, directory: Path) -> None:
    from queueapp.bench.experiments import throughput

    throughput.run(report, connection.commands(), progress, directory, count=command.jobs, starts=command.starts)


EXPERIMENTS: dict[str, Callable[[Report, BenchCommand, Progress, Path], None]] = {
    "memory": _memory,
    "throughput": _throughput,
}
