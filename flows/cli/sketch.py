"""A graph of steps in plain characters, from the top down: a row for each step, beside it whatever passes. Pure.

    o    read_file
    +-.
    o |  validate
    | |
    | o  count
    +-'
    o    report

An edge begins at `.`, ends at `'` and goes on at `+`; a `|` within dashes has nothing to do with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from flows import graph

NODE = "o"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the drawing; `step` is the one that it shows, "" where there are only edges."""

    drawn: str
    step: str = ""


def sketch(before: graph.Before, mark: Callable[[str], str] = lambda step: NODE) -> Iterator[Row]:
    """Each step after those before it. `mark` gives the one character that stands for a step. Raises Cycle.

    Edges to one step share a column from the first of them on, so that there are as many columns as steps that are
    waited for at once.
    """
    then = graph.after(before)
    columns: list[str] = []
    """The step that each leads to, "" = free."""
    order = graph.order(before)
    for step in order:
        at = columns.index(step) if step in columns else _free(columns, 0)
        columns[at] = step
        signs = ["|" if target else " " for target in columns]
        signs[at] = mark(step)
        yield Row(drawn=" ".join(signs).rstrip(), step=step)
        columns[at] = ""
        before_it = set(filter(None, columns))
        ends = [_lead(columns, at, target) for target in then[step]]
        if step != order[-1]:
            yield Row(drawn=_edges(columns, at, ends, before_it))


def _lead(columns: list[str], at: int, target: str) -> int:
    """The column that leads to `target`, from now on if there was none; straight on from `at` where that is free."""
    if target in columns:
        return columns.index(target)
    place = at if not columns[at] else _free(columns, at)
    columns[place] = target
    return place


def _free(columns: list[str], right_of: int) -> int:
    for place, target in enumerate(columns):
        if not target and place >= right_of:
            return place
    if "" in columns:
        return columns.index("")
    columns.append("")
    return len(columns) - 1


def _edges(columns: list[str], at: int, ends: list[int], before_it: set[str]) -> str:
    """The row beneath a step in the column `at`, from where edges go to the columns `ends`."""
    signs = ["|" if target else " " for target in columns]
    low, high = min([at, *ends]), max([at, *ends])
    if low == high:
        return " ".join(signs).rstrip()
    for place in range(low, high + 1):
        if place == at:
            signs[place] = "+" if columns[place] else "'"
        elif place in ends:
            signs[place] = "+" if columns[place] in before_it else "."
        elif not columns[place]:
            signs[place] = "-"
    left, middle, right = signs[:low], signs[low : high + 1], signs[high + 1 :]
    return " ".join([*left, "-".join(middle), *right]).rstrip()
