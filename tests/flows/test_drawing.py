"""Where a drawing puts steps and lines: nothing lies on anything else, and longer ways lie further down."""

from __future__ import annotations

import re

from hypothesis import given, settings

from flows import graph
from flows.definition import Definition, StepDefinition
from flows.drawing import DROP, HEIGHT, PLACES_MOST, WIDTH, can_be_drawn, draw
from tests.flows.dags import Plan, plans

POINTS = 12
"""Of each part of a line that are looked at."""


def flow_of(before: dict[str, tuple[str, ...]]) -> Definition:
    steps = tuple(StepDefinition(name=name, kind="task", target="t", after=after) for name, after in before.items())
    return Definition(name="f", parameters=(), defaults={}, steps=steps, result=["value", None])


def points(path: str) -> list[tuple[float, float]]:
    """Where a line is: ends, and points on the way."""
    found: list[tuple[float, float]] = []
    for sign, numbers in re.findall(r"([MCV])([-\d. ]+)", path):
        values = [float(number) for number in numbers.split()]
        if sign == "M":
            found.append((values[0], values[1]))
            continue
        x, y = found[-1]
        ends = [x, y, *values] if sign == "C" else [x, y, x, y, x, values[0], x, values[0]]
        for part in range(1, POINTS + 1):
            t = part / POINTS
            weights = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3
            along = [sum(weight * end for weight, end in zip(weights, ends[axis::2], strict=True)) for axis in (0, 1)]
            found.append((along[0], along[1]))
    return found


@given(plan=plans())
@settings(deadline=None)
def test_no_box_lies_on_another_and_no_line_crosses_one(plan: Plan) -> None:
    drawn = draw(plan.definition)
    depths = graph.layers(plan.definition.before)
    assert {box.step for box in drawn.boxes} == set(plan.definition.by_name)
    for box in drawn.boxes:
        assert (box.y - drawn.boxes[0].y) % (HEIGHT + DROP) == 0
        assert 0 <= box.x <= drawn.width - WIDTH
        assert 0 <= box.y <= drawn.height - HEIGHT
        for other in drawn.boxes:
            apart = abs(box.x - other.x) >= WIDTH or abs(box.y - other.y) >= HEIGHT
            assert apart or box is other
            assert (depths[box.step] < depths[other.step]) == (box.y < other.y)
    at = {box.step: box for box in drawn.boxes}
    assert {(line.first, line.then) for line in drawn.lines} == {
        (first, step) for step, firsts in plan.definition.before.items() for first in firsts
    }
    for line in drawn.lines:
        passed = points(line.path)
        assert abs(passed[0][0] - at[line.first].x - WIDTH / 2) <= 1
        assert passed[0][1] == at[line.first].y + HEIGHT
        assert abs(passed[-1][0] - at[line.then].x - WIDTH / 2) <= 1
        assert passed[-1][1] == at[line.then].y
        for x, y in passed[1:-1]:
            assert not any(box.x < x < box.x + WIDTH and box.y < y < box.y + HEIGHT for box in drawn.boxes)


def test_the_longest_way_decides_how_far_down_a_step_stands() -> None:
    drawn = draw(flow_of({"a": (), "b": ("a",), "c": ("b",), "end": ("a", "c"), "alone": ()}))
    y = {box.step: box.y for box in drawn.boxes}
    assert y["a"] == y["alone"] < y["b"] < y["c"] < y["end"]


def test_what_would_be_black_with_lines_is_not_drawn() -> None:
    names = [f"s{number}" for number in range(60)]
    dense = {name: tuple(names[:place]) for place, name in enumerate(names)}
    assert sum(place - other for place in range(60) for other in range(place)) > PLACES_MOST
    assert not can_be_drawn(flow_of(dense))
    assert can_be_drawn(flow_of({name: tuple(names[max(0, place - 1) : place]) for place, name in enumerate(names)}))
