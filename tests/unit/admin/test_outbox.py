"""Outbox entries and the history of dead letters in the admin."""

from __future__ import annotations

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from queueapp.models import DeadLetterInspection, OutboxEntry
from tests.unit.admin.conftest import IN_AN_ARGUMENT, SECRET, Login, keep
from tests.unit.admin.test_dead_letters import text

pytestmark = pytest.mark.django_db

LIST = reverse("admin:queueapp_outboxentry_changelist", urlconf="tests.unit.admin.urls")
HISTORY = reverse("admin:queueapp_deadletterinspection_changelist", urlconf="tests.unit.admin.urls")


def page_of(entry: OutboxEntry) -> str:
    return reverse("admin:queueapp_outboxentry_change", args=[entry.pk], urlconf="tests.unit.admin.urls")


def test_arguments_take_a_right_and_are_masked(login: Login) -> None:
    entry = keep()
    without = text(login("view_outboxentry").get(page_of(entry)))
    within = text(login("view_outboxentry", "view_payload").get(page_of(entry)))
    assert entry.job_id in without
    assert "amount" not in without
    assert IN_AN_ARGUMENT not in without + within
    assert "&quot;amount&quot;: 3" in within
    assert SECRET not in within


def test_the_list_reads_no_arguments(admin_client: Client) -> None:
    entry = keep()
    with CaptureQueriesContext(connection) as queries:
        shown = text(admin_client.get(LIST))
    assert f"…{entry.job_id[-10:]}" in shown
    assert len(queries) <= 10
    assert not [query for query in queries if '"payload"' in query["sql"] or '"job"' in query["sql"]]


def action(name: str, *entries: OutboxEntry, **more: str) -> dict[str, object]:
    return {"action": name, ACTION_CHECKBOX_NAME: [entry.pk for entry in entries], **more}


def test_entries_are_tried_again_once_that_is_confirmed(admin_client: Client) -> None:
    refused, other = keep(state="refused", tries=3), keep()
    asked = admin_client.post(LIST, action("try_again", refused))
    assert list(asked.context["chosen"]) == [refused.pk]
    refused.refresh_from_db()
    assert refused.state == "refused"
    admin_client.post(LIST, action("try_again", refused, confirmed="yes"))
    refused.refresh_from_db()
    other.refresh_from_db()
    assert refused.state == "waiting"
    assert refused.due <= timezone.now() < other.due
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["try again now"]


def test_a_whole_list_is_tried_again_over_its_pages(admin_client: Client) -> None:
    entries = [keep(state="refused", tenant="acme") for _ in range(3)]
    other = keep(state="refused", tenant="globex")
    address, form = f"{LIST}?q=acme", action("try_again", entries[0], select_across="1")
    asked = admin_client.post(address, form)
    assert asked.context["total"] == 3
    assert len(asked.context["chosen"]) == 1
    admin_client.post(address, form | {"confirmed": "yes"})
    assert set(OutboxEntry.objects.filter(state="refused")) == {other}


@pytest.mark.parametrize("held", [(), ("operate_pool",), ("change_outboxentry",), ("discard_job",)])
def test_trying_again_takes_the_right_to_operate_jobs(login: Login, held: tuple[str, ...]) -> None:
    entry = keep(state="refused")
    client = login("view_outboxentry", *held)
    assert "try_again" not in text(client.get(LIST))
    client.post(LIST, action("try_again", entry, confirmed="yes"))
    entry.refresh_from_db()
    assert entry.state == "refused"
    assert "try_again" in text(login("view_outboxentry", "operate_job").get(LIST))


def test_entries_are_deleted_by_those_who_may(admin_client: Client, login: Login) -> None:
    entry = keep()
    login("view_outboxentry").post(LIST, action("delete_selected", entry, post="yes"))
    assert OutboxEntry.objects.exists()
    admin_client.post(LIST, action("delete_selected", entry, post="yes"))
    assert not OutboxEntry.objects.exists()


@pytest.mark.parametrize("search", ["acme", "shop.tasks", "none"])
def test_both_lists_can_be_searched(admin_client: Client, search: str) -> None:
    keep()
    DeadLetterInspection.objects.create(job_id="a", tenant="acme", action="noted", note="hm", by="ann")
    for address in (LIST, HISTORY):
        assert admin_client.get(address, {"q": search}).status_code == 200


def test_the_history_is_read_only_even_for_superusers(admin_client: Client) -> None:
    row = DeadLetterInspection.objects.create(job_id="a", action="noted", note="hm", by="ann")
    address = reverse("admin:queueapp_deadletterinspection_change", args=[row.pk])
    assert "hm" in text(admin_client.get(address))
    assert admin_client.post(address, {"note": "else"}).status_code == 403
    assert "delete_selected" not in text(admin_client.get(HISTORY))
