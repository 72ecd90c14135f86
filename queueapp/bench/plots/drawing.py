"""Draws what results have something for, each plot as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from queueapp.bench.plots import batches, curves, dots, modes, others, outages, tenants, waits
from queueapp.bench.plots.files import Figures
from queueapp.bench.plots.series import Series
from queueapp.bench.plots.sheet import Sheet
from queueapp.bench.results.reading import RunResults

OF_RUNS: tuple[Callable[[Series], Iterator[Sheet]], ...] = (
    waits.plots,
    tenants.plots,
    dots.figures,
    curves.plots,
    modes.plots,
)
OF_FILES: dict[str, Callable[[Figures], Iterator[Sheet]]] = {
    "failover": outages.plots,
    "ceiling": batches.plots,
    "throughput": others.plots,
}
"""By the name of the experiment that wrote the file."""


def of_run(results: RunResults) -> Iterator[Sheet]:
    """The plots of a laboratory run, in the order of its report."""
    series = Series(results)
    for make in OF_RUNS:
        yield from make(series)


def of_file(figures: Figures) -> Iterator[Sheet]:
    """The plots of what `--json` wrote; none for an experiment that has nothing to draw."""
    if figures.bench in OF_FILES:
        yield from OF_FILES[figures.bench](figures)


def save(sheets: Iterable[Sheet], directory: Path, told: Callable[[str], None]) -> list[Path]:
    """Files of each sheet in `directory`, which is made; `told` hears the name of each before it is."""
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for sheet in sheets:
        told(sheet.name)
        written += sheet.save(directory)
    return written
