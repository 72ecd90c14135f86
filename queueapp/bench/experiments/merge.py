"""`bench merge`: several runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from queueapp.bench.harness import Progress, Report
from queueapp.bench.results.merging import merge
from queueapp.bench.results.reading import read
from queueapp.bench.results.writing import default_directory


def run(
    report: Report, progress: Progress, directories: Sequence[Path], output: Path | None, *, allow_revisions: bool
) -> None:
    """Figures: what is in the merged run."""
    for directory in directories:
        if not read(directory).finished:
            progress.say(f"  {directory} was broken off: the cells that it had are taken")
    found = merge(
        directories,
        output or default_directory("merge"),
        allow_revisions=allow_revisions,
        told=lambda text: progress.show(f"  {text}"),
    )
    states = [cell.state for cell in found.cells]
    report.figures |= {
        "runs": len(found.runs),
        "cells": len(found.cells),
        "seeds": len({cell.setting.seed for cell in found.cells}),
        "timed_out": states.count("timed_out"),
        "unfinished": sum(cell.unfinished for cell in found.cells),
    }
    progress.say(f"  {len(found.cells)} cells of {len(found.runs)} runs are in {found.directory}")
    progress.say(f"  bench plot {found.directory} draws them")
