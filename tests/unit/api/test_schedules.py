"""Schedules over REST: one's own, of tasks of the API, with their next firings; read only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from queueapp.models import Schedule
from tests.unit.api import host
from tests.unit.api.host import ADD

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]


def made(name: str, **values: Any) -> Schedule:
    return Schedule.objects.create(
        **{"name": name, "task": ADD, "args": [1], "cron": "30 2 * * *", "zone": "Europe/Berlin", **values}
    )


def test_a_list_of_one_s_own_in_pages(opened: None, ask: Callable[..., Any]) -> None:
    mine = [made(f"s{number}", tenant="acme") for number in range(5)]
    made("theirs", tenant="globex")
    made("nobody's")
    made("hidden", tenant="acme", task=host.HIDDEN)
    names: list[str] = []
    page = "schedules/?page_size=2"
    while page:
        answer = ask("GET", page).json()
        names += [each["name"] for each in answer["results"]]
        assert len(answer["results"]) <= 2
        page = answer["next"]
    assert names == [row.name for row in mine]
    assert ask("GET", "schedules/?cursor=x").status_code == 400


def test_one_says_when_it_fires_and_never_its_arguments(opened: None, ask: Callable[..., Any]) -> None:
    row = made("nightly", tenant="acme", args=["a-secret"], kwargs={"note": "a-secret"}, overlap="skip")
    answer = ask("GET", f"schedules/{row.pk}/")
    told = answer.json()
    assert (told["name"], told["cron"], told["zone"], told["overlap"]) == (
        *("nightly", "30 2 * * *", "Europe/Berlin", "skip"),
    )
    assert len(told["firings"]) == 5
    assert told["firings"][0] == told["next_at"]
    assert "a-secret" not in answer.content.decode()


def test_one_that_is_off_has_no_firings(opened: None, ask: Callable[..., Any]) -> None:
    row = made("off", tenant="acme", enabled=False)
    told = ask("GET", f"schedules/{row.pk}/").json()
    assert (told["enabled"], told["next_at"], told["firings"]) == (False, None, [])


def test_one_without_a_tenant_is_the_default_tenant_s(opened: None, ask: Callable[..., Any]) -> None:
    row = made("plain")
    assert ask("GET", f"schedules/{row.pk}/").status_code == 404
    assert ask("GET", f"schedules/{row.pk}/", tenants="default").json()["tenant"] == "default"
