"""Arguments and results as JSON: what passes unchanged, what is refused and by which path."""

from __future__ import annotations

import enum
import math
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.codec import (
    INTEGER_MAX,
    INTEGER_MIN,
    MAX_DEPTH,
    decode_arguments,
    decode_result,
    digest,
    encode_arguments,
    encode_result,
    fingerprint,
)
from queueapp.errors import ResultTooLarge, UnserialisableArgument

text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner) | st.dictionaries(text, inner),
    max_leaves=20,
)


def same(left: Any, right: Any) -> bool:
    """Equality that tells 1 from 1.0 and from True, 0.0 from -0.0, and one order of keys from another."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


@given(args=st.lists(values), kwargs=st.dictionaries(text, values), options=st.dictionaries(text, values))
def test_arguments_come_back_as_they_were(args: list[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> None:
    assert same(list(decode_arguments(encode_arguments(args, kwargs, options))), [args, kwargs, options])


@given(value=values)
def test_results_come_back_as_they_were(value: Any) -> None:
    assert same(decode_result(encode_result(value)), value)


def test_no_arguments_cost_two_bytes() -> None:
    assert encode_arguments((), {}) == b"{}"
    assert encode_result(None) is None


def test_what_django_normalises_is_normalised() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Number(enum.IntEnum):
        ONE = 1

    encoded = encode_arguments(((1, (2,)), b"caf\xc3\xa9", range(2), Colour.RED, Number.ONE), {})

    assert decode_arguments(encoded)[0] == [[1, [2]], "café", [0, 1], "red", 1]


@pytest.mark.parametrize(
    ("value", "path", "remedy"),
    [
        ({1: "a"}, "args[0]", "not text"),
        ({b"k": "a"}, "args[0]", "not text"),
        ({"a": [0, {"b": math.nan}]}, "args[0]['a'][1]['b']", "nan"),
        ([math.inf], "args[0][0]", "inf"),
        (INTEGER_MAX + 1, "args[0]", "64 bits"),
        (INTEGER_MIN - 1, "args[0]", "64 bits"),
        (b"\xff", "args[0]", "base64"),
        (bytearray(b"a"), "args[0]", "bytearray"),
        ("\ud800", "args[0]", "surrogate"),
        ({"\ud800": 1}, "args[0]", "surrogate"),
        (datetime(2026, 1, 1, tzinfo=UTC), "args[0]", "isoformat()"),
        (date(2026, 1, 1), "args[0]", "isoformat()"),
        ({1, 2}, "args[0]", "sorted list"),
        (uuid4(), "args[0]", "str(value)"),
        (Decimal(1), "args[0]", "str(value)"),
        (object(), "args[0]", "object"),
    ],
)
def test_what_would_change_is_refused_with_its_path(value: object, path: str, remedy: str) -> None:
    with pytest.raises(UnserialisableArgument) as caught:
        encode_arguments([value], {})

    assert str(caught.value).startswith(f"{path}: ")
    assert remedy in str(caught.value)


def test_the_path_of_a_keyword_argument() -> None:
    with pytest.raises(UnserialisableArgument, match=r"^kwargs\['when'\]\[1\]: "):
        encode_arguments([], {"when": [1, {2}]})


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)

    with pytest.raises(UnserialisableArgument, match="containing itself"):
        encode_arguments([value], {})


def test_the_deepest_value_that_passes() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 2):
        value = [value]

    assert decode_arguments(encode_arguments([value], {}))[0] == [value]
    with pytest.raises(UnserialisableArgument, match="nested deeper"):
        encode_arguments([[value]], {})


def test_a_large_result_is_refused_with_its_size() -> None:
    assert encode_result("x" * 98, max_bytes=100) == b'"' + b"x" * 98 + b'"'
    with pytest.raises(ResultTooLarge, match=r"101 bytes.*MAX_RESULT_BYTES allows 100"):
        encode_result("x" * 99, max_bytes=100)


def test_fingerprints_tell_tasks_and_arguments_apart() -> None:
    one = encode_arguments([1], {})

    assert fingerprint("a.b", one) == fingerprint("a.b", one)
    assert len({fingerprint("a.b", one), fingerprint("a.c", one), fingerprint("a.b", encode_arguments([2], {}))}) == 3
    assert len(fingerprint("a.b", one)) == 16


def test_a_canonical_fingerprint_knows_no_order_and_no_options() -> None:
    left = encode_arguments([], {"a": 1, "b": {"c": 1, "d": 2}}, {"backoff": {"delay": 1}})
    right = encode_arguments([], {"b": {"d": 2, "c": 1}, "a": 1})

    assert fingerprint("t", left) != fingerprint("t", right)
    assert fingerprint("t", left, canonical=True) == fingerprint("t", right, canonical=True)
    assert fingerprint("t", left, canonical=True) != fingerprint("t", encode_arguments([], {"a": 1}), canonical=True)


@given(key=text)
def test_a_digest_has_22_characters(key: str) -> None:
    assert len(digest(key)) == 22
    assert digest(key) != digest(key + "x")


def test_a_long_key_costs_no_more_than_a_short_one_and_fills_no_message() -> None:
    """Every value below it has a path of its own: with the key whole, this takes ten seconds."""
    began = time.process_time()
    with pytest.raises(UnserialisableArgument) as caught:
        encode_arguments([{"k" * 500_000: [*range(250_000), math.nan]}], {})

    assert time.process_time() - began < 5
    assert len(str(caught.value)) < 200


def test_a_keyword_that_is_no_text_is_refused() -> None:
    with pytest.raises(UnserialisableArgument, match="kwargs: text with a lone surrogate"):
        encode_arguments([], {"\ud800": 1})
