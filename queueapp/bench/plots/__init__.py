"""Pictures of results, and one page that shows them all.

Drawing needs matplotlib, which the extra `bench` brings; importing this package does not, and neither does the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from queueapp.bench.plots.files import Figures, InvalidFigures
from queueapp.bench.results.reading import RunResults
from queueapp.errors import DuctorError

PLOTS = "plots"
"""Directory of the plots, in that of a run."""
OF_RUNS = (
    "latency_percentiles",
    "tail_ratio",
    "tenant_skew",
    "priority_starvation",
    "starvation",
    "deadline_misses",
    "jain",
    "throughput",
    "utilisation",
    "load_curves",
    "dispatch_modes",
)
"""Plots of a laboratory run, in the order in which they are read."""
OF_FILES = ("failover_outages", "ceiling", "peers_aof_on", "peers_aof_off")
"""Those of what `--json` wrote."""
Told = Callable[[str], None]


class NoMatplotlib(DuctorError):
    """Plots are drawn by matplotlib, which is not installed: pip install "django-ductor[bench]"."""

    code = "no_matplotlib"


def installed() -> bool:
    """Whether plots can be drawn here."""
    return find_spec("matplotlib") is not None


def draw(results: RunResults, directory: Path, told: Told) -> list[Path]:
    """Every plot that a run's results have something for, as PNG and SVG in `directory`/plots; the files, in order.

    `told` hears the name of each plot before it is drawn. What an earlier call has drawn goes. Raises NoMatplotlib.
    """
    with _drawing() as drawing:
        for name in OF_RUNS:
            for kind in ("png", "svg"):
                (directory / PLOTS / f"{name}.{kind}").unlink(missing_ok=True)
        found: list[Path] = drawing.save(drawing.of_run(results), directory / PLOTS, told)
        return found


def draw_figures(figures: Figures, directory: Path, told: Told) -> list[Path]:
    """The same of what `--json` wrote. Raises InvalidFigures where it has nothing to draw."""
    with _drawing() as drawing:
        sheets = list(drawing.of_file(figures))
        if not sheets:
            raise InvalidFigures(
                f"bench is {figures.bench!r}, with {len(figures.rows)} rows: there is nothing to draw; give a file of "
                "failover, ceiling or throughput --peers, or the directory of a run."
            )
        found: list[Path] = drawing.save(sheets, directory / PLOTS, told)
        return found


@contextmanager
def _drawing() -> Iterator[ModuleType]:
    """The module that draws, with our look."""
    if not installed():
        raise NoMatplotlib
    from queueapp.bench.plots import drawing, sheet

    with sheet.looking():
        yield drawing
