"""What somebody edited is put together with what is there: a mask is no value, it stands for that of its place."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from queueapp import tags
from queueapp.errors import InvalidOption
from queueapp.inspection.edits import ABSENT, Change, differences, merged
from queueapp.inspection.masking import HIDDEN, masked

USER = {"name": "ann", "token": "t0p", "tags": ["a", "b"]}


def edited(original: Any, given: Any) -> Any:
    return merged(given, masked(original), original, "kwargs")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"name": "ann", "token": HIDDEN, "tags": ["a", "b"]}, USER),
        ({"name": "bob", "token": HIDDEN, "tags": ["a"]}, {"name": "bob", "token": "t0p", "tags": ["a"]}),
        ({"name": "ann", "token": "new"}, {"name": "ann", "token": "new"}),
        ({"token": HIDDEN, "more": {"token": "mine"}}, {"token": "t0p", "more": {"token": "mine"}}),
        ({}, {}),
    ],
)
def test_what_was_left_as_it_was_seen_is_kept(given: Any, meant: Any) -> None:
    assert edited(USER, given) == meant


@pytest.mark.parametrize(
    "given",
    [
        {"name": HIDDEN},
        {"note": HIDDEN, "name": "ann"},
        {"name": {"token": HIDDEN}},
        {"tags": ["a", HIDDEN]},
        {"token": {"inner": HIDDEN}},
        {"token": [HIDDEN]},
    ],
)
def test_a_mask_is_refused_where_nothing_is_hidden(given: Any) -> None:
    with pytest.raises(InvalidOption, match=r"kwargs\.\w+"):
        edited(USER, given)


def test_a_value_that_looks_like_a_mask_stays_where_it_is() -> None:
    assert edited({"name": HIDDEN, "age": 1}, {"name": HIDDEN, "age": 2}) == {"name": HIDDEN, "age": 2}


ITEMS = [{"name": "a", "token": "of a"}, {"name": "b", "token": "of b"}]
SEEN = [{"name": "a", "token": HIDDEN}, {"name": "b", "token": HIDDEN}]


def test_an_item_of_a_list_keeps_its_own_hidden_value() -> None:
    assert edited(ITEMS, [{"name": "A", "token": HIDDEN}, SEEN[1]]) == [{"name": "A", "token": "of a"}, ITEMS[1]]
    assert edited(ITEMS, [{"name": "c", "token": "new"}]) == [{"name": "c", "token": "new"}]


@pytest.mark.parametrize("given", [SEEN[1:], SEEN[:1], SEEN[::-1], [*SEEN, {"name": "c"}], [SEEN[0], SEEN[0]]])
def test_a_secret_never_goes_to_another_item(given: Any) -> None:
    with pytest.raises(InvalidOption, match="order and number"):
        edited(ITEMS, given)


def test_one_of_two_and_true_are_three_values() -> None:
    for original, given in ((1, True), (1, 1.0), (0, False), (0, None), ("1", 1)):
        meant = edited({"n": original}, {"n": given})["n"]
        assert (meant, type(meant)) == (given, type(given))


TYPED: list[Any] = [
    UUID(int=7),
    Decimal("1.50"),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    date(2026, 1, 2),
    time(3, 4, 5, 6),
    timedelta(days=-1, seconds=3, microseconds=7),
    timedelta(hours=30),
    b"text",
    b"\xff\x00",
]


@pytest.mark.parametrize("value", TYPED, ids=repr)
def test_what_json_has_no_word_for_is_read_back_by_its_type(value: Any) -> None:
    text = tags.readable(value)
    again = tags.like(value, text)
    assert (again, type(again)) == (value, type(value))
    assert edited({"at": value, "n": 1}, {"at": text, "n": 2})["at"] is value, "it was left"


def test_a_value_with_a_type_of_its_own_keeps_it() -> None:
    original = {"id": UUID(int=7), "sum": Decimal("1.50"), "pair": (1, UUID(int=8))}
    shown = tags.readable(original)
    meant = edited(original, {**shown, "id": str(UUID(int=9)), "pair": [2, str(UUID(int=8))]})
    assert meant == {"id": UUID(int=9), "sum": Decimal("1.50"), "pair": (2, UUID(int=8))}
    assert type(meant["pair"]) is tuple
    assert edited(original, {**shown, "id": None})["id"] is None
    with pytest.raises(InvalidOption, match=r'kwargs\.id was a UUID, and now it is no UUID: "nine"'):
        edited(original, {**shown, "id": "nine"})
    with pytest.raises(InvalidOption, match=r"kwargs\.sum was a Decimal"):
        edited(original, {**shown, "sum": "much"})


def told(old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    changes = differences(old, new, masked(old), masked(new), "kwargs")
    return [(change.place, change.before, change.after) for change in changes]


def test_differences_are_told_place_by_place_and_masked() -> None:
    new = {"name": "bob", "token": "other", "tags": ["a", "c"], "more": {"token": "x", "n": 1}}
    assert told({**USER, "age": 5}, new) == [
        ("kwargs.name", "ann", "bob"),
        ("kwargs.token", HIDDEN, HIDDEN),
        ("kwargs.tags[1]", "b", "c"),
        ("kwargs.age", 5, ABSENT),
        ("kwargs.more", ABSENT, {"token": HIDDEN, "n": 1}),
    ]
    assert told({"a": [1, 2]}, {"a": [1]}) == [("kwargs.a", [1, 2], [1])]
    assert told({"a": 1}, {"a": True}) == [("kwargs.a", 1, True)]
    assert told(USER, dict(reversed(USER.items()))) == []


def test_what_is_hidden_whole_is_told_as_such() -> None:
    (change,) = differences({"pin": {"n": 1}}, {"pin": {"n": 2}}, {"pin": HIDDEN}, {"pin": HIDDEN}, "kwargs")
    assert change == Change(place="kwargs.pin", before=HIDDEN, after=HIDDEN)
    assert change.words == f"{HIDDEN} → another hidden value"


def test_what_nothing_is_told_of_is_hidden() -> None:
    shapes: list[Any] = [{}, []]
    for shown in shapes:
        (change,) = differences({"a": 1}, {"a": 2}, shown, shown, "kwargs")
        assert change == Change(place="kwargs.a", before=HIDDEN, after=HIDDEN)
    (change,) = differences([1], [2], [], [], "args")
    assert (change.before, change.after) == (HIDDEN, HIDDEN)


def test_a_change_in_words_is_short() -> None:
    assert Change(place="args[0]", before=1, after=ABSENT).words == "1 → nothing"
    assert len(Change(place="args[0]", before="x" * 10_000, after="ä").words) < 300
