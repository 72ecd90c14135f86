"""Values of a run and conditions on them: what they come to, and how they are shown."""

from __future__ import annotations

from typing import Any

import pytest

from flows.declaring import MapOutput, Output
from flows.errors import FlowInvalid, InvalidValue
from flows.values import Absent, Json, Value, either, evaluate, references, to_expression

checked = Output("checked")
chunks = MapOutput("chunks")
skipped = Output("skipped")
upload = Value(["ref", "", "input", ["upload"]])
LEFT: dict[tuple[str, str], Json] = {
    ("checked", "output"): {"rows": 3, "names": ["a", "b"], "none": None},
    ("checked", "error"): None,
    ("chunks", "results"): [1, 2],
    ("chunks", "counts"): {"total": 2},
    ("", "input"): {"upload": {"id": 7}},
}


def lookup(step: str, part: str) -> Json:
    if (step, part) not in LEFT:
        raise Absent(step)
    return LEFT[step, part]


CASES: list[tuple[Any, Json, str]] = [
    (checked["rows"], 3, "checked['rows']"),
    (checked["names"][1], "b", "checked['names'][1]"),
    (checked["names"][-1], "b", "checked['names'][-1]"),
    (checked.error, None, "checked.error"),
    (chunks, [1, 2], "chunks.results"),
    (chunks.counts["total"], 2, "chunks.counts['total']"),
    (upload["id"], 7, "upload['id']"),
    (checked["rows"] == 3, True, "checked['rows'] == 3"),
    (checked["rows"] != 3, False, "checked['rows'] != 3"),
    (checked["rows"] < 3, False, "checked['rows'] < 3"),
    (checked["rows"] <= 3, True, "checked['rows'] <= 3"),
    (checked["rows"] > 2, True, "checked['rows'] > 2"),
    (checked["rows"] >= upload["id"], False, "checked['rows'] >= upload['id']"),
    (checked["none"] | checked["rows"], True, "(checked['none'] or checked['rows'])"),
    (checked["rows"] & checked["none"], False, "(checked['rows'] and checked['none'])"),
    (~checked["none"], True, "not checked['none']"),
    (either(skipped, checked["rows"]), 3, "either(skipped, checked['rows'])"),
    (either(checked["rows"], skipped), 3, "either(checked['rows'], skipped)"),
    (either(skipped["x"], 5), 5, "either(skipped['x'], 5)"),
    ([checked["rows"], 1], [3, 1], "[checked['rows'], 1]"),
    (
        {"a": {"b": checked["rows"]}, "c": (1, 2)},
        {"a": {"b": 3}, "c": [1, 2]},
        "{'a': {'b': checked['rows']}, 'c': [1, 2]}",
    ),
]


@pytest.mark.parametrize(("value", "comes_to", "shown"), CASES)
def test_what_a_value_comes_to_and_how_it_is_shown(value: Any, comes_to: Json, shown: str) -> None:
    expression = to_expression(value, "here")
    assert evaluate(expression, lookup) == comes_to
    assert repr(Value(expression)) == f"<{shown}>"


def test_what_an_expression_takes() -> None:
    value = {"a": [either(skipped, checked["rows"])], "b": ~(chunks.counts["total"] > upload["id"])}
    assert list(references(to_expression(value, "here"))) == [
        ("skipped", "output"),
        ("checked", "output"),
        ("chunks", "counts"),
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            checked["lines"],
            r"checked\['lines'\] is not there: checked gave a dictionary with the keys names, none, rows",
        ),
        (checked["names"][2], r"checked\['names'\]\[2\] is not there: checked gave a list of 2"),
        (checked["names"]["a"], r"checked\['names'\]\['a'\] is not there: checked gave a list of 2"),
        (checked[0], r"checked\[0\] is not there: checked gave a dictionary"),
        (upload["id"]["x"], r"upload\['id'\]\['x'\] is not there: the input gave a value of the type int"),
        (checked["rows"] < "a", r"checked\['rows'\] < 'a' cannot be told: it compares int and str"),
    ],
)
def test_a_part_that_is_not_there_is_named(value: Value, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        evaluate(value.expression, lookup)


def test_a_step_that_left_nothing() -> None:
    for value in (skipped["x"], either(skipped, skipped["y"]), skipped["x"] == 1, chunks.error):
        with pytest.raises(Absent, match=r"skipped|chunks"):
            evaluate(value.expression, lookup)


def test_an_expression_of_a_later_release_is_refused() -> None:
    assert repr(Value(["plus", 1, 2])) == "<['plus', 1, 2]>"
    with pytest.raises(InvalidValue, match="is no expression that this version of Ductor can read"):
        evaluate(["plus", 1, 2], lookup)


def test_what_nests_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(FlowInvalid, match=r"here\[0\]\[0\].*must be JSON"):
        to_expression(endless, "here")
