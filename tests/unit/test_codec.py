"""Arguments and results as JSON: what passes unchanged, what is refused and by which path."""

from __future__ import annotations

import enum
import math
import time
from collections import namedtuple
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from datetime import time as clock
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queueapp import tags
from queueapp.codec import (
    CLOSED,
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


class Nowhere(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, moment: datetime | None) -> None: ...

    dst = tzname = utcoffset


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


berlin = ZoneInfo("Europe/Berlin")
moments = st.datetimes(timezones=st.none() | st.just(UTC) | st.just(berlin) | st.just(timezone(timedelta(minutes=-90))))
typed_values = st.recursive(
    values
    | st.binary()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | moments
    | st.dates()
    | st.times()
    | st.timedeltas(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(text | st.just("$uuid"), inner),
    max_leaves=8,
)


def same_typed(left: Any, right: Any) -> bool:
    """As `same`, through tuples, too; Decimals and moments by all that they show."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same_typed, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same_typed(left[key], right[key]) for key in left)
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, datetime):
        return bool(left.replace(tzinfo=None) == right.replace(tzinfo=None) and left.utcoffset() == right.utcoffset())
    return same(left, right)


class TestTyped:
    @given(args=st.lists(typed_values), kwargs=st.dictionaries(text, typed_values))
    def test_arguments_come_back_as_they_were(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        payload = encode_arguments(args, kwargs, typed=True)

        assert same_typed(list(decode_arguments(payload)), [args, kwargs, {}])

    @given(value=typed_values)
    def test_results_come_back_as_they_were(self, value: Any) -> None:
        assert same_typed(decode_result(encode_result(value, typed=True)), value)

    @given(args=st.lists(values), kwargs=st.dictionaries(text, values))
    @example(args=[{"$uuid": 1}], kwargs={"$": None})
    def test_what_needs_no_tag_is_written_as_ever(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        assert encode_arguments(args, kwargs, typed=True) == encode_arguments(args, kwargs)
        assert encode_result([*args, kwargs], typed=True) == encode_result([*args, kwargs])

    @pytest.mark.parametrize("typed", [False, True])
    @pytest.mark.parametrize(
        "value",
        [
            {"$uuid": "6f1c1c4e-4c0a-4f9e-8b39-0a4b7ad1f0aa"},
            {"$$uuid": 1},
            {"$tuple": [1]},
            {"$no-tag-at-all": {"$": {"$date": None}}},
            {"$uuid": 1, "other": 2},
        ],
    )
    def test_no_mapping_is_mistaken_for_a_tag(self, value: dict[str, Any], typed: bool) -> None:
        args, kwargs, options = decode_arguments(encode_arguments([value], value, {"metadata": value}, typed=typed))

        assert (args, kwargs, options) == ([value], value, {"metadata": value})
        assert decode_result(encode_result(value, typed=typed)) == value
        beside_a_tag = [value, b"\xff"]
        assert decode_result(encode_result(beside_a_tag, typed=True)) == beside_a_tag
        args, kwargs, options = decode_arguments(encode_arguments(beside_a_tag, value, {"metadata": value}, typed=True))
        assert (args, kwargs, options) == (beside_a_tag, value, {"metadata": value})

    def test_what_else_travels_does_not_change_whether_arguments_are_tagged(self) -> None:
        given = {"metadata": {"$uuid": "x"}}

        assert fingerprint("t", encode_arguments([1], {}, given, typed=True), canonical=True) == fingerprint(
            "t", encode_arguments([1], {}), canonical=True
        )

    def test_a_tag_is_no_mapping_of_that_look_to_an_idempotency_key(self) -> None:
        tag, look = encode_arguments([(1,)], {}, typed=True), encode_arguments([{"$tuple": [1]}], {})

        assert fingerprint("t", tag, canonical=True) != fingerprint("t", look, canonical=True)

    @given(args=st.lists(typed_values), kwargs=st.dictionaries(text, typed_values, min_size=2))
    def test_a_canonical_fingerprint_knows_no_order(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        turned = dict(reversed(kwargs.items()))

        assert fingerprint("t", encode_arguments(args, kwargs, typed=True), canonical=True) == fingerprint(
            "t", encode_arguments(args, turned, {"backoff": 1}, typed=True), canonical=True
        )

    def test_both_hours_that_a_clock_shows_twice(self) -> None:
        for fold in (0, 1):
            moment = datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold)
            [read] = decode_arguments(encode_arguments([moment], {}, typed=True))[0]

            assert (read.tzinfo, read.fold, read.utcoffset()) == (berlin, fold, moment.utcoffset())

    def test_a_moment_without_its_zone_s_name_here_is_the_same_moment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        moment = datetime(2026, 7, 1, 12, tzinfo=berlin)
        payload = encode_arguments([moment], {}, typed=True)
        monkeypatch.setattr(tags, "ZoneInfo", lambda key: ZoneInfo("Nowhere/AtAll"))

        [read] = decode_arguments(payload)[0]
        assert read == moment
        assert read.tzinfo == timezone(timedelta(hours=2))

    def test_a_moment_whose_zone_has_changed_its_rules_is_the_same_moment(self) -> None:
        [read] = decode_arguments(b'{"t":1,"a":[{"$datetime":"2026-07-01T12:00:00+03:00[Europe/Berlin]"}]}')[0]

        assert read == datetime(2026, 7, 1, 9, tzinfo=UTC)
        assert read.tzinfo == berlin

    def test_a_time_keeps_its_zone(self) -> None:
        [read] = decode_arguments(encode_arguments([clock(2, 30, tzinfo=berlin)], {}, typed=True))[0]

        assert (read, read.tzinfo) == (clock(2, 30, tzinfo=berlin), berlin)

    def test_instances_of_subclasses_become_what_they_derive_from(self) -> None:
        class Moment(datetime):
            """As tests that stop the clock have it."""

        Point = namedtuple("Point", "x y")
        args, _, _ = decode_arguments(encode_arguments([Point(1, 2), Moment(2026, 1, 1)], {}, typed=True))

        assert args == [(1, 2), datetime(2026, 1, 1)]
        assert [type(value) for value in args] == [tuple, datetime]

    @pytest.mark.parametrize(
        ("value", "path", "remedy"),
        [
            ((1, {"a": (2, {3})}), "args[0][1]['a'][1]", "sorted list"),
            ((INTEGER_MAX + 1,), "args[0][0]", "64 bits"),
            ((math.nan,), "args[0][0]", "nan"),
            ({1: ()}, "args[0]", "not text"),
            (bytearray(b"a"), "args[0]", "bytes(value)"),
            (datetime(2026, 1, 1, tzinfo=Nowhere()), "args[0]", "UTC"),
        ],
    )
    def test_what_it_does_not_keep_is_refused_with_its_path(self, value: object, path: str, remedy: str) -> None:
        with pytest.raises(UnserialisableArgument) as caught:
            encode_arguments([value], {}, typed=True)

        assert str(caught.value).startswith(f"{path}: ")
        assert remedy in str(caught.value)

    def test_a_tuple_that_nests_too_deep(self) -> None:
        value: Any = ()
        for _ in range(MAX_DEPTH):
            value = (value,)
        with pytest.raises(UnserialisableArgument, match="nested deeper"):
            encode_arguments([value], {}, typed=True)

    def test_the_size_of_a_result_is_that_of_what_is_stored(self) -> None:
        assert len(encode_result(b"\xff" * 75, typed=True, max_bytes=114) or b"") == 114
        with pytest.raises(ResultTooLarge, match="114 bytes"):
            encode_result(b"\xff" * 75, typed=True, max_bytes=113)

    def test_a_tag_of_a_newer_release_says_so(self) -> None:
        with pytest.raises(ValueError, match=r"\$vector is no tag of this release"):
            decode_result(b'~{"$vector":[1]}')

    def test_people_read_text(self) -> None:
        shown = tags.readable(
            {
                "tuple": (1, UUID(int=1)),
                "text": b"caf\xc3\xa9",
                "bytes": b"\xff",
                "moment": datetime(2026, 7, 1, 12, tzinfo=berlin),
                "date": date(2026, 7, 1),
                "time": clock(2, 30),
                "span": timedelta(days=1, seconds=5),
                "exact": Decimal("1.10"),
            }
        )

        assert shown == {
            "tuple": [1, "00000000-0000-0000-0000-000000000001"],
            "text": "café",
            "bytes": "base64:/w==",
            "moment": "2026-07-01T12:00:00+02:00[Europe/Berlin]",
            "date": "2026-07-01",
            "time": "02:30:00",
            "span": "1 day, 0:00:05",
            "exact": "1.10",
        }


def test_a_closed_result_is_read_as_any_other() -> None:
    for typed, value in ((False, {"a": 1}), (True, (1, b"\xff"))):
        encoded = encode_result(value, typed=typed, closed=True)
        assert encoded is not None
        assert encoded.startswith(CLOSED)
        assert decode_result(encoded) == value


@pytest.mark.parametrize("value", [uuid4(), Decimal(1), b"\xff", date(2026, 1, 1), timedelta(1)])
def test_what_typed_would_keep_says_so(value: object) -> None:
    with pytest.raises(UnserialisableArgument, match="typed=True"):
        encode_arguments([value], {})
