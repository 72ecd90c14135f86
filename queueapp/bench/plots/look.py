"""How everything that is drawn looks: each policy's colour, marker and line, and matplotlib's settings. Pure.

Colours are those of Okabe and Ito and of Tol's muted scheme: the colour-blind tell them apart. No two policies share a
marker either, so that a print in grey is read as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

INK = "#1A1A1A"
QUIET = "#595959"
"""Of what explains: subtitles, keys, notes. 7 : 1 on white."""
FAINT = "#D9D9D9"
WARNING = "#A11212"
HIGHLIGHT = "#009E73"
"""Ductor's own, among others."""


Line = Literal["-", "--", "-.", ":", "none"] | tuple[float, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Mark:
    """What stands for one policy, in every plot."""

    colour: str
    marker: str
    line: Line = "-"

    @property
    def ink(self) -> str:
        """The colour, as dark as words in it have to be on white."""
        colour = self.colour
        while contrast(colour) < LEGIBLE:
            colour = "#" + "".join(f"{int(0.9 * part):02X}" for part in _parts(colour))
        return colour


LEGIBLE = 4.5
"""What WCAG asks of small print."""


def contrast(colour: str) -> float:
    """Of `#RRGGBB` on white, as WCAG 2 defines it."""
    linear = [part / 3294.6 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in _parts(colour)]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def _parts(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


POLICIES: Mapping[str, Mark] = {
    "fifo": Mark("#3B3B3B", "o"),
    "priority": Mark("#D55E00", "^", "--"),
    "edf": Mark("#E69F00", "D", "-."),
    "wfq": Mark("#0072B2", "s"),
    "tiered": Mark("#009E73", "p"),
    "ring": Mark("#56B4E9", "v", (0, (5, 1.5))),
    "drr": Mark("#CC79A7", "P", (0, (3, 1, 1, 1))),
    "aging": Mark("#882255", "<", (0, (1, 1))),
    "lottery": Mark("#999933", "h", (0, (5, 1, 1, 1, 1, 1))),
    "small_first": Mark("#7F7F7F", "*", ":"),
}
OWN = Mark("#332288", "d", (0, (8, 2)))
"""Policies of somebody's own."""
NOBODY = Mark("#7F7F7F", "X", ":")
"""Dispatch `none`: no policy is asked."""

SETTINGS: Mapping[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Geneva", "Arial", "sans-serif"],
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,  # names are people's, and $ is no formula in them
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 6.0,
    "hatch.linewidth": 0.7,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "ductor",  # ids in the file are the same each time
    "svg.fonttype": "none",  # words stay words: they can be searched, read aloud, and differ line by line
}


def mark(policy: str) -> Mark:
    """A policy's variants (`edf_latest_start`, `tiered_sharded`) have its colour, with another marker and line."""
    if policy in POLICIES:
        return POLICIES[policy]
    base = next((known for name, known in POLICIES.items() if policy.startswith(f"{name}_")), OWN)
    return Mark(base.colour, OWN.marker, OWN.line)


def policy_order(policy: str) -> tuple[int, str]:
    """Sorts policies as they stand in every plot."""
    for place, name in enumerate(POLICIES):
        if policy == name or policy.startswith(f"{name}_"):
            return place, policy
    return len(POLICIES), policy
