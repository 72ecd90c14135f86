"""Concurrency keys: what a pattern may say, what is refused at import, and how the keys of a job are filled in."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import pytest
from django.test.utils import override_settings

from queueapp import Key, patterns, task
from queueapp.codec import digest
from queueapp.compat import InvalidTask
from queueapp.errors import InvalidOption
from queueapp.producer.concurrency import HIDDEN, fill_in
from queueapp.producer.preparation import prepare
from queueapp.producer.task import DuctorTask, adopt
from queueapp.store.records import KEYS_MAX, KeyUse
from tests.producing import add


def charge(customer_id: Any, region: str = "eu", *, tags: Any = None) -> None: ...


def secret(token: str, card: Any, tenant_name: str = "x") -> None: ...


class Colour(str, Enum):  # noqa: UP042 - unlike StrEnum, str() names its member
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Part(float, Enum):
    HALF = 0.5


class Kind(Enum):
    ONE = 1


def paint(colour: Any = Colour.RED, size: Any = Size.LARGE, kind: Any = Kind.ONE) -> None: ...


def late(at: datetime = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2)))) -> None: ...


def with_context(context: Any, customer_id: int) -> None: ...


def many(first: int, *rest: int, **more: int) -> None: ...


def with_tenant(tenant: str) -> None: ...


CUSTOMER = Key("customer:{customer_id}", limit=2)


def keys_of(made: DuctorTask, *args: Any, **kwargs: Any) -> tuple[KeyUse, ...]:
    """The keys that a job of these arguments would have."""
    return prepare(made.using(tenant="acme"), args, kwargs).job.keys


def texts(made: DuctorTask, *args: Any, **kwargs: Any) -> set[str]:
    return {key.text for key in keys_of(made, *args, **kwargs)}


class TestPattern:
    @pytest.mark.parametrize(
        ("pattern", "fields"),
        [
            ("payments", ()),
            ("customer:{customer_id}", ("customer_id",)),
            ("{a}{b}-{a}", ("a", "b")),
            ("{{literal}} {a}", ("a",)),
            ("ü/{ö}|x", ("ö",)),
            ("x" * 200, ()),
        ],
    )
    def test_what_a_pattern_may_say(self, pattern: str, fields: tuple[str, ...]) -> None:
        assert patterns.fields(Key(pattern, 1).parts) == fields

    @pytest.mark.parametrize(
        ("pattern", "words"),
        [
            ("", "must be text of 1 to 200"),
            (5, "must be text of 1 to 200"),
            (None, "must be text of 1 to 200"),
            ("x" * 201, "must be text of 1 to 200"),
            ("a\nb", "must be text of 1 to 200"),
            ("\ud800", "must be text of 1 to 200"),
            ("{", "has a brace without its other one"),
            ("a}", "has a brace without its other one"),
            ("{a", "has a brace without its other one"),
            ("{}", "has {}; a field is the name"),
            ("{0}", "has {0}; a field is the name"),
            ("{a.b}", "has {a.b}; a field is the name"),
            ("{a.__class__}", "has {a.__class__}; a field is the name"),
            ("{a[0]}", "has {a[0]}; a field is the name"),
            ("{a b}", "has {a b}; a field is the name"),
            ("{a!r}", "formats the field {a}"),
            ("{a:>9}", "formats the field {a}"),
            ("{a:{b}}", "formats the field {a}"),
        ],
    )
    def test_what_it_may_not(self, pattern: Any, words: str) -> None:
        with pytest.raises(InvalidOption) as caught:
            Key(pattern, limit=1)

        assert repr(pattern) in str(caught.value)
        assert words in str(caught.value)

    @pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, "2", 1_000_001])
    def test_a_limit_out_of_range(self, limit: Any) -> None:
        with pytest.raises(InvalidOption, match=rf"limit={limit!r}.*whole number from 1 to 1000000"):
            Key("customer", limit)

    def test_a_key_is_a_value(self) -> None:
        assert Key("a", 1) == Key(pattern="a", limit=1) != Key("a", 2)
        assert len({Key("a", 1), Key("a", limit=1)}) == 1
        assert repr(CUSTOMER) == "Key(pattern='customer:{customer_id}', limit=2)"


class TestOption:
    def test_one_or_several(self) -> None:
        both = [CUSTOMER, Key("{tenant}", 1)]

        assert task(concurrency=CUSTOMER)(charge).concurrency == (CUSTOMER,)
        assert task(concurrency=both)(charge).concurrency == tuple(both)
        assert task(charge).using(concurrency=both).concurrency == tuple(both)
        assert task(concurrency=CUSTOMER)(charge).using(concurrency=[]).concurrency == ()
        assert task(concurrency=CUSTOMER)(charge).using(concurrency=None).concurrency == (CUSTOMER,)

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ("customer", "must be queueapp.Key"),
            (5, "must be queueapp.Key"),
            ({CUSTOMER}, "must be queueapp.Key"),
            ([CUSTOMER, "x"], "must be queueapp.Key"),
            ([Key(f"k{number}", 1) for number in range(KEYS_MAX + 1)], f"a list of up to {KEYS_MAX}"),
            ([CUSTOMER, Key(CUSTOMER.pattern, 3)], "'customer:{customer_id}' twice"),
        ],
        ids=["text", "number", "set", "mixed", "five", "twice"],
    )
    def test_anything_else_is_refused(self, value: Any, words: str) -> None:
        with pytest.raises(InvalidTask, match="concurrency") as caught:
            task(concurrency=value)(charge)

        assert words in str(caught.value)
        assert isinstance(caught.value, InvalidOption)

    @pytest.mark.parametrize(
        ("function", "pattern", "words"),
        [
            (charge, "c:{custmer_id}", "must be a parameter of charge, or 'tenant'. Parameters that hold one value: "),
            (many, "m:{rest}", "must be a parameter of many"),
            (many, "m:{more}", "must be a parameter of many"),
            (many, "m:{first} {anything}", "field 'anything'"),
            (with_tenant, "t:{tenant}", "also a parameter of with_tenant: rename the parameter"),
        ],
    )
    def test_a_field_that_is_no_parameter_is_refused_at_import(self, function: Any, pattern: str, words: str) -> None:
        with pytest.raises(InvalidTask) as caught:
            task(concurrency=Key(pattern, 1))(function)
        assert words in str(caught.value)
        with pytest.raises(InvalidTask):
            task(function).using(concurrency=Key(pattern, 1))

    def test_the_context_is_no_parameter_of_the_job(self) -> None:
        with pytest.raises(InvalidTask, match=r"Parameters that hold one value: customer_id\."):
            task(takes_context=True, concurrency=Key("c:{context}", 1))(with_context)

    def test_a_plain_task_has_none(self) -> None:
        assert adopt(add).concurrency == ()
        assert keys_of(add, 1) == ()


class TestFillingIn:
    def test_a_key_of_a_job(self) -> None:
        [use] = keys_of(task(concurrency=CUSTOMER)(charge), 7)

        assert use == KeyUse(
            digest=digest("customer:7"), text="customer:7", limit=2, pattern=digest("customer:{customer_id}")
        )

    @pytest.mark.parametrize(
        ("args", "kwargs", "text"),
        [
            ((7,), {}, "7/eu"),
            ((7, "us"), {}, "7/us"),
            ((), {"customer_id": 7}, "7/eu"),
            ((7,), {"region": "us"}, "7/us"),
            ((7,), {"region": ""}, "7/"),
        ],
    )
    def test_arguments_however_they_are_given(self, args: Any, kwargs: Any, text: str) -> None:
        assert texts(task(concurrency=Key("{customer_id}/{region}", 1))(charge), *args, **kwargs) == {text}

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (True, "true"),
            (1.0, "1"),
            (2**53 + 1, "9007199254740993"),
            (Colour.RED, "red"),
            (Size.LARGE, "3"),
            (Part.HALF, "0.5"),
            (-5, "-5"),
            (1.5, "1.5"),
            ("{region}", "{region}"),
            ("a b|c", "a b|c"),
            (b"bytes are text", "bytes are text"),
        ],
    )
    def test_values_stand_as_json_has_them(self, value: Any, text: str) -> None:
        assert texts(task(concurrency=Key("{customer_id}", 1))(charge), value) == {text}

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
            (Decimal("1.50"), "1.5"),
            (Decimal("1.00"), "1"),
            (date(2030, 1, 31), "2030-01-31"),
            (time(9, 30), "09:30:00"),
            (datetime(2030, 1, 31, tzinfo=UTC), "2030-01-31T00:00:00+00:00"),
            (datetime(2030, 1, 31, 1, tzinfo=timezone(timedelta(hours=1))), "2030-01-31T00:00:00+00:00"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_values_of_typed_tasks(self, value: Any, text: str) -> None:
        """As whoever has JSON only would write them: the same key over REST."""
        made = task(concurrency=Key("{customer_id}", 1), typed=True)(charge)
        assert texts(made, value) == texts(made, text) == {text}

    def test_defaults_are_spelt_as_arguments_are(self) -> None:
        made = task(concurrency=Key("{colour}/{size}", 1))(paint)
        assert texts(made) == texts(made, "red", 3.0) == texts(made, Colour.RED, size=Size.LARGE) == {"red/3"}
        with pytest.raises(InvalidOption, match=r"field 'kind' is of the type Kind, whose value is to be the default"):
            keys_of(task(concurrency=Key("{kind}", 1))(paint))

    def test_a_default_that_has_no_spelling_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match=r"field 'at' is of the type datetime here and has a value that cannot"):
            keys_of(task(concurrency=Key("{at}", 1))(late))

    @pytest.mark.parametrize("value", [None, [7], {"id": 7}, (7,)], ids=repr)
    def test_what_is_no_single_value_is_refused_and_says_what_to_do(self, value: Any) -> None:
        words = r"the key 'customer:.*field 'customer_id' is .*using\(concurrency=\[\]\)"
        with pytest.raises(InvalidOption, match=words):
            keys_of(task(concurrency=CUSTOMER)(charge), value)

    def test_a_default_of_none_is_refused_too(self) -> None:
        with pytest.raises(InvalidOption, match=r"the key 't:\{tags\}', whose field 'tags' is None here"):
            keys_of(task(concurrency=Key("t:{tags}", 1))(charge), 7)

    @pytest.mark.parametrize(
        "value", ["", "x" * 257, "ü" * 129, "a\nb", "a\0"], ids=["none", "long", "bytes", "line", "nul"]
    )
    def test_a_text_of_bad_form_is_refused(self, value: str) -> None:
        with pytest.raises(InvalidOption, match=r"1 to 256 bytes of printable text. Use an id, or a digest"):
            keys_of(task(concurrency=Key("{customer_id}", 1))(charge), value)
        assert texts(task(concurrency=Key("{customer_id}", 1))(charge), "ü" * 128) == {"ü" * 128}

    def test_arguments_that_do_not_fit_are_refused(self) -> None:
        words = r"keys that cannot be filled in: .* do not fit charge: missing a required argument"
        with pytest.raises(InvalidOption, match=words):
            keys_of(task(concurrency=CUSTOMER)(charge))

    def test_tenant_is_the_job_s(self) -> None:
        assert texts(task(concurrency=Key("{tenant}/{region}", 1))(charge), 7) == {"acme/eu"}

    def test_with_a_context(self) -> None:
        made = task(takes_context=True, concurrency=CUSTOMER)(with_context)
        assert texts(made, 7) == texts(made, customer_id=7) == {"customer:7"}

    def test_keys_stand_by_digest_and_of_two_that_read_the_same_the_least_limit_holds(self) -> None:
        keys = [Key("{customer_id}", 3), Key("{region}", 2), Key("a", 1), Key("b", 1)]
        found = keys_of(task(concurrency=keys)(charge), "x", "x")

        assert [use.digest for use in found] == sorted(digest(text) for text in ("x", "a", "b"))
        assert {use.text: (use.limit, use.pattern) for use in found}["x"] == (2, digest("{region}"))
        assert keys_of(task(concurrency=keys[::-1])(charge), "x", "x") == found

    def test_the_same_key_of_two_tasks_is_one(self) -> None:
        other = task(concurrency=Key("customer:{number}", 5))(numbered)
        assert keys_of(other, 7)[0].digest == keys_of(task(concurrency=CUSTOMER)(charge), 7)[0].digest


def numbered(number: int) -> None: ...


class TestHiding:
    def test_a_value_that_nobody_is_shown_stands_as_stars(self) -> None:
        keys = [Key("t:{token}", 1), Key("c:{card}", 1), Key("n:{tenant_name}/{tenant}", 1)]
        made = task(concurrency=keys, sensitive=["card.number"])(secret)

        found = keys_of(made, "hush", "4711")
        assert {use.text for use in found} == {f"t:{HIDDEN}", f"c:{HIDDEN}", "n:x/acme"}
        assert {use.digest for use in found} == {digest("t:hush"), digest("c:4711"), digest("n:x/acme")}

    def test_of_a_closed_task_all_but_the_tenant(self) -> None:
        keys = [Key("n:{tenant_name}/{tenant}", 1)]
        assert texts(task(concurrency=keys, sensitive=True)(secret), "t", "c") == {f"n:{HIDDEN}/acme"}

    def test_the_mask_of_the_settings_holds(self) -> None:
        with override_settings(DUCTOR={"MASK": ["customer"]}):
            assert texts(task(concurrency=CUSTOMER)(charge), 7) == {f"customer:{HIDDEN}"}

    def test_stars_never_make_a_text_too_long(self) -> None:
        made = task(concurrency=Key("{card}" * 33, 1), sensitive=["card"])(secret)
        assert texts(made, "t", "c") == {HIDDEN}

    def test_a_refusal_shows_none(self) -> None:
        made = task(concurrency=Key("{token}", 1))(secret)
        with pytest.raises(InvalidOption) as caught:
            keys_of(made, "hush" * 100, "c")
        assert "hush" not in str(caught.value)


def test_filling_in_asks_nothing_of_a_task_without_keys() -> None:
    assert fill_in(charge, (), ("too", "many", "arguments"), {}, tenant="acme") == ()
