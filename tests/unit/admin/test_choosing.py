"""A form that acts and names what nobody knows: refused by name, and nothing is done, least of all to more jobs."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from queueapp.store import shards
from tests.unit.admin.conftest import enqueue, fail, public
from tests.unit.admin.test_dead_letters import DISCARD, EXPORT, RETRY, states
from tests.unit.admin.test_jobs import CANCEL, LIST
from tests.unit.admin.test_operating import OPERATE, said

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

CONFIRMED = {"confirmed": "yes"}
UNKNOWN: dict[str, dict[str, Any]] = {
    "state": {"scope": "all", "state": "running"},
    "another action's state": {"scope": "all", "state": "ended"},
    "before": {"scope": "all", "before": "yesterday"},
    "scope": {"scope": "everything"},
    "pool": {"scope": "all", "pool": "nowhere"},
    "field": {"scope": "all", "tenants": "acme"},
    "twice": {"scope": "all", "tenant": ["globex", ""]},
    "space": {"scope": "all", "tenant": " "},
    "sign": {"scope": "all", "tenant": "ac\x00me"},
}


@pytest.mark.parametrize("form", UNKNOWN.values(), ids=UNKNOWN.keys())
@pytest.mark.parametrize("address", [CANCEL, RETRY, DISCARD, EXPORT])
def test_what_nobody_knows_is_refused_by_name(admin_client: Client, address: str, form: dict[str, Any]) -> None:
    dead, waiting = fail(2), public(enqueue(2))
    for confirmed in ({}, {**CONFIRMED, "shown": "2", "typed": f"{address.rstrip('/').rpartition('/')[2]} 2"}):
        answer = admin_client.post(address, form | confirmed, follow=True)
        first = said(answer)[0]
        values = [each for value in form.values() for each in (value if isinstance(value, list) else [value])]
        assert any(name in first for name in ("tenants", *form)), first
        assert "twice" in first or any(value in first for value in (*values, *form) if value != "all"), first
    assert states([*dead, *waiting]) == ["dead", "dead", "pending", "pending"]
    assert not LogEntry.objects.exists()


def test_conditions_are_looked_at_only_where_all_that_match_are_meant(admin_client: Client) -> None:
    """Nothing chosen is said as that, whatever else the form has."""
    [died] = fail()
    for form in ({"state": "running"}, {"before": "yesterday", "scope": "page"}):
        assert said(admin_client.post(RETRY, form, follow=True))[0].startswith("No job was chosen")
    assert admin_client.post(RETRY, {"state": "running", "ids": died}).context["total"] == 1


@pytest.mark.parametrize(
    "form", [{"tenat": "acme"}, {"tenant": " "}, {"tenant": ["acme", ""]}, {"lane": "sl\x00ow"}], ids=str
)
def test_a_whole_pool_is_not_paused_for_a_field_that_was_misspelt(admin_client: Client, form: dict[str, Any]) -> None:
    answer = admin_client.post(OPERATE, {"verb": "pause", **CONFIRMED, **form}, follow=True)
    assert said(answer)[0].endswith("Nothing was changed.")
    assert not shards.reads("default").is_paused()


def test_a_lane_is_a_condition_of_an_export(admin_client: Client) -> None:
    [letter] = fail()
    answers: list[Any] = [admin_client.post(EXPORT, {"scope": "all", "lane": lane}) for lane in ("slow", "main")]
    exported = [b"".join(answer.streaming_content) for answer in answers]
    assert [letter.encode() in lines for lines in exported] == [False, True]


@pytest.mark.parametrize(("asked", "shown"), [({"pool": "nowhere"}, "nowhere"), ({"state": "running"}, "running")])
def test_a_page_that_shows_something_else_says_so(admin_client: Client, asked: dict[str, str], shown: str) -> None:
    assert shown in said(admin_client.get(LIST, asked))[0]
