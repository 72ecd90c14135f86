"""Order, layers and places in a drawing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.graph import Cycle, after, downstream, layers, layout, order

DIAMOND = {"load": (), "b": ("load",), "a": ("load",), "join": ("a", "b"), "audit": ("load",), "end": ("join", "load")}


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    names = [f"s{number}" for number in draw(st.permutations(range(draw(st.integers(1, 9)))))]
    before: dict[str, tuple[str, ...]] = {}
    for index, name in enumerate(names):
        before[name] = tuple(draw(st.lists(st.sampled_from(names[:index]), unique=True))) if index else ()
    return {name: before[name] for name in sorted(before)}


@given(before=graphs())
@settings(deadline=None)
def test_every_step_comes_after_those_before_it(before: dict[str, tuple[str, ...]]) -> None:
    place = {step: index for index, step in enumerate(order(before))}
    depth = layers(before)
    assert place.keys() == before.keys()
    for step, firsts in before.items():
        assert all(place[first] < place[step] and depth[first] < depth[step] for first in firsts)
        assert not firsts or depth[step] == max(depth[first] for first in firsts) + 1


@given(before=graphs())
@settings(deadline=None)
def test_a_cycle_is_named_by_its_path(before: dict[str, tuple[str, ...]]) -> None:
    first, *_, last = order(before)[:1] + order(before)
    chain = {**before, first: (*before[first], last), last: tuple({*before[last], first})}
    with pytest.raises(Cycle) as caught:
        order(chain)
    path = caught.value.path
    assert path[0] == path[-1]
    assert len(set(path)) == len(path) - 1
    assert all(one in chain[then] for one, then in pairwise(path))


@given(before=graphs())
@settings(deadline=None)
def test_a_drawing_has_room_for_every_step_and_every_edge(before: dict[str, tuple[str, ...]]) -> None:
    drawn = layout(before)
    taken = [(node.layer, node.row) for node in drawn.nodes]
    for edge in drawn.edges:
        ends = {node.step: node.layer for node in drawn.nodes}
        assert [layer for layer, _ in edge.points] == list(range(ends[edge.first] + 1, ends[edge.then]))
        taken += edge.points
    assert len(taken) == len(set(taken))
    assert all(0 <= row <= drawn.rows - 1 and 0 <= layer < drawn.layers for layer, row in taken)
    assert {(edge.first, edge.then) for edge in drawn.edges} == {
        (first, step) for step, firsts in before.items() for first in firsts
    }


def test_a_drawing_does_not_cross_what_need_not_cross() -> None:
    drawn = layout({"x": (), "y": (), "of_y": ("y",), "of_x": ("x",)})
    row = {node.step: node.row for node in drawn.nodes}
    assert (row["x"] < row["y"]) == (row["of_x"] < row["of_y"])


def test_a_diamond() -> None:
    assert order(DIAMOND) == ("load", "b", "a", "join", "audit", "end")
    assert layers(DIAMOND) == {"load": 0, "b": 1, "a": 1, "audit": 1, "join": 2, "end": 3}
    assert after(DIAMOND)["load"] == ("b", "a", "audit", "end")
    assert downstream(DIAMOND, ["a"]) == {"join", "end"}
    assert (layout(DIAMOND).layers, layout(DIAMOND).rows) == (4, 4)
    assert layout({}).nodes == ()
