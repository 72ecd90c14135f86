"""`manage.py bench`: from its options to the report, on a ground of its own, whatever project it is called from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from django.core.management import call_command

from queueapp.bench import ground
from queueapp.bench.catalogue import EXPERIMENTS
from queueapp.bench.harness import Progress, Report, identity
from queueapp.store import connection


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCommand:
    """One `manage.py bench`: the experiment and its own options."""

    bench: str
    options: Mapping[str, Any]
    json: Path | None = None

    def arguments(self) -> list[str]:
        """The same command once more, for `python -m django`."""
        options = EXPERIMENTS[self.bench].options
        words = [word for one in options if one.key in self.options for word in one.words(self.options[one.key])]
        return ["ductor_bench", self.bench, *words, *(["--json", str(self.json)] if self.json else [])]


def run_bench(command: BenchCommand, out: TextIO) -> list[str]:
    """Measures, prints, writes `--json`. Returns one sentence for each promise that was missed.

    An experiment that needs a ground of its own does not return outside of one: this program starts again on it.
    """
    begun, progress = time.monotonic(), Progress(out)
    experiment = EXPERIMENTS[command.bench]
    if experiment.ground:
        directory = ground.entered(experiment.settings)
        if directory is None:
            ground.enter(experiment.settings, ["-m", "django", *command.arguments()])
        report = _on_ground(command, progress, directory)
    else:
        report = Report(bench=command.bench, run=identity(None, **command.options))
        progress.say(f"bench {command.bench}")
        experiment.run(report, command.options, progress, None)
    progress.clear()
    if command.json is not None:
        report.write(command.json)
        progress.say(f"  figures written to {command.json}")
    progress.say(f"  {time.monotonic() - begun:.1f} s")
    return report.missed


def _on_ground(command: BenchCommand, progress: Progress, directory: Path) -> Report:
    with ground.held(directory):
        call_command("migrate", interactive=False, verbosity=0)
        report = Report(bench=command.bench, run=identity(connection.commands(), **command.options))
        server, cpus = report.run["server"], report.run["cpus"]
        progress.say(f"bench {command.bench}: {server}, append-only file on, {cpus} processors")
        EXPERIMENTS[command.bench].run(report, command.options, progress, directory)
    return report
