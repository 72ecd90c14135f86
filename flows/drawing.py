"""Where a drawing of a flow puts its steps and the lines between them, for an SVG. Pure.

Steps stand in layers from the top, each as far down as the longest way to it; a line that passes a layer has a place
in it, so that it crosses no box. Lengths are the units of an SVG, pixels where nothing scales it.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows import graph
from flows.definition import Definition

WIDTH, HEIGHT = 200, 62
"""Of a box."""
GAP, DROP = 26, 34
"""Between the members of a layer, and between layers."""
PASSAGE = 10
"""As wide as this is a line that passes a layer."""
MARGIN = 6
PLACES_MOST = 4_000
"""Of steps, and of lines in the layers that they pass: a drawing of more would be black, and take seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step, by its upper left corner."""

    step: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """From the foot of a step to the head of one after it. `path` is that of an SVG."""

    first: str
    then: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A flow as boxes and lines."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: int
    height: int


def can_be_drawn(definition: Definition) -> bool:
    """Whether a drawing of it has at most `PLACES_MOST` places."""
    depth = graph.layers(definition.before)
    spans = (depth[step] - depth[first] for step, firsts in definition.before.items() for first in firsts)
    return len(depth) + sum(spans) <= PLACES_MOST


def draw(definition: Definition) -> Drawing:
    """The drawing; see `can_be_drawn`."""
    columns = _members(definition)
    widest = max(map(_breadth, columns))
    place: dict[tuple[int, graph.Member], float] = {}
    """(layer, member) → the middle of it."""
    for depth, column in enumerate(columns):
        x = MARGIN + (widest - _breadth(column)) / 2
        for member in column:
            place[depth, member] = x + _width(member) / 2
            x += _width(member) + GAP
    depths = graph.layers(definition.before)
    lines = [
        Line(first=first, then=step, path=_path(first, step, depths, place))
        for step, firsts in definition.before.items()
        for first in firsts
    ]
    boxes = [Box(step=step, x=round(place[depth, step] - WIDTH / 2), y=_top(depth)) for step, depth in depths.items()]
    return Drawing(
        boxes=tuple(boxes),
        lines=tuple(lines),
        width=round(widest) + 2 * MARGIN,
        height=_top(len(columns) - 1) + HEIGHT + MARGIN,
    )


def _members(definition: Definition) -> list[list[graph.Member]]:
    """Of each layer, from left to right: its steps, and the lines that pass it."""
    laid = graph.layout(definition.before)
    found: list[list[tuple[float, graph.Member]]] = [[] for _ in range(laid.layers)]
    for node in laid.nodes:
        found[node.layer].append((node.row, node.step))
    for edge in laid.edges:
        for layer, row in edge.points:
            found[layer].append((row, (edge.first, edge.then)))
    return [[member for _, member in sorted(layer, key=lambda each: each[0])] for layer in found]


def _width(member: graph.Member) -> int:
    return WIDTH if isinstance(member, str) else PASSAGE


def _breadth(column: list[graph.Member]) -> int:
    return sum(map(_width, column)) + GAP * (len(column) - 1)


def _top(depth: int) -> int:
    return MARGIN + depth * (HEIGHT + DROP)


def _path(first: str, step: str, depths: dict[str, int], place: dict[tuple[int, graph.Member], float]) -> str:
    """Down from layer to layer, straight where it passes one."""
    x, y = place[depths[first], first], _top(depths[first]) + HEIGHT
    path = f"M{x:.0f} {y}"
    for depth in range(depths[first] + 1, depths[step] + 1):
        passes = depth < depths[step]
        to_x, to_y = place[depth, (first, step) if passes else step], _top(depth)
        bend = (y + to_y) // 2
        path += f"C{x:.0f} {bend} {to_x:.0f} {bend} {to_x:.0f} {to_y}"
        if passes:
            to_y += HEIGHT
            path += f"V{to_y}"
        x, y = to_x, to_y
    return path
