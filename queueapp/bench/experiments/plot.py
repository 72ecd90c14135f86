"""`bench plot`: draws what a run has left, or what `--json` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from queueapp.bench import plots
from queueapp.bench.harness import Progress, Report
from queueapp.bench.plots import files
from queueapp.bench.plots.report import write_report
from queueapp.bench.results.reading import read


def run(report: Report, progress: Progress, sources: Sequence[Path], output: Path | None) -> None:
    """Figures: how many plots there are now. Raises NoMatplotlib, InvalidResults, InvalidFigures."""
    drawn: list[Path] = []

    def told(name: str) -> None:
        progress.show(f"  drawing {name}")

    for source in sources:
        if source.is_dir():
            results, target = read(source), output or source
            drawn += plots.draw(results, target, told)
            progress.say(f"  report: {write_report(results, target)}")
        else:
            drawn += plots.draw_figures(files.read(source), output or source.parent, told)
    report.figures["plots"] = sum(path.suffix == ".png" for path in drawn)
    for folder in dict.fromkeys(path.parent for path in drawn):
        progress.say(f"  {sum(path.parent == folder for path in drawn)} files in {folder}")
