"""What an experiment does with the directory of results that it has written: plots, and the page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from queueapp.bench import plots
from queueapp.bench.harness import Progress
from queueapp.bench.plots.report import write_report
from queueapp.bench.results import reading


def draw_run(directory: Path, progress: Progress, missed: Sequence[str] = (), *, drawn: bool = True) -> None:
    """Writes the page, with the plots where they are wanted and matplotlib is installed; says so where it is not."""
    read = reading.read(directory)
    if drawn and plots.installed():
        plots.draw(read, directory, lambda name: progress.show(f"  drawing {name}"))
    elif drawn:
        progress.say(f"  no plots: {plots.NoMatplotlib()}")
    progress.say(f"  report: {write_report(read, directory, missed)}")
