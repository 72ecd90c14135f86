"""Schedules in the admin: the next firings, who sees arguments, what code declares, actions that ask first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from queueapp import Debounce, task
from queueapp.models import Schedule
from queueapp.store import shards
from tests.producing import add
from tests.unit.admin.conftest import Login
from tests.unit.admin.test_dead_letters import text
from tests.unit.schedules.conftest import stored

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

LIST = reverse("admin:queueapp_schedule_changelist", urlconf="tests.unit.admin.urls")
ADD = reverse("admin:queueapp_schedule_add", urlconf="tests.unit.admin.urls")
PREVIEW = reverse("admin:queueapp_schedule_preview", urlconf="tests.unit.admin.urls")
IN_AN_ARGUMENT = "invoice-of-acme"


@task(debounce=Debounce("{opt}", 5))
def odd(opt: Any = frozenset()) -> None: ...


def made(**values: Any) -> Schedule:
    given = {"name": "nightly", "task": add.module_path, "args": [IN_AN_ARGUMENT], "kwargs": {"b": "x"}}
    return Schedule.objects.create(**{**given, "cron": "30 2 * * *", "zone": "Europe/Berlin", **values})


def page_of(row: Schedule) -> str:
    return reverse("admin:queueapp_schedule_change", args=[row.pk], urlconf="tests.unit.admin.urls")


def form(**values: str) -> dict[str, str]:
    given = {"name": "weekly", "enabled": "on", "task": add.module_path, "args": "[1]", "kwargs": "{}", "options": "{}"}
    given |= {"cron": "0 6 * * 1", "zone": "UTC", "jitter_seconds": "0", "catch_up": "one", "overlap": "allow"}
    return given | values


def posted(row: Schedule, action: str, **more: str) -> dict[str, Any]:
    return {"action": action, ACTION_CHECKBOX_NAME: [str(row.pk)], **more}


def test_one_is_made_and_its_next_firings_are_told(admin_client: Client) -> None:
    answer = admin_client.post(ADD, form(), follow=True)
    row = Schedule.objects.get()
    assert (row.cron, row.args, row.source) == ("0 6 * * 1", [1], "admin")
    shown = text(answer)
    assert shown.count("06:00:00 UTC") >= 5
    assert "Next firings: Mon " in shown
    assert text(admin_client.get(page_of(row))).count("06:00:00 UTC") == 5


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cron": "61 * * * *"}, "must be five fields"),
        ({"cron": ""}, "both empty"),
        ({"start_0": "9999-12-31", "start_1": "12:00"}, "a moment of the years 1970 to 2999"),
        ({"task": f"{__name__}.odd", "args": "[]"}, "debounce has a key with the field"),
        ({"task": "shop.nowhere"}, "is not known"),
        ({"args": "[1, 2, 3]"}, "do not fit"),
        ({"args": '{"a": 1}'}, "must be a list"),
        ({"options": '{"run_after": 1}'}, "run_after"),
        ({"zone": "Berlin"}, "time zone"),
        ({"pool": "nowhere"}, "is not a known pool"),
    ],
)
def test_what_is_wrong_is_told_beside_its_field(admin_client: Client, values: dict[str, str], said: str) -> None:
    assert said in text(admin_client.post(ADD, form(**values)))
    assert not Schedule.objects.exists()


def test_arguments_take_a_right(login: Login) -> None:
    row = made(kwargs={"password": "hunter2-is-secret"})
    pages = {
        held: text(login(*held).get(page_of(row)))
        for held in (
            ("view_schedule",),
            ("change_schedule",),
            ("view_schedule", "view_payload"),
            ("change_schedule", "view_payload"),
        )
    }
    assert [IN_AN_ARGUMENT in page for page in pages.values()] == [False, False, True, True]
    assert ["hunter2" in page for page in pages.values()] == [False, False, False, True], "only who edits it sees it"


def test_who_may_not_see_arguments_changes_the_rest(login: Login) -> None:
    row = made()
    values = form(name="nightly", cron="0 7 * * *")
    del values["args"], values["kwargs"], values["options"]
    answer = login("change_schedule", "view_schedule").post(page_of(row), values)
    assert answer.status_code == 302
    row.refresh_from_db()
    assert (row.cron, row.args) == ("0 7 * * *", [IN_AN_ARGUMENT])


def test_a_fault_of_a_field_that_is_not_shown_is_told_above(login: Login) -> None:
    row = made(args=[1, 2, 3])
    values = form(name="nightly")
    del values["args"], values["kwargs"], values["options"]
    answer = login("change_schedule", "view_schedule").post(page_of(row), values)
    assert answer.status_code == 200
    assert "do not fit" in text(answer)


def test_what_code_declares_is_read_only_but_for_the_switch(admin_client: Client) -> None:
    row = made(source="code")
    page = text(admin_client.get(page_of(row)))
    assert 'name="enabled"' in page
    assert 'name="cron"' not in page
    assert 'name="args"' not in page
    assert admin_client.post(page_of(row), {"cron": "0 0 * * *"}).status_code == 302  # the box is not ticked
    row.refresh_from_db()
    assert (row.cron, row.enabled) == ("30 2 * * *", False)
    assert admin_client.post(page_of(row).replace("change", "delete"), {"post": "yes"}).status_code == 403
    admin_client.post(LIST, posted(row, "delete_selected", post="yes"))
    assert Schedule.objects.exists()


def test_what_left_the_code_is_said_and_stays_off_and_can_be_deleted(admin_client: Client) -> None:
    row = made(source="gone", enabled=False)
    assert "no longer in code" in text(admin_client.get(LIST))
    assert 'name="enabled"' not in text(admin_client.get(page_of(row)))
    answer = admin_client.post(LIST, posted(row, "turn_on", confirmed="yes"), follow=True)
    assert "stays off" in text(answer)
    assert not Schedule.objects.get().enabled
    admin_client.post(LIST, posted(row, "delete_selected", post="yes"))
    assert not Schedule.objects.exists()


def test_fire_now_asks_first_and_is_written_down(admin_client: Client) -> None:
    row = made()
    asked = text(admin_client.post(LIST, posted(row, "fire_now")))
    assert "nightly" in asked
    assert shards.reads("default").overview().waiting == 0

    answer = admin_client.post(LIST, posted(row, "fire_now", confirmed="yes"), follow=True)

    row.refresh_from_db()
    assert f"was fired: job {row.last_job}" in text(answer)
    assert shards.reads("default").overview().waiting == 1
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.change_message) == (str(row.pk), f"fired by hand: job {row.last_job}")


def test_what_could_not_be_fired_is_told(admin_client: Client) -> None:
    row = made(overlap="skip")
    admin_client.post(LIST, posted(row, "fire_now", confirmed="yes"))
    answer = admin_client.post(LIST, posted(row, "fire_now", confirmed="yes"), follow=True)
    assert "was not fired" in text(answer)
    assert shards.reads("default").overview().waiting == 1
    assert LogEntry.objects.count() == 1


def test_off_and_on_ask_first_and_are_written_down(admin_client: Client) -> None:
    row = made()
    admin_client.post(LIST, posted(row, "turn_off"))
    assert Schedule.objects.get().enabled
    for action, on in (("turn_off", False), ("turn_on", True)):
        admin_client.post(LIST, posted(row, action, confirmed="yes"))
        row.refresh_from_db()
        assert (row.enabled, row.next_ms is not None) == (on, on)
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == ["turned off", "turned on"]


@pytest.mark.parametrize(
    ("held", "fires", "switches"),
    [
        (("view_schedule",), False, False),
        (("view_schedule", "operate_job"), True, False),
        (("change_schedule",), False, True),
    ],
)
def test_actions_take_their_rights(login: Login, held: tuple[str, ...], fires: bool, switches: bool) -> None:
    row = made()
    client = login(*held)
    page = text(client.get(LIST))
    assert ('value="fire_now"' in page, 'value="turn_off"' in page) == (fires, switches)
    client.post(LIST, posted(row, "fire_now", confirmed="yes"))
    client.post(LIST, posted(row, "turn_off", confirmed="yes"))
    assert (shards.reads("default").overview().waiting, Schedule.objects.get().enabled) == (int(fires), not switches)


class TestPreview:
    def test_next_firings_on_the_clock_of_the_zone(self, login: Login) -> None:
        client = login("view_schedule")
        told = client.get(PREVIEW, {"cron": "30 2 * * *", "zone": "Asia/Kolkata", "every_seconds": ""}).json()
        assert (len(told["firings"]), told["fault"]) == (5, "")
        assert all(each.endswith("02:30:00 IST") for each in told["firings"])
        assert len(client.get(PREVIEW, {"every_seconds": "90"}).json()["firings"]) == 5
        assert client.get(PREVIEW, {"cron": ""}).json() == {"firings": [], "fault": ""}

    @pytest.mark.parametrize(
        "given",
        [
            {"cron": "61 * * * *"},
            {"cron": "0 0 30 2 *"},
            {"cron": "0 0 * * *", "zone": "../../etc/passwd"},
            {"every_seconds": "0"},
            {"every_seconds": "999999999"},
            {"cron": "\0" * 5},
        ],
    )
    def test_what_is_wrong_is_said(self, login: Login, given: dict[str, str]) -> None:
        told = login("add_schedule").get(PREVIEW, given).json()
        assert told["firings"] == []
        assert told["fault"]


def test_the_page_loads_the_script_that_asks_for_it(admin_client: Client) -> None:
    page = text(admin_client.get(ADD))
    assert "queueapp/schedules.js" in page
    assert f'data-ductor-firings="{PREVIEW}"' in page


def test_a_row_that_sql_made_unreadable_can_still_be_opened(admin_client: Client) -> None:
    row = made()
    Schedule.objects.update(cron="nonsense", zone="Nowhere")
    assert admin_client.get(page_of(row)).status_code == 200
    assert admin_client.get(LIST).status_code == 200


def test_one_that_cannot_be_turned_on_says_why(admin_client: Client) -> None:
    row = made(enabled=False)
    Schedule.objects.update(zone="Nowhere")
    answer = admin_client.post(LIST, posted(row, "turn_on", confirmed="yes"), follow=True)
    assert "was not turned on: zone is" in text(answer)
    assert not Schedule.objects.get().enabled


def test_one_that_no_clock_can_follow_can_still_be_opened(admin_client: Client) -> None:
    row = made()
    Schedule.objects.update(start=stored(datetime(9999, 12, 31, 22, tzinfo=UTC)), next_ms=None)
    shown = text(admin_client.get(page_of(row)))
    assert "it cannot be read: OverflowError" in shown


def test_arguments_cannot_be_guessed_by_the_address(login: Login) -> None:
    made()
    client = login("view_schedule")
    for lookup in ("args__0__startswith", "kwargs__b", "options__cost"):
        assert client.get(LIST, {lookup: "i"}).status_code == 400
