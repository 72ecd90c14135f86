"""What a skin may show: nothing whose name is in `MASK`, and no argument whose name nobody knows."""

from __future__ import annotations

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

import queueapp
from queueapp.inspection.masking import HIDDEN, is_secret, masked, masked_args
from queueapp.producer.task import DuctorTask


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
    assert masked_args(task.module_path, args) == shown


def test_an_argument_without_a_name_is_hidden() -> None:
    assert masked_args("gone.tasks.vanished", ["t", {"amount": 5}]) == [HIDDEN, HIDDEN]
    assert masked_args(pay.module_path, ["t", 5, "surplus"]) == [HIDDEN, 5, HIDDEN]


def test_names_are_looked_for_at_any_depth() -> None:
    assert masked({"a": [{"Password2": 1, "b": 2}]}) == {"a": [{"Password2": HIDDEN, "b": 2}]}


@pytest.mark.parametrize("name", ["API_KEY", "X-Api-Key", "Authorization", "csrfToken", "old_password"])
def test_a_secret_is_known_by_part_of_its_name(name: str) -> None:
    assert is_secret(name)
    assert not is_secret("amount")


def test_a_word_of_the_setting_may_be_spelt_as_a_header() -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "MASK": ["X-Pin"]}):
        assert is_secret("x_pin_code")
