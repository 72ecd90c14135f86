"""What is shown of a run's contents, and what of its errors to those who may not see contents."""

from __future__ import annotations

from typing import Any

import pytest

from flows import declaring, flow, map_step, models, step
from flows.contents import SOMETHING, error_class, shown_input, shown_output, shown_step_output
from flows.definition import Definition
from queueapp import task
from queueapp.producer import discovery


@task(sensitive=["number", "holder.name"])
def pay(number: str, amount: int, holder: object = None) -> None: ...


@task(sensitive=True)
def whisper(text: object) -> None: ...


@task(takes_context=True, sensitive=["text"])
def told(context: Any, text: str, kind: str) -> None: ...


@task
def plain(value: object, *rest: object) -> None: ...


@pytest.fixture
def definition(monkeypatch: pytest.MonkeyPatch) -> Definition:
    monkeypatch.setattr(declaring, "registry", {})

    @flow(name="shown")
    def shown(
        card: str, amount: int, holder: str, text: str, notes: object, kind: str, mixed: str, password: str, last: str
    ) -> object:
        paid = step(pay, card, amount, kwargs={"holder": {"name": holder}})
        map_step(whisper, notes, after=paid)
        step(told, text, kind)
        step(plain, [mixed], {"secret": mixed}, last, name="plain")
        return {"paid": paid, "said": step(whisper, ["x", {"y": mixed}], name="said")}

    return shown.definition


def run_of(definition: Definition, **given: object) -> models.Run:
    known = dict.fromkeys(definition.parameters, "shown") | given
    return models.Run(flow=definition.name, definition=definition.version, input=known, output={"paid": 1})


def test_what_a_task_calls_sensitive_or_mask_names_is_hidden(definition: Definition) -> None:
    shown = shown_input(run_of(definition, amount={"token": "t0p", "eur": 3}), definition)
    hidden = {name for name, value in shown.items() if value == "********"}
    assert hidden == {"card", "holder", "notes", "text", "mixed", "password", "last"}
    assert (shown["kind"], shown["amount"]) == ("shown", {"token": "********", "eur": 3})


def test_what_went_to_a_task_that_is_gone_is_hidden(definition: Definition, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "registry", {})
    monkeypatch.setattr(discovery, "_is_host_s", lambda module: False)
    assert set(shown_input(run_of(definition), definition).values()) == {"********"}


def test_outputs_of_sensitive_tasks_and_of_flows_that_return_them_are_hidden(definition: Definition) -> None:
    assert shown_output(run_of(definition), definition) == "********"
    steps = {name: models.StepRun(step=name, output={"token": 1, "x": 2}) for name in ("said", "pay")}
    assert shown_step_output(steps["said"], definition) == "********"
    assert shown_step_output(steps["pay"], definition) == {"token": "********", "x": 2}


RAISED = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise ValueError("secret")\n'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("its job was lost 4 times", "its job was lost 4 times"),
        (f"{RAISED}ValueError: secret\nmore: secret\n", "ValueError"),
        (f"item 3: {RAISED}shop.errors.Refused: secret\n", "item 3: shop.errors.Refused"),
        (f"{RAISED}KeyError: secret\n\nDuring handling of it:\n\n{RAISED}OSError: secret\n", "OSError"),
        (f"{RAISED[40:]}secret\n", SOMETHING),
        (f"{RAISED}'secret': ", SOMETHING),
        ("secret " * 100, SOMETHING),
    ],
)
def test_of_an_error_the_class_shows_and_nothing_that_it_quotes(text: str, shown: str) -> None:
    assert error_class(text) == shown
    assert "secret" not in error_class(text)
