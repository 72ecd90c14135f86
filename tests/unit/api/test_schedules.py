"""Schedules over REST: one's own, of tasks of the API, with their next firings; read only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from queueapp.models import Schedule
from queueapp.producer import discovery
from tests.unit.api import host
from tests.unit.api.host import ADD
from tests.unit.schedules.conftest import stored

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


def test_in_a_fresh_process_a_task_says_whose_it_is_before_anything_is_told(
    opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the `tasks` modules declare is read first, not what some view has happened to import."""
    name = "shop.tasks.report"
    row = made("acme's report", task=name)

    def load(label: str, package: str) -> None:
        discovery.registry.setdefault(name, host.add.using(tenant="acme"))

    monkeypatch.setattr(discovery, "_broken", None)
    monkeypatch.setattr(discovery, "_load", load)
    try:
        assert ask("GET", "schedules/", tenants="default").json()["results"] == []
        assert ask("GET", f"schedules/{row.pk}/", tenants="default").status_code == 404
        assert ask("GET", f"schedules/{row.pk}/").json()["tenant"] == "acme"
    finally:
        discovery.registry.pop(name, None)


def test_one_whose_task_nobody_knows_is_for_who_may_speak_for_all(opened: None, ask: Callable[..., Any]) -> None:
    lost = made("lost", task="shop.tasks.gone")
    mine = made("mine", task="shop.tasks.gone", tenant="acme")
    for tenants in ("default", "acme"):
        assert ask("GET", f"schedules/{lost.pk}/", tenants=tenants).status_code == 404
    assert ask("GET", f"schedules/{mine.pk}/").json()["tenant"] == "acme"
    told = ask("GET", "schedules/", tenants="ALL").json()["results"]
    assert [(each["name"], each["tenant"]) for each in told] == [("lost", None), ("mine", "acme")]


def test_the_note_is_for_who_may_see_contents(
    opened: None, ask: Callable[..., Any], signed_in: Callable[..., Any]
) -> None:
    row = made("noted", tenant="acme")
    Schedule.objects.update(outcome="refused", note="cost is -1")
    told = ask("GET", f"schedules/{row.pk}/").json()
    assert (told["outcome"], told["note"]) == ("refused", None)
    signed_in("view_payload")
    assert ask("GET", f"schedules/{row.pk}/").json()["note"] == "cost is -1"


def test_a_list_costs_one_query_however_many_are_not_one_s_own(
    opened: None, ask: Callable[..., Any], django_assert_num_queries: Any
) -> None:
    Schedule.objects.bulk_create(
        Schedule(name=f"s{number}", task=ADD, tenant="globex", cron="0 3 * * *") for number in range(450)
    )
    made("mine", tenant="acme")
    with django_assert_num_queries(1):
        assert [each["name"] for each in ask("GET", "schedules/").json()["results"]] == ["mine"]


def test_one_that_no_clock_can_follow_has_no_firings(opened: None, ask: Callable[..., Any]) -> None:
    row = made("far", tenant="acme")
    Schedule.objects.update(start=stored(datetime(9999, 12, 31, 22, tzinfo=UTC)), next_ms=None)
    assert ask("GET", f"schedules/{row.pk}/").json()["firings"] == []
