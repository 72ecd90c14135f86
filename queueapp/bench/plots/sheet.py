"""A sheet: one figure with its title, what it was measured under, its keys, and a grid of panels; and its two files."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from queueapp.bench.plots.look import INK, QUIET, SETTINGS

WIDE = 10.0
"""Inches."""
DPI = 150
LINE = 0.19
"""Height of a line of small print, in inches."""
INCH_CHARACTERS = 15.5
"""Characters of small print in an inch."""
NO_DATE = {"Date": None, "Creator": None, "Format": None, "Type": None}
"""Files that are drawn again from the same results are the same to the byte."""


@contextmanager
def looking() -> Iterator[None]:
    """Our look for what is drawn or written inside, whatever the host has set; afterwards the host's again."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


@dataclass(slots=True)
class Sheet:
    """One plot in the making. `told` is its text alternative, line by line."""

    name: str
    """Of its files."""
    title: str
    """What is measured, and its unit."""
    figure: Figure
    axes: list[list[Axes]]
    """Rows of panels."""
    told: list[str] = field(default_factory=list)

    @property
    def panels(self) -> list[Axes]:
        return [axes for row in self.axes for axes in row]

    def panel(self, number: int, title: str) -> Axes:
        """The panel of this number, row by row, from 0."""
        axes = self.panels[number]
        axes.set_title(title)
        return axes

    def hide_from(self, number: int) -> None:
        """Takes away the panels that nothing was drawn in."""
        for axes in self.panels[number:]:
            axes.set_axis_off()

    @property
    def description(self) -> str:
        return "\n".join(self.told)

    def save(self, directory: Path) -> list[Path]:
        """PNG and SVG. The SVG begins with the title and the text alternative."""
        self._settle()
        png, svg = directory / f"{self.name}.png", directory / f"{self.name}.svg"
        self.figure.savefig(png, dpi=DPI, metadata={"Software": None})
        drawn = io.StringIO()
        self.figure.savefig(drawn, format="svg", metadata=NO_DATE)
        svg.write_text(_described(drawn.getvalue(), self.name, self.title, self.description), encoding="utf-8")
        return [png, svg]

    def _settle(self) -> None:
        """Lays it out, once for both files. The last bits of what the solver finds differ from run to run."""
        FigureCanvasAgg(self.figure)
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")
        for axes in self.panels:
            left, bottom, width, height = (round(float(part), 5) for part in axes.get_position().bounds)
            axes.set_position((left, bottom, width, height))


def sheet(
    name: str,
    title: str,
    conditions: str,
    *,
    rows: int,
    columns: int,
    height: float,
    keys: Sequence[Artist] = (),
    notes: Sequence[str] = (),
    width: float = WIDE,
) -> Sheet:
    """An empty sheet. `height` is that of a row of panels, in inches; notes stand at the foot."""
    above = textwrap.wrap(conditions, int(width * INCH_CHARACTERS))
    below = [line for note in notes for line in textwrap.wrap(note, int(width * INCH_CHARACTERS))]
    key_rows = -(-len(keys) // KEYS_IN_A_ROW)
    head = 0.42 + LINE * len(above) + 0.24 * key_rows + 0.06
    foot = LINE * len(below) + (0.12 if below else 0.0)
    tall = head + rows * height + foot
    rect = (0.01, foot / tall, 0.98, (tall - head - foot) / tall)
    figure = Figure(
        figsize=(width, tall),
        layout=ConstrainedLayoutEngine(rect=rect, h_pad=0.06, w_pad=0.08, hspace=0.02, wspace=0.02),
    )
    left = 0.12 / width
    figure.text(left, 1 - 0.12 / tall, title, va="top", fontsize=13, fontweight="bold", color=INK)
    figure.text(left, 1 - 0.42 / tall, "\n".join(above), va="top", fontsize=8.5, color=QUIET, linespacing=1.35)
    if below:
        figure.text(left, 0.08 / tall, "\n".join(below), va="bottom", fontsize=8, color=QUIET, linespacing=1.35)
    if keys:
        figure.legend(
            handles=list(keys),
            loc="upper left",
            bbox_to_anchor=(left, 1 - (0.42 + LINE * len(above)) / tall),
            ncols=min(len(keys), KEYS_IN_A_ROW),
            frameon=False,
            fontsize=8.5,
            borderaxespad=0,
            handletextpad=0.5,
            columnspacing=1.6,
        )
    grid = figure.subplots(rows, columns, squeeze=False)
    return Sheet(
        name=name, title=title, figure=figure, axes=[list(row) for row in grid], told=[f"{title}.", conditions]
    )


KEYS_IN_A_ROW = 6


def _described(svg: str, name: str, title: str, description: str) -> str:
    """`svg` with what it shows in words, for those who cannot see it."""
    start = svg.index("<svg ")
    end = svg.index(">", start) + 1
    opening = svg[start : end - 1] + f' role="img" aria-labelledby="{name}-title {name}-words">'
    words = (
        f'\n <title id="{name}-title">{escape(title)}</title>\n <desc id="{name}-words">{escape(description)}</desc>'
    )
    return svg[:start] + opening + words + svg[end:]
