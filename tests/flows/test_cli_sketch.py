"""Graphs in plain characters: every edge is there, none that is not, whatever the graph."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows import graph
from flows.cli.sketch import sketch


def text(before: Mapping[str, tuple[str, ...]]) -> list[str]:
    width = max(len(row.drawn) for row in sketch(before))
    return [f"{row.drawn.ljust(width)} {row.step}".rstrip() for row in sketch(before)]


def test_a_branch_that_joins() -> None:
    before = {"read": (), "validate": ("read",), "count": ("read",), "report": ("validate", "count")}
    assert text(before) == ["o   read", "+-.", "o | validate", "| |", "| o count", "+-'", "o   report"]


def test_what_crosses_is_not_touched() -> None:
    before = {"a": (), "b": ("a",), "c": ("a",), "d": ("a",), "e": ("b", "d"), "f": ("c",)}
    assert text(before) == [
        "o     a",
        "+-.-.",
        "o | | b",
        "| | |",
        "| o | c",
        "| | |",
        "| | o d",
        "+-|-'",
        "o |   e",
        "  |",
        "  o   f",
    ]


def test_steps_that_have_nothing_to_do_with_each_other() -> None:
    assert text({"a": (), "b": ()}) == ["o a", "", "o b"]


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    names = [f"s{number}" for number in range(draw(st.integers(1, 12)))]
    return {
        name: tuple(draw(st.lists(st.sampled_from(names[:place]), unique=True, max_size=4))) if place else ()
        for place, name in enumerate(names)
    }


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_read_back_it_is_the_graph(before: dict[str, tuple[str, ...]]) -> None:
    rows = [*sketch(before)]
    assert [row.step for row in rows if row.step] == list(graph.order(before))
    assert read_back([(row.drawn, row.step) for row in rows]) == {
        (first, step) for step, firsts in before.items() for first in firsts
    }


def read_back(rows: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """The edges as somebody reads them: what comes down a column was joined to it, or begun, above."""
    edges: set[tuple[str, str]] = set()
    columns: dict[int, set[str]] = {}
    """Column → the steps from which one gets there."""
    for drawn, step in rows:
        if step:
            at = drawn.index("o")
            edges |= {(first, step) for first in columns.pop(at, set())}
            assert {place for place, sign in enumerate(drawn) if sign == "|"} == set(columns)
            last, last_at = step, at
            continue
        signs = {place: sign for place, sign in enumerate(drawn) if sign not in " -"}
        if signs.get(last_at) not in ("+", "'"):
            if signs.get(last_at) == "|":
                columns[last_at] = {last}
        else:
            for place in _reached(drawn, last_at):
                if drawn[place] in "+." and (place != last_at or drawn[place] == "+"):
                    columns.setdefault(place, set()).add(last)
        assert {place for place, sign in signs.items() if sign != "'"} == set(columns)
    return edges


def _reached(drawn: str, at: int) -> list[int]:
    """The columns along the line of dashes through `at`, without those that only cross it."""
    low, high = at, at
    while low >= 2 and drawn[low - 1] == "-":
        low -= 2
    while high + 2 <= len(drawn) and high + 1 < len(drawn) and drawn[high + 1] == "-":
        high += 2
    return [place for place in range(low, high + 1, 2) if drawn[place] in "+.'"]
