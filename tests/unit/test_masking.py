"""What a skin may show: nothing whose name is in `MASK`, nothing sensitive, no argument whose name nobody knows."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

import queueapp
from queueapp.compat import TASKS_LOGGER, TaskResultStatus, task_finished
from queueapp.errors import Concealed, InvalidOption
from queueapp.inspection.jobs import JobView, find_job
from queueapp.inspection.masking import HIDDEN, is_secret, masked, masked_arguments
from queueapp.producer.discovery import registry
from queueapp.producer.task import DuctorTask
from queueapp.store.store import Store
from queueapp.worker.context import JobContext
from tests.working import work


@queueapp.task
def pay(token: str, amount: int) -> None: ...


@queueapp.task(takes_context=True)
def with_context(context: object, password: str, amount: int) -> None: ...


@queueapp.task
def rotate(name: str, *secrets: str, cookie: str = "") -> None: ...


@pytest.mark.parametrize(
    ("task", "args", "shown"),
    [
        (pay, ["t", 5], [HIDDEN, 5]),
        (with_context, ["p", 5], [HIDDEN, 5]),
        (rotate, ["n", "a", "b", "c"], ["n", HIDDEN, HIDDEN, HIDDEN]),
    ],
)
def test_arguments_are_hidden_by_the_names_of_their_places(
    task: DuctorTask, args: list[object], shown: list[object]
) -> None:
    assert masked_arguments(task.module_path, args, {}) == (shown, {})


def test_an_argument_without_a_name_is_hidden() -> None:
    assert masked_arguments("gone.tasks.vanished", ["t", {"amount": 5}], {"amount": 5, "pin_token": 1}) == (
        [HIDDEN, HIDDEN],
        {"amount": 5, "pin_token": HIDDEN},
    )
    assert masked_arguments(pay.module_path, ["t", 5, "surplus"], {})[0] == [HIDDEN, 5, HIDDEN]


def test_names_are_looked_for_at_any_depth() -> None:
    assert masked({"a": [{"Password2": 1, "b": 2}]}) == {"a": [{"Password2": HIDDEN, "b": 2}]}


@pytest.mark.parametrize("name", ["API_KEY", "X-Api-Key", "Authorization", "csrfToken", "old_password"])
def test_a_secret_is_known_by_part_of_its_name(name: str) -> None:
    assert is_secret(name)
    assert not is_secret("amount")


def test_a_word_of_the_setting_may_be_spelt_as_a_header() -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "MASK": ["X-Pin"]}):
        assert is_secret("x_pin_code")


@queueapp.task(sensitive=["iban", "card.number", "cards.number", "more.pin", "notes"])
def charge(iban: str, card: Any = None, cards: Any = None, *notes: str, amount: int = 0, **more: Any) -> str:
    return f"charged {iban}"


@queueapp.task(sensitive=True, takes_context=True, typed=True, metadata={"who": "Ada"})
def whole(context: JobContext, name: str, *, fail: bool = False) -> tuple[str, str]:
    context.set_progress(1, 2, f"doing {name}")
    if fail:
        raise ValueError(f"no {name}") from KeyError(name)
    return ("done", name)


def broken_backoff(error: BaseException, errors: int) -> float:
    raise RuntimeError(f"what shall I do with {error}?")


@queueapp.task(sensitive=True, max_attempts=2, backoff=broken_backoff)
def secretive(name: str) -> None:
    raise ValueError(name)


@queueapp.task(max_attempts=2, backoff=broken_backoff)
def talkative(name: str) -> None:
    raise ValueError(name)


@queueapp.task(sensitive=True)
def returns() -> str:
    return "Ada"


@queueapp.task(sensitive=True, takes_context=True)
def tells(context: JobContext) -> None:
    context.set_progress(1, 2, "doing Ada")


@queueapp.task(typed=True)
def keeps(*values: Any) -> Any:
    return values[0]


CARD = {"number": "4111", "holder": "Ada"}


class TestSensitive:
    @pytest.mark.parametrize(
        ("args", "kwargs", "shown"),
        [
            (["DE02"], {"amount": 5}, ([HIDDEN], {"amount": 5})),
            ([], {"iban": "DE02"}, ([], {"iban": HIDDEN})),
            (["DE02", CARD], {}, ([HIDDEN, {"number": HIDDEN, "holder": "Ada"}], {})),
            (["DE02", None, [CARD, CARD]], {}, ([HIDDEN, None, [{"number": HIDDEN, "holder": "Ada"}] * 2], {})),
            (["DE02", "4111"], {}, ([HIDDEN, HIDDEN], {})),
            (["DE02", None, None, "a", "b"], {}, ([HIDDEN, None, None, HIDDEN, HIDDEN], {})),
            ([], {"pin": 7, "note": "n"}, ([], {"pin": HIDDEN, "note": "n"})),
        ],
    )
    def test_parameters_and_paths_into_them(
        self, args: list[Any], kwargs: dict[str, Any], shown: tuple[list[Any], dict[str, Any]]
    ) -> None:
        assert masked_arguments(charge.module_path, args, kwargs) == shown

    def test_the_job_says_so_when_its_task_is_gone(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        some, every = charge.enqueue("DE02", amount=5), whole.enqueue("Ada")
        ended = whole.enqueue("Ada")
        for path in (charge.module_path, whole.module_path):
            monkeypatch.delitem(registry, path)
        monkeypatch.setattr("queueapp.producer.discovery._imported", lambda name, broken: None)

        assert [shown(result.id).arguments() for result in (some, every)] == [
            ([HIDDEN], {"amount": HIDDEN}),
            ([HIDDEN], {}),
        ]
        monkeypatch.undo()
        work()
        monkeypatch.delitem(registry, whole.module_path)
        monkeypatch.setattr("queueapp.producer.discovery._imported", lambda name, broken: None)
        assert shown(ended.id).result() == HIDDEN
        assert "Ada" not in json.dumps(shown(ended.id).saved())

    @pytest.mark.parametrize("body", ["returns", "tells"])
    def test_what_a_job_left_says_so_when_its_task_is_gone(
        self, body: str, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: DuctorTask = returns if body == "returns" else tells
        result = made.enqueue()
        work()
        monkeypatch.delitem(registry, made.module_path)
        monkeypatch.setattr("queueapp.producer.discovery._imported", lambda name, broken: None)

        left = shown(result.id)
        assert "Ada" not in json.dumps([left.result(), left.saved()])
        assert HIDDEN in json.dumps([left.result(), left.saved()])

    def test_a_task_that_became_sensitive_hides_what_its_jobs_left(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result = keeps.enqueue("Ada")
        work()
        assert shown(result.id).result() == "Ada"
        monkeypatch.setitem(registry, keeps.module_path, keeps)
        queueapp.task(sensitive=True)(keeps.func)

        assert shown(result.id).result() == HIDDEN

    def test_true_hides_everything_but_that_and_how_far(self, store: Store) -> None:
        waiting, ended = whole.enqueue("Ada", fail=False), whole.enqueue("Ada")
        assert shown(waiting.id).arguments() == ([HIDDEN], {"fail": HIDDEN})
        assert shown(waiting.id).saved() == {"metadata": HIDDEN}
        work()

        assert whole.get_result(ended.id).return_value == ("done", "Ada"), "the program gets it all"
        assert shown(ended.id).result() == HIDDEN
        assert shown(ended.id).saved() == {
            "progress": {"done": 1, "total": 2, "message": HIDDEN},
            "metadata": HIDDEN,
        }

    def test_names_leave_the_result_to_be_seen(self, store: Store) -> None:
        result = charge.enqueue("DE02")
        work()

        assert shown(result.id).result() == "charged DE02"

    def test_what_true_raises_is_kept_without_its_words(
        self, store: Store, caplog: pytest.LogCaptureFixture, finished: list[Any]
    ) -> None:
        caplog.set_level(logging.DEBUG)
        result = whole.enqueue("Ada", fail=True)
        work()
        result.refresh()

        [error] = result.errors
        assert error.exception_class is ValueError
        assert "in whole" in error.traceback, "where it was raised is there"
        assert "builtins.KeyError" in error.traceback, "and what was behind it"
        record = shown(result.id).record
        for text in (error.traceback, str(record.errors[0].detail), caplog.text):
            assert "no Ada" not in text
            assert "'Ada'" not in text
        [(handled, status)] = finished
        assert isinstance(handled, Concealed)
        assert (handled.__context__, handled.__cause__) == (None, None)
        assert status == TaskResultStatus.FAILED
        assert [entry.levelname for entry in caplog.records if entry.name == TASKS_LOGGER][-1] == "ERROR"

    def test_nor_does_the_log_of_a_broken_backoff_have_them(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        for body in (secretive, talkative):
            body.enqueue("Ada")
            work()

        broken = [entry for entry in caplog.records if "A backoff raised" in entry.getMessage()]
        assert [bool(entry.exc_info) for entry in broken] == [False, True]

    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ("iban", "must be a list of the names"),
            ([5], "must be the name of a parameter"),
            (["a..b"], "must be the name of a parameter"),
            (["tokens"], "pay must have a parameter of this name; it has token, amount"),
            ([".number"], "must be the name"),
        ],
    )
    def test_a_name_that_hides_nothing_is_refused(self, wrong: Any, says: str) -> None:
        with pytest.raises(InvalidOption, match=f"sensitive.*{says}"):
            queueapp.task(sensitive=wrong)(pay.func)

    def test_false_and_none_hide_nothing(self) -> None:
        for nothing in (None, False, ()):
            made = queueapp.task(sensitive=nothing)(keeps.func)
            assert not made.sensitive
        registry[keeps.module_path] = keeps


def test_typed_values_are_shown_as_text(store: Store) -> None:
    value = {"exact": Decimal("1.10"), "token": UUID(int=1), "pair": (b"\xff",)}
    result = keeps.enqueue(value)
    shown_value = {"exact": "1.10", "token": HIDDEN, "pair": ["base64:/w=="]}

    assert shown(result.id).arguments() == ([shown_value], {})
    work()
    assert shown(result.id).result() == shown_value


def shown(job_id: str) -> JobView:
    found = find_job(job_id)
    assert found is not None
    return found


@pytest.fixture
def finished() -> Iterator[list[Any]]:
    """(the exception that was being handled, the status) at each `task_finished`."""
    seen: list[Any] = []

    def receive(task_result: Any, **_: Any) -> None:
        seen.append((sys.exc_info()[1], task_result.status))

    task_finished.connect(receive)
    yield seen
    task_finished.disconnect(receive)
