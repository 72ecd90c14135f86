"""Pause, resume, drain and obliterate in the admin: confirmed first, done once, and logged."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from queueapp.models import Pool
from queueapp.store import shards
from tests.unit.admin.conftest import Login, enqueue, fail, lease, public
from tests.unit.admin.test_dead_letters import states, text

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_url")]

POOL = "/admin/queueapp/operations/default/"
OPERATE = f"{POOL}operate/"


def said(answer: object) -> list[str]:
    return [str(message) for message in answer.context["messages"]]  # type: ignore[attr-defined]  # the stubs have other answers of the test client


@pytest.mark.parametrize("scope", [{}, {"tenant": "acme"}, {"tenant": "acme", "lane": "slow"}], ids=str)
def test_pause_and_resume_are_confirmed_and_logged(admin_client: Client, scope: dict[str, str]) -> None:
    reads = shards.reads("default")
    asked = admin_client.post(OPERATE, {"verb": "pause", **scope})
    assert "Nothing more of it starts" in text(asked)
    assert not reads.is_paused(**scope)
    done = admin_client.post(OPERATE, {"verb": "pause", "confirmed": "yes", **scope}, follow=True)
    about = " ".join(["default", *scope.values()])
    assert said(done) == [f"{about}: paused."]
    assert reads.is_paused(**scope)
    admin_client.post(OPERATE, {"verb": "resume", "confirmed": "yes", **scope})
    assert not reads.is_paused(**scope)
    entries = LogEntry.objects.order_by("pk").values_list("object_repr", "change_message")
    assert list(entries) == [(about, "pause: paused"), (about, "resume: at work")]


def test_drain_pauses_and_says_what_runs(admin_client: Client) -> None:
    enqueue(2)
    lease(count=1)
    done = admin_client.post(OPERATE, {"verb": "drain", "confirmed": "yes"}, follow=True)
    assert said(done) == ["default: paused, 1 job still runs."]
    assert Pool.objects.get(name="default").paused
    [entry] = LogEntry.objects.all()
    assert entry.change_message == "drain: paused, 1 job still runs"


def test_obliterate_wants_the_name_typed_and_no_running_job(admin_client: Client) -> None:
    dead, waiting = fail(), public(enqueue())
    form = {"verb": "obliterate", "confirmed": "yes"}
    assert admin_client.post(OPERATE, form | {"typed": "reports"}).context["mistyped"]
    assert states([*dead, *waiting]) == ["dead", "pending"]
    lease(count=1)
    refused = admin_client.post(OPERATE, form | {"typed": "default"}, follow=True)
    assert said(refused)[0].startswith("1 job of the pool 'default' run")
    done = admin_client.post(OPERATE, form | {"typed": "default", "force": "yes"}, follow=True)
    assert said(done) == ["default: 2 jobs removed."]
    assert shards.reads("default").jobs([job_id[-22:] for job_id in (*dead, *waiting)]) == [None, None]
    assert [entry.change_message for entry in LogEntry.objects.all()] == ["obliterate: 2 jobs removed"]


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({}, "Nothing was chosen"),
        ({"verb": "erase", "confirmed": "yes"}, "Nothing was chosen"),
        ({"verb": "drain", "tenant": "acme", "confirmed": "yes"}, "Only a whole pool"),
        ({"verb": "pause", "lane": "slow", "confirmed": "yes"}, "A lane is a tenant's"),
    ],
)
def test_what_cannot_be_is_said_and_changes_nothing(admin_client: Client, form: dict[str, str], message: str) -> None:
    done = admin_client.post(OPERATE, form, follow=True)
    assert said(done)[0].startswith(message)
    assert not shards.reads("default").is_paused()
    assert not LogEntry.objects.exists()


def test_the_buttons_are_for_those_who_may(admin_client: Client, login: Login) -> None:
    assert 'value="obliterate"' in text(admin_client.get(POOL))
    assert 'value="pause"' not in text(login("view_operations", "operate_job").get(POOL))
    assert admin_client.post("/admin/queueapp/operations/nowhere/operate/", {"verb": "pause"}).status_code == 404
