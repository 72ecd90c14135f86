"""The page of a job says what it waits for; also of one that only the outbox has."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.store.ids import new_id
from tests.unit.admin.conftest import Login, enqueue, keep, lease, public
from tests.unit.admin.test_dead_letters import text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]


def page(client: Client, job_id: str) -> Any:
    return client.get(reverse("admin:queueapp_jobs_change", args=[quote(job_id)]))


def test_what_a_job_waits_for_and_who_holds_its_place(login: Login) -> None:
    shards.store("default").configure(1, scopes=[ScopeLimits(tenant="acme", max_in_flight=1)])
    running, waiting = public(enqueue(2))
    lease()
    answer = page(login("view_operations"), waiting)
    shown = text(answer)
    assert f"Its tenant acme is at its ceiling: 1 of 1 running, held by {running}." in shown
    assert "it is 1st in its lane." in shown
    assert f'href="{reverse("admin:queueapp_jobs_change", args=[quote(running)])}"' in shown
    assert "start" in shown


def test_a_job_of_the_outbox_has_a_page(login: Login) -> None:
    entry = keep(error="The store is full.", tries=1)
    answer = page(login("view_operations"), entry.job_id)
    assert answer.status_code == 200
    assert "The store did not take it (The store is full): the outbox keeps it" in text(answer)
    assert "There is no job of this id" not in text(answer)


def test_a_job_that_is_gone_says_so_once(login: Login) -> None:
    answer = page(login("view_operations"), f"{shards.keys('default').code}.0.{new_id()}")
    assert answer.status_code == 404
    assert "There is no job of this id" in text(answer)
    assert "The store knows no job" not in text(answer)


def test_while_the_store_is_away_the_outbox_still_answers(login: Login, away: None) -> None:
    entry = keep(error="The store is away.", tries=1)
    shown = text(page(login("view_operations"), entry.job_id))
    assert "The store did not take it (The store is away)" in shown
    assert "The store at 127.0.0.1" in shown
