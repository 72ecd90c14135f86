"""What may be passed and returned: each value arrives as it was, in the body, in its retry and in the result, or is
refused where it was given, with the path of what is wrong. Nothing arrives changed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test.utils import override_settings
from django.utils.translation import gettext_lazy

from queueapp import backoff, task
from queueapp.compat import TaskResultStatus
from queueapp.errors import PayloadTooLarge, ResultTooLarge, UnserialisableArgument
from queueapp.producer.task import DuctorTask
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.working import work

pytestmark = pytest.mark.compat

arrived: list[Any] = []
to_return: list[Any] = []


@pytest.fixture(autouse=True)
def _on_a_store(store: Store) -> None:
    arrived.clear()
    to_return.clear()


class Colour(enum.Enum):
    RED = 1


class OnlyWords:
    def __str__(self) -> str:
        return "words"


def _take(*args: Any, **kwargs: Any) -> Any:
    """Fails the first time, so that what arrives is what a retry gets; returns what it was given."""
    arrived.append((args, kwargs))
    if len(arrived) == 1:
        raise ValueError("once more")
    return args[0]


def _give() -> Any:
    return to_return[0]


@task(max_attempts=2, backoff=backoff.fixed(0))
def plain(*args: Any, **kwargs: Any) -> Any:
    return _take(*args, **kwargs)


@task(max_attempts=2, backoff=backoff.fixed(0), typed=True)
def typed(*args: Any, **kwargs: Any) -> Any:
    return _take(*args, **kwargs)


@task
def plain_result() -> Any:
    return _give()


@task(typed=True)
def typed_result() -> Any:
    return _give()


def _shown(value: object) -> str:
    """The same in every process: pytest-xdist compares the names of what its workers have found."""
    if isinstance(value, DuctorTask):
        return str(value.name)
    return "OnlyWords" if isinstance(value, OnlyWords) else repr(value)


TYPED_ONLY = [
    UUID("6f1c1c4e-4c0a-4f9e-8b39-0a4b7ad1f0aa"),
    datetime(2026, 1, 31, 9, 30, 0, 5, tzinfo=UTC),
    datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    datetime(2026, 1, 31, 9, 30),
    date(2026, 2, 28),
    time(23, 59, 59, 999_999),
    timedelta(days=-1, microseconds=1),
    Decimal("1.10"),
    b"\x00\xff",
]
TYPED = [*TYPED_ONLY, (1, (2, "x")), b"text", {"deep": [({"at": date(2026, 1, 1)},)]}, {"$uuid": "no tag"}]
EVERYWHERE = [2**53 + 1, -(2**63), 2**63 - 1, 0.1, "naïve", None, True, [1, {"a": [None]}], {"$date": "2026-01-01"}]
NOWHERE = [
    {1, 2},
    Colour.RED,
    gettext_lazy("Save"),
    User(pk=5, username="ada"),
    math.nan,
    math.inf,
    2**63,
    {1: "key"},
    {b"k": "key"},
    OnlyWords(),
    bytearray(b"x"),
]


def exact(value: Any) -> Any:
    """The value with all that equality overlooks: types, digits, and which of two equal hours it was."""
    if isinstance(value, (list, tuple)):
        return type(value), [exact(item) for item in value]
    if isinstance(value, dict):
        return [(key, exact(item)) for key, item in value.items()]
    if isinstance(value, datetime):
        return value.isoformat(), value.tzinfo
    return type(value), str(value)


@pytest.mark.parametrize("value", [*EVERYWHERE, *TYPED], ids=_shown)
def test_c138_a_typed_task_gets_and_returns_what_was_given_also_on_a_retry(value: Any) -> None:
    result = typed.enqueue(value, {"in": [value]}, named=value)
    assert exact(result.args) == exact([value, {"in": [value]}]), "the caller's handle says what will arrive"
    assert exact(typed.get_result(result.id).kwargs) == exact({"named": value})
    assert work() == 2
    result.refresh()

    assert [exact(args) for args, _ in arrived] == [exact((value, {"in": [value]}))] * 2
    assert [exact(kwargs) for _, kwargs in arrived] == [exact({"named": value})] * 2
    assert exact(result.return_value) == exact(value)


@pytest.mark.parametrize("value", TYPED, ids=_shown)
def test_c138_typed_may_be_chosen_for_one_job(value: Any) -> None:
    result, again = plain.using(typed=True).enqueue(value), typed.using(typed=False)
    work()
    result.refresh()

    assert exact(result.return_value) == exact(value)
    with pytest.raises(UnserialisableArgument):
        again.enqueue(UUID(int=1))


@pytest.mark.parametrize("value", EVERYWHERE, ids=_shown)
def test_c138_a_plain_task_gets_what_json_can_say(value: Any) -> None:
    result = plain.enqueue(value, named=value)
    work()
    result.refresh()

    assert [exact(args) for args, _ in arrived] == [exact((value,))] * 2
    assert exact(result.return_value) == exact(value)


@pytest.mark.parametrize(
    ("made", "value"),
    [(plain, value) for value in [*NOWHERE, *TYPED_ONLY]] + [(typed, value) for value in NOWHERE],
    ids=_shown,
)
def test_c138_what_would_not_come_back_equal_is_refused_with_its_path(
    made: DuctorTask, value: Any, reads: Reads
) -> None:
    with pytest.raises(UnserialisableArgument, match=r"^args\[0\]: "):
        made.enqueue(value)
    with pytest.raises(UnserialisableArgument, match=r"^kwargs\['order'\]\['lines'\]\[1\]: "):
        made.using(priority=1).enqueue(order={"lines": [0, value]})
    assert reads.overview().waiting == 0


@pytest.mark.parametrize(
    ("made", "value"),
    [(plain_result, value) for value in [*NOWHERE, *TYPED_ONLY]] + [(typed_result, value) for value in NOWHERE],
    ids=_shown,
)
def test_c138_a_result_that_would_change_fails_the_job_with_its_path(made: DuctorTask, value: Any) -> None:
    to_return.append({"lines": [value]})
    result = made.enqueue()
    work()
    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert error.exception_class is UnserialisableArgument
    assert "result['lines'][0]: " in error.traceback


def test_c138_a_model_instance_is_refused_with_what_to_pass() -> None:
    with pytest.raises(UnserialisableArgument, match="User cannot be written as JSON; pass its primary key"):
        plain.enqueue(User(pk=5))
    with pytest.raises(UnserialisableArgument, match=r"pass value\.isoformat\(\), or declare the task with typed=True"):
        plain.enqueue(date(2026, 1, 1))


MEGABYTE = bytes(range(256)) * 4096


@contextmanager
def room(size: int) -> Iterator[None]:
    """Payloads and results of up to so many bytes."""
    with override_settings(DUCTOR={**settings.DUCTOR, "MAX_PAYLOAD_BYTES": size, "MAX_RESULT_BYTES": size}):
        yield


def test_c139_bytes_are_refused_with_advice_or_kept_compactly(reads: Reads) -> None:
    with pytest.raises(UnserialisableArgument, match="base64-encoded, or declare the task with typed=True"):
        plain.enqueue(MEGABYTE)
    with room(3_000_000):
        result = typed.enqueue(MEGABYTE)
        record = reads.job(result.id[-22:])
        assert record is not None
        assert len(record.payload or b"") < 1.34 * len(MEGABYTE), "no text of numbers"
        work()
        result.refresh()
        record = reads.job(result.id[-22:])

    assert arrived[-1][0] == (MEGABYTE,)
    assert result.return_value == MEGABYTE
    assert record is not None
    assert len(record.result or b"") < 1.34 * len(MEGABYTE)


def test_c139_the_limits_count_what_is_stored(reads: Reads) -> None:
    stored = len(b'{"t":1,"a":[{"$bytes":""}]}') + 4 * 100
    with room(stored):
        accepted = typed.enqueue(b"\xff" * 300)
        with pytest.raises(
            PayloadTooLarge, match=f"have {stored + 4} bytes as JSON; MAX_PAYLOAD_BYTES allows {stored}"
        ):
            typed.enqueue(b"\xff" * 303)
    record = reads.job(accepted.id[-22:])
    assert record is not None
    assert len(record.payload or b"") == stored

    to_return.append(b"\xff" * 300)
    stored = len(b'~{"$bytes":""}') + 4 * 100
    fits = typed_result.enqueue()
    with room(stored):
        work()
    to_return[0] += b"\xff\xff\xff"
    does_not = typed_result.enqueue()
    with room(stored):
        work()
    fits.refresh()
    does_not.refresh()

    assert len(fits.return_value) == 300
    assert [error.exception_class for error in does_not.errors] == [ResultTooLarge]
    assert f"has {stored + 4} bytes" in does_not.errors[0].traceback
