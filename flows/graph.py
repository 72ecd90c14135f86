"""The shape of a flow: an order in which its steps can run, what follows what, and where a drawing puts each. Pure.

A graph is a mapping of each step to those before it. The order of its keys is the order of declaration, which decides
wherever the graph leaves a choice, so that every answer is the same in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

Before = Mapping[str, Collection[str]]
"""Step → the steps before it."""
Member = str | tuple[str, str]
"""What has a place in a layer of a drawing: a step, or an edge that passes."""
SWEEPS = 2
"""How often the rows of a layer are sorted by those of its neighbours, there and back."""


class Cycle(Exception):
    """Steps that wait for each other. `path` begins and ends with the same step, each before the next."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(" → ".join(path))
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Where a step stands in a drawing: layers from left to right, rows from the top, both from 0."""

    step: str
    layer: int
    row: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """From a step to one after it, by the points (layer, row) where it passes the layers between."""

    first: str
    then: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A drawing as data: for SVG and for text."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    layers: int
    rows: int


def order(before: Before) -> tuple[str, ...]:
    """Every step after those before it, by declaration where there is a choice. Raises Cycle."""
    waits = {step: set(firsts) for step, firsts in before.items()}
    then = after(before)
    place = {step: index for index, step in enumerate(before)}
    ready = [step for step in before if not waits[step]]
    done: list[str] = []
    while ready:
        step = min(ready, key=place.__getitem__)
        ready.remove(step)
        done.append(step)
        for follower in then[step]:
            waits[follower].discard(step)
            if not waits[follower]:
                ready.append(follower)
    if len(done) < len(waits):
        raise Cycle(_cycle({step: firsts for step, firsts in waits.items() if firsts}, place))
    return tuple(done)


def after(before: Before) -> dict[str, tuple[str, ...]]:
    """Step → the steps right after it."""
    found: dict[str, list[str]] = {step: [] for step in before}
    for step, firsts in before.items():
        for first in firsts:
            found[first].append(step)
    return {step: tuple(dict.fromkeys(followers)) for step, followers in found.items()}


def downstream(before: Before, steps: Iterable[str]) -> frozenset[str]:
    """What comes after any of these, at any distance; without themselves unless one follows another."""
    then = after(before)
    found: set[str] = set()
    rest = [*steps]
    while rest:
        for follower in then[rest.pop()]:
            if follower not in found:
                found.add(follower)
                rest.append(follower)
    return frozenset(found)


def layers(before: Before) -> dict[str, int]:
    """Step → the length of the longest way to it: a step stands right of everything before it. Raises Cycle."""
    found: dict[str, int] = {}
    for step in order(before):
        found[step] = max((found[first] + 1 for first in before[step]), default=0)
    return found


def layout(before: Before) -> Layout:
    """Layers by the longest way; rows so that edges cross little: each layer is sorted by the mean row of its
    neighbours (Sugiyama's barycentre), and an edge takes a place in each layer that it passes. Raises Cycle."""
    depth = layers(before)
    count = max(depth.values(), default=-1) + 1
    columns: list[list[Member]] = [[] for _ in range(count)]
    for step in before:
        columns[depth[step]].append(step)
    edges = [(first, step) for step, firsts in before.items() for first in dict.fromkeys(firsts)]
    links: list[tuple[int, Member, Member]] = []
    for first, step in edges:
        at: Member = first
        for layer in range(depth[first] + 1, depth[step]):
            columns[layer].append((first, step))
            links.append((layer - 1, at, (first, step)))
            at = (first, step)
        links.append((depth[step] - 1, at, step))
    _sort(columns, links)
    rows = max(map(len, columns), default=0)
    places = [{member: index + (rows - len(column)) / 2 for index, member in enumerate(column)} for column in columns]
    return Layout(
        nodes=tuple(Node(step=step, layer=depth[step], row=places[depth[step]][step]) for step in before),
        edges=tuple(
            Edge(
                first=first,
                then=step,
                points=tuple((layer, places[layer][first, step]) for layer in range(depth[first] + 1, depth[step])),
            )
            for first, step in edges
        ),
        layers=count,
        rows=rows,
    )


def _sort(columns: list[list[Member]], links: list[tuple[int, Member, Member]]) -> None:
    left: list[dict[Member, list[Member]]] = [{} for _ in columns]
    right: list[dict[Member, list[Member]]] = [{} for _ in columns]
    for layer, first, then in links:
        right[layer].setdefault(first, []).append(then)
        left[layer + 1].setdefault(then, []).append(first)
    for _ in range(SWEEPS):
        for layer in range(1, len(columns)):
            _sort_column(columns[layer], columns[layer - 1], left[layer])
        for layer in range(len(columns) - 2, -1, -1):
            _sort_column(columns[layer], columns[layer + 1], right[layer])


def _sort_column(column: list[Member], beside: list[Member], neighbours: Mapping[Member, list[Member]]) -> None:
    row = {member: index for index, member in enumerate(beside)}
    own = {member: index for index, member in enumerate(column)}

    def mean(member: Member) -> float:
        found = neighbours.get(member)
        return sum(row[other] for other in found) / len(found) if found else float(own[member])

    column.sort(key=mean)


def _cycle(waits: Mapping[str, Collection[str]], place: Mapping[str, int]) -> tuple[str, ...]:
    """A cycle among steps of which each still waits for one that does: backwards until one comes twice."""
    step = min(waits, key=place.__getitem__)
    walked: list[str] = []
    while step not in walked:
        walked.append(step)
        step = min((first for first in waits[step] if first in waits), key=place.__getitem__)
    return (step, *reversed(walked[walked.index(step) :]))
