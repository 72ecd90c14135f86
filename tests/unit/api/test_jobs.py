"""The way of a job through the API: accepted, found, ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection as database
from django.db import transaction
from django.http import HttpRequest
from django.test import Client
from django.urls import resolve

from queueapp.api import ALL, job_shapes, view
from tests.unit.api import host
from tests.unit.api.host import ADD, run

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]


def test_a_job_is_accepted_found_and_ends(opened: None, post: Callable[..., Any], get: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "kwargs": {"b": 2}, "lane": "bulk", "priority": 5})
    assert answer.status_code == 202, answer.content
    body = answer.json()
    assert body["state"] == "pending"
    assert answer["Location"] == body["url"] == f"http://testserver/api/jobs/{body['id']}/"
    waiting = get(body["id"]).json()
    assert (
        waiting
        | {
            "id": body["id"],
            "task": ADD,
            "pool": "default",
            "tenant": "acme",
            "lane": "bulk",
            "priority": 5,
            "state": "pending",
            "outcome": None,
            "result": None,
        }
        == waiting
    )
    run(3)
    ended = get(body["id"])
    assert ended["Cache-Control"] == "no-store"
    job = ended.json()
    assert (job["state"], job["outcome"], job["attempts"], job["result"]) == ("ended", "completed", 1, 3)
    times = [datetime.fromisoformat(job[name]) for name in ("submitted", "started", "ended")]
    assert times == sorted(times)


def test_a_failed_job_tells_the_class_of_its_error_and_no_more(
    opened: None, post: Callable[..., Any], get: Callable[..., Any]
) -> None:
    job_id = post({"task": ADD, "args": [1]}).json()["id"]
    run(fail=True)
    answer = get(job_id)
    assert (answer.json()["state"], answer.json()["error"]) == ("dead", "builtins.ValueError")
    assert b"secret" not in answer.content


def test_a_job_for_later_is_scheduled(opened: None, post: Callable[..., Any], get: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "run_after": "2099-01-31T10:00:00+02:00", "expires_after": 1e6})
    assert answer.status_code == 202
    job = get(answer.json()["id"]).json()
    assert (job["state"], job["due"]) == ("scheduled", "2099-01-31T08:00:00.000Z")


def test_a_delay_counts_from_the_request(opened: None, post: Callable[..., Any], get: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "delay": 90.5})
    assert (answer.status_code, answer.json()["state"]) == (202, "scheduled")
    job = get(answer.json()["id"]).json()
    assert datetime.fromisoformat(job["due"]) - datetime.fromisoformat(job["submitted"]) == timedelta(seconds=90.5)
    assert post({"task": ADD, "args": [1], "delay": 0}).json()["state"] == "pending"


def test_a_job_tells_what_it_waited_for(opened: None, post: Callable[..., Any], get: Callable[..., Any]) -> None:
    job_id = post({"task": ADD, "args": [1]}).json()["id"]
    assert get(job_id).json()["waits_s"] is None
    run()
    told = get(job_id).json()["waits_s"]
    assert set(told) == set(job_shapes.Waits().fields)
    assert told["line"] >= 0
    assert told["schedule"] == told["backoff"] == told["limits"] == 0


def test_a_job_may_have_a_deadline(opened: None, post: Callable[..., Any], get: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "deadline": "2099-01-31T10:00:00+02:00"})
    assert answer.status_code == 202
    assert get(answer.json()["id"]).json()["deadline"] == "2099-01-31T08:00:00.000Z"
    run()
    assert get(answer.json()["id"]).json()["deadline"] is None
    assert get(post({"task": ADD, "args": [1]}).json()["id"]).json()["deadline"] is None


def test_a_key_that_the_arguments_do_not_fill_in_is_a_fault_of_theirs(opened: None, post: Callable[..., Any]) -> None:
    answer = post({"task": f"{host.__name__}.limited", "args": [None]})
    assert answer.status_code == 400
    assert "the key 'customer:{customer_id}', whose field 'customer_id' is None here" in answer.json()["kwargs"][0]
    assert post({"task": f"{host.__name__}.limited", "args": [7]}).status_code == 202


def test_a_request_has_no_keys_of_its_own(opened: None, post: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "concurrency": []})
    assert (answer.status_code, list(answer.json())) == (400, ["concurrency"])


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_moment_is_the_same_whatever_zone_the_host_has(
    opened: None, post: Callable[..., Any], get: Callable[..., Any], settings: Any, use_tz: bool
) -> None:
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "Asia/Tokyo"
    answer = post({"task": ADD, "args": [1], "run_after": "2099-01-31T10:00:00+02:00"})
    assert answer.status_code == 202, answer.content
    assert get(answer.json()["id"]).json()["due"] == "2099-01-31T08:00:00.000Z"


def test_a_task_with_context_takes_the_caller_s_arguments_only(opened: None, post: Callable[..., Any]) -> None:
    assert post({"task": f"{host.__name__}.with_context", "args": [1]}).status_code == 202
    assert post({"task": f"{host.__name__}.with_context", "args": [1, 2]}).status_code == 400


def test_the_address_follows_prefix_and_namespace(opened: None, client: Client) -> None:
    body = json.dumps({"task": ADD, "args": [1]})
    answer = client.post("/north/deep/jobs/", body, content_type="application/json", headers={"X-Tenants": "acme"})
    assert answer.status_code == 202, answer.content
    assert answer["Location"].startswith("http://testserver/north/deep/jobs/")
    assert client.get(answer["Location"], headers={"X-Tenants": "acme"}).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_job_is_sent_whatever_becomes_of_the_request_s_transaction(
    opened: None, post: Callable[..., Any], get: Callable[..., Any]
) -> None:
    assert vars(resolve("/api/jobs/").func)["_non_atomic_requests"] == {"default"}
    with transaction.atomic():
        job_id = post({"task": ADD, "args": [1]}).json()["id"]
        transaction.set_rollback(True)
    assert get(job_id).status_code == 200


def test_atomic_requests_are_not_ours(
    opened: None, post: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any
) -> None:
    monkeypatch.setitem(database.settings_dict, "ATOMIC_REQUESTS", True)
    seen = []

    def tenants_of(request: HttpRequest) -> object:
        seen.append(len(database.savepoint_ids))
        return ALL

    monkeypatch.setattr(view, "tenants_of", tenants_of)
    before = len(database.savepoint_ids)
    assert post({"task": ADD, "args": [1]}).status_code == 202
    assert seen == [before]
