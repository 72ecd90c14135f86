"""The arguments of a dead letter in the admin: shown masked, edited, looked at once more, saved, written down."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

import queueapp
from queueapp.codec import decode_arguments
from queueapp.inspection.jobs import find_job
from queueapp.inspection.masking import HIDDEN
from queueapp.models import DeadLetterInspection
from queueapp.store import shards
from queueapp.store.records import Failed
from tests.unit.admin.conftest import Login, enqueue, fail, lease, public

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

SECRET = "hunter2-is-secret"


@queueapp.task
def send(to: str, amount: int = 0, *, password: str = "", lines: object = None) -> None: ...


@pytest.fixture
def letter() -> str:
    """A dead letter with something to see and something to mask."""
    send.using(tenant="acme", on_commit=False).enqueue("ann", amount=3, password=SECRET)
    return die()


def die() -> str:
    [(job_id, attempts)] = lease()
    shards.store("default").fail([Failed(id=job_id, attempts=attempts, run_ms=1, error=b"{}")])
    return public([job_id])[0]


def page(letter: str) -> str:
    return reverse("admin:queueapp_deadletters_edit", args=[quote(letter)])


def form(**fields: Any) -> dict[str, str]:
    """As the browser sends it, with what the form showed unless told otherwise."""
    shown = {"args": ["ann"], "kwargs": {"amount": 3, "password": HIDDEN}, "edits": 0, "note": ""}
    return {
        name: value if isinstance(value, str) else json.dumps(value).replace(", ", ",\r\n ")
        for name, value in (shown | fields).items()
    }


def payload(letter: str) -> tuple[Any, Any]:
    found = find_job(letter)
    assert found is not None
    assert found.record.payload is not None
    return decode_arguments(found.record.payload)[:2]


def text(answer: Any) -> str:
    return str(answer.content.decode())


def test_the_form_shows_what_it_has_masked(admin_client: Client, letter: str) -> None:
    shown = text(admin_client.get(page(letter)))
    assert "&quot;ann&quot;" in shown
    assert "&quot;amount&quot;: 3" in shown
    assert f"&quot;password&quot;: &quot;{HIDDEN}&quot;" in shown
    assert SECRET not in shown


def test_first_it_says_what_would_change(admin_client: Client, letter: str) -> None:
    asked = form(kwargs={"amount": 5, "password": HIDDEN}, note="in cents")
    answer = admin_client.post(page(letter), asked)
    assert answer.context["changes"] == [("kwargs.amount", "3", "5")]
    assert SECRET not in text(answer)
    assert payload(letter)[1]["amount"] == 3
    assert not DeadLetterInspection.objects.exists()
    again = admin_client.post(page(letter), {**asked, "act": "again"})
    assert "changes" not in again.context, "the form once more"
    assert again.context["typed"]["note"] == "in cents"
    assert "&quot;amount&quot;: 5" in text(again)
    assert payload(letter)[1]["amount"] == 3


@pytest.mark.parametrize(("act", "state"), [("save", "dead"), ("retry", "pending")])
def test_confirmed_it_is_saved_and_written_down(login: Login, letter: str, act: str, state: str) -> None:
    client = login("view_operations", "view_payload", "operate_job")
    asked = form(args=["bob"], kwargs={"amount": 5, "password": HIDDEN}, note="in cents", act=act)
    answer = client.post(page(letter), asked, follow=True)
    assert payload(letter) == (["bob"], {"amount": 5, "password": SECRET})
    found = find_job(letter)
    assert found is not None
    assert found.state == state
    assert "Edited: args[0], kwargs.amount." in text(answer)
    assert SECRET not in text(answer)
    assert ("1 time, at" in text(answer)) is True
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.user_id) == (letter, entry.user.pk)
    assert entry.change_message.startswith("edit: args[0], kwargs.amount")
    assert entry.change_message.endswith("in cents")
    row = DeadLetterInspection.objects.order_by("id").first()
    assert row is not None
    assert (row.action, row.by, row.note) == (
        "edited",
        entry.user.get_username(),
        "edited: args[0], kwargs.amount; in cents",
    )


def test_a_hidden_value_is_replaced_by_what_is_written_over_it(admin_client: Client, letter: str) -> None:
    asked = form(kwargs={"amount": 3, "password": "n3w-secret"})
    answer = admin_client.post(page(letter), asked)
    assert answer.context["changes"] == [("kwargs.password", f'"{HIDDEN}"', f'"{HIDDEN}"')]
    answer = admin_client.post(page(letter), {**asked, "act": "save"}, follow=True)
    assert payload(letter)[1] == {"amount": 3, "password": "n3w-secret"}
    assert "n3w-secret" not in text(answer)
    assert "n3w-secret" not in LogEntry.objects.get().change_message


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"args": "[1"}, "args is no JSON"),
        ({"args": ""}, "args is no JSON"),
        ({"args": {"a": 1}}, "args must be a list"),
        ({"kwargs": "[]"}, "kwargs must be a mapping"),
        ({"kwargs": {"note": HIDDEN}}, "kwargs.note is"),
        ({"kwargs": {"surplus": 1}}, "do not fit"),
        ({"args": [HIDDEN]}, "args[0] is"),
        ({"surprise": "x"}, "which nobody knows"),
        ({}, "has these arguments already"),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("act", ["", "save"])
def test_what_is_wrong_is_told_above_the_form(
    admin_client: Client, letter: str, fields: dict[str, Any], why: str, act: str
) -> None:
    answer = admin_client.post(page(letter), form(**fields, **({"act": act} if act else {})))
    assert why in answer.context["fault"]
    assert answer.context["typed"]["args"] == form(**fields)["args"], "what was typed is not lost"
    assert "&quot;ann&quot;" in text(answer), "what it has stands there, too"
    assert SECRET not in text(answer)
    assert payload(letter) == (["ann"], {"amount": 3, "password": SECRET})
    assert not LogEntry.objects.exists()


def test_of_two_at_once_the_second_sees_who_what_and_what_it_has_now(admin_client: Client, letter: str) -> None:
    first = form(args=["bob"], note="wrong address", act="save")
    admin_client.post(page(letter), first)
    answer = admin_client.post(page(letter), form(kwargs={"amount": 9, "password": HIDDEN}, act="save"))
    fault = answer.context["fault"]
    assert "was edited meanwhile" in fault
    assert "by admin (edited: args[0]; wrong address)" in fault
    assert "&quot;bob&quot;" in text(answer)
    assert payload(letter) == (["bob"], {"amount": 3, "password": SECRET})
    assert answer.context["edits"] == "1"
    admin_client.post(page(letter), form(args=["bob"], kwargs={"amount": 9, "password": HIDDEN}, edits=1, act="save"))
    assert payload(letter) == (["bob"], {"amount": 9, "password": SECRET})


def test_what_is_no_dead_letter_leads_back(admin_client: Client, letter: str) -> None:
    shards.store("default").retry_from_dlq([letter[-22:]])
    for answer in (admin_client.get(page(letter)), admin_client.post(page(letter), form(args=["bob"], act="save"))):
        assert answer.status_code == 302
        assert answer["Location"] == reverse("admin:queueapp_jobs_change", args=[quote(letter)])
    assert payload(letter)[0] == ["ann"]
    assert admin_client.get(page("nobody\0")).status_code == 302


def test_a_task_that_is_not_known_here_is_told_at_once(admin_client: Client) -> None:
    [unknown] = fail()
    assert "No task is called" in admin_client.get(page(unknown)).context["fault"]


def test_its_page_leads_there_for_those_who_may(login: Login, letter: str) -> None:
    job_page = reverse("admin:queueapp_jobs_change", args=[quote(letter)])
    for held, may in ((("operate_job",), False), (("view_payload",), False), (("operate_job", "view_payload"), True)):
        shown = text(login("view_operations", *held).get(job_page))
        assert (page(letter) in shown) is may, held
    waiting = public(enqueue())[0]
    client = login("view_operations", "operate_job", "view_payload")
    shown = text(client.get(reverse("admin:queueapp_jobs_change", args=[quote(waiting)])))
    assert "edit/" not in shown


def test_what_a_run_saved_goes_and_that_is_said(admin_client: Client) -> None:
    send.using(tenant="acme", on_commit=False).enqueue("ann")
    [(job_id, attempts)] = lease()
    shards.store("default").save(job_id, attempts, {"checkpoint": b"1"})
    shards.store("default").fail([Failed(id=job_id, attempts=attempts, run_ms=1, error=b"{}")])
    answer = admin_client.post(page(public([job_id])[0]), form(args=["bob"], kwargs={}))
    assert "it begins anew" in text(answer)
