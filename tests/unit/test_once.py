"""The options debounce, singleton and on_throttle: what each may be, and the keys that they are filled in to."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from queueapp import Debounce, Key, Singleton
from queueapp.codec import spelling
from queueapp.errors import InvalidOption
from queueapp.producer import once
from queueapp.producer.once import fill_in
from queueapp.producer.task import task

UID = UUID("12345678-1234-5678-1234-567812345678")


making: Any = task


def report(customer: Any = None, options: Any = None) -> None: ...


def filled(*args: Any, **options: Any) -> Any:
    given = {"debounce": None, "singleton": None, "tenant": "acme", **options}
    return fill_in(report, "shop.report", args, {}, **given)


def digests(key: str | None, *arguments: tuple[Any, ...]) -> set[str]:
    return {filled(*args, singleton=Singleton(key)).singleton.digest for args in arguments}


class TestDeclaring:
    @pytest.mark.parametrize(
        ("made", "words"),
        [
            (lambda: Debounce("", 1), r"debounce has the key ''"),
            (lambda: Debounce("k", 0), r"debounce has period=0: it must be seconds"),
            (lambda: Debounce("k", True), r"debounce has period=True"),
            (lambda: Debounce("k", "soon"), r"debounce has period='soon'"),  # type: ignore[arg-type]  # wrong on purpose
            (lambda: Debounce("k", 10**9), r"up to a year"),
            (lambda: Debounce("k", 5, max_wait=3), r"max_wait=3 and period=5: max_wait must be at least the period"),
            (lambda: Debounce("k", 5, max_wait=-1), r"debounce has max_wait=-1"),
            (
                lambda: Singleton("k", mode="wait"),  # type: ignore[arg-type]  # wrong on purpose
                r'singleton has mode=\'wait\': it must be "skip", "replace" or "next"',
            ),
            (lambda: Singleton("{"), r"singleton has the key '\{'"),
            (lambda: task(debounce=5)(report), r"debounce is 5: it must be queueapp.Debounce"),  # type: ignore[call-overload]  # wrong on purpose
            (lambda: task(singleton="k")(report), r"singleton is 'k': it must be queueapp.Singleton"),  # type: ignore[call-overload]  # wrong on purpose
            (lambda: task(on_throttle="wait")(report), r"on_throttle is 'wait': it must be \"reject\""),  # type: ignore[call-overload]  # wrong on purpose
            (lambda: task(debounce=Debounce("{no}", 1))(report), r"debounce has the key '\{no\}' with the field 'no'"),
            (lambda: task(singleton=Singleton("{no}"))(report), r"singleton has the key '\{no\}' with the field 'no'"),
            (
                lambda: task(singleton=Singleton("k", "next"), concurrency=[Key(f"k{n}", 1) for n in range(4)])(report),
                r"takes one of the 4 concurrency keys of a job, and concurrency has 4",
            ),
        ],
    )
    def test_a_fault_is_told_at_import_with_value_and_remedy(self, made: Any, words: str) -> None:
        with pytest.raises(InvalidOption, match=words):
            made()

    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ("rate", "set in the admin, for a tenant"),
            ("rate_limit", "on_throttle"),
            ("dispatch_rate", "a dispatch rate is set in the admin"),
        ],
    )
    def test_rates_are_no_options_of_tasks(self, option: str, words: str) -> None:
        with pytest.raises(InvalidOption, match=rf"@task\({option}=...\) .*{words}"):
            making(**{option: 5})(report)

    def test_durations_are_seconds_or_timedeltas(self) -> None:
        assert Debounce("k", 1.5).period_ms == Debounce("k", timedelta(seconds=1.5)).period_ms == 1_500
        assert (Debounce("k", 2, max_wait=5).most_ms, Debounce("k", 2).most_ms) == (5_000, 0)

    def test_options_are_kept_by_using(self) -> None:
        made = task(report).using(debounce=Debounce("k", 1), singleton=Singleton(), on_throttle="park")
        assert (made.debounce, made.singleton, made.on_throttle) == (Debounce("k", 1), Singleton(), "park")
        assert made.using(priority=5).on_throttle == "park"


class Part(float, Enum):
    HALF = 0.5


class TestKeys:
    @pytest.mark.parametrize("option", [{"debounce": Debounce("{at}", 5)}, {"singleton": Singleton("{at}")}])
    @pytest.mark.parametrize("default", [frozenset(), datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2)))])
    def test_a_default_that_has_no_spelling_is_refused(self, option: dict[str, Any], default: object) -> None:
        def late(at: object = default) -> None: ...

        words = (
            rf"{next(iter(option))} has a key with the field 'at', whose value is of the type {type(default).__name__}"
        )
        with pytest.raises(InvalidOption, match=words):
            fill_in(late, "t", (), {}, tenant="acme", **{"debounce": None, "singleton": None} | option)

    @pytest.mark.parametrize(
        "alike",
        [
            ({"a": 1, "b": [2, 3]}, {"b": (2, 3), "a": 1}),
            (UID, str(UID)),
            (Decimal("1.50"), Decimal("1.5"), 1.5),
            (1, 1.0, Decimal("1.00")),
            (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))),
            (date(2026, 1, 1), "2026-01-01"),
            (b"text", "text"),
            (timedelta(minutes=1), 60),
            ({"n": None}, {"n": None}),
            (Part.HALF, 0.5, Decimal("0.50")),
        ],
    )
    def test_c093_same_meaning_gives_the_same_key(self, alike: tuple[Any, ...]) -> None:
        """C093: Building the uniqueness key fails for UUID or other arguments."""
        assert len(digests("report:{customer}", *((value,) for value in alike))) == 1
        assert len(digests(None, *((value,) for value in alike))) == 1

    @pytest.mark.parametrize(
        "unlike",
        [
            (None, "", 0, False, [], {}),
            ({"a": "1"}, {"a": 1}),
            ([1, 2], [2, 1]),
            (Decimal("NaN"), Decimal("Infinity"), Decimal("1e1000000")),
            (10**30, 10**30 + 1),
            (True, 1),
        ],
    )
    def test_what_differs_gives_another_key(self, unlike: tuple[Any, ...]) -> None:
        assert len(digests("report:{customer}", *((value,) for value in unlike))) == len(unlike)

    def test_c093_it_is_the_same_in_every_process(self) -> None:
        """C093: no use of hash(): it differs from one process to the next."""
        program = (
            "from queueapp.codec import digest, spelling\n"
            "from decimal import Decimal\n"
            "print(digest(spelling({'b': {'y': None, 'x': Decimal('2.50')}, 'a': (1, 'ä')})))"
        )
        found = {
            subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                check=True,
                env={"PYTHONHASHSEED": seed},
            ).stdout
            for seed in ("1", "2")
        }
        assert len(found) == 1
        assert len(found.pop().strip()) == 22

    def test_defaults_and_ways_to_pass_do_not_matter(self) -> None:
        ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            ((5,), {}),
            ((), {"customer": 5}),
            ((5, None), {}),
            ((5,), {"options": None}),
        ]
        spelt = {
            fill_in(report, "shop.report", args, kwargs, debounce=None, singleton=Singleton(), tenant="acme").singleton
            for args, kwargs in ways
        }
        assert len(spelt) == 1

    def test_tenant_and_task_keep_keys_apart(self) -> None:
        one, two = (filled(singleton=Singleton("k"), tenant=tenant).singleton for tenant in ("a", "b"))
        assert one != two
        other = fill_in(report, "shop.other", (), {}, debounce=None, singleton=Singleton("k"), tenant="a").singleton
        assert other != one
        windows = {filled(debounce=Debounce("k", 1), tenant=tenant).debounce for tenant in ("a", "b")}
        assert len(windows) == 1  # the store keeps windows of tenants apart

    def test_only_a_singleton_that_waits_has_a_concurrency_key(self) -> None:
        assert filled(singleton=Singleton("k")).keys == ()
        [key] = filled(7, singleton=Singleton("k:{customer}", "next")).keys
        assert (key.limit, key.text) == (1, "singleton of shop.report: k:7")
        assert key.digest == filled(7, singleton=Singleton("k:{customer}", "replace")).singleton.digest

    def test_a_hidden_value_is_not_shown_and_long_ones_fit(self) -> None:
        single = Singleton("k:{customer}", "next")
        [key] = filled("secret", singleton=single, is_hidden=lambda name: name == "customer").keys
        assert key.text == "singleton of shop.report: k:********"
        [key] = filled("ä" * 500 + "\n", singleton=single).keys
        assert len(key.text.encode()) <= 256
        assert key.text.isprintable()

    def test_a_default_that_has_no_spelling_is_named(self) -> None:
        def strange(value: Any = pytest) -> None: ...

        with pytest.raises(InvalidOption, match=r"singleton has no key, .*: module has no spelling. Give it a key"):
            fill_in(strange, "t", (), {}, debounce=None, singleton=Singleton(), tenant="a")

    def test_arguments_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(InvalidOption, match="debounce has keys that cannot be filled in"):
            filled(1, 2, 3, debounce=Debounce("k:{customer}", 1))

    def test_the_context_is_no_argument(self) -> None:
        def with_context(context: Any, customer: int) -> None: ...

        one = fill_in(
            with_context, "t", (5,), {}, debounce=None, singleton=Singleton(), tenant="a", takes_context=True
        ).singleton
        assert one is not None

    def test_spelling_refuses_what_has_no_meaning_of_its_own(self) -> None:
        with pytest.raises(TypeError, match="has no spelling"):
            spelling({1, 2})

    def test_nobody_can_configure_the_limit_of_a_singleton(self) -> None:
        with pytest.raises(InvalidOption):
            Key("singleton\n", 1)
        assert once.SINGLETON_PATTERN
