"""What the queue itself refuses, as answers over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client, override_settings

from queueapp.errors import StoreError, StoreMisconfigured
from queueapp.models import Tenant
from queueapp.store import connection, shards
from queueapp.store.configuration import Rate, ScopeLimits
from tests.unit.api import host
from tests.unit.api.host import ADD

HEADER = f"{host.__name__}.of_header"

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]


def test_too_large_arguments_and_too_large_bodies(opened: None, post: Callable[..., Any]) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "MAX_PAYLOAD_BYTES": 1000}):
        payload = post({"task": ADD, "args": [1], "kwargs": {"note": "x" * 2000}})
        body = post({"task": ADD, "args": [1], "kwargs": {"note": "x" * 80_000}})
    for answer in (payload, body):
        assert answer.status_code == 413
        assert answer.json()["code"] == "payload_too_large"
    assert shards.reads("default").overview().waiting == 0


def test_one_idempotency_key_makes_one_job(opened: None, post: Callable[..., Any]) -> None:
    first = post({"task": ADD, "kwargs": {"a": 1, "b": 2}}, **{"Idempotency-Key": "k1"})
    again = post({"kwargs": {"b": 2, "a": 1}, "task": ADD}, **{"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.content == again.content
    assert first["Location"] == again["Location"]
    assert ("Idempotency-Replayed" in first, again["Idempotency-Replayed"]) == (False, "true")
    other = post({"task": ADD, "kwargs": {"a": 1, "b": 3}}, **{"Idempotency-Key": "k1"})
    assert other.status_code == 409
    assert other.json()["code"] == "conflict"
    theirs = post({"task": ADD, "kwargs": {"a": 1, "b": 3}}, tenants="globex", **{"Idempotency-Key": "k1"})
    assert theirs.status_code == 202
    assert shards.reads("default").overview().waiting == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "caf\u00e9"])
def test_an_odd_idempotency_key_is_refused(opened: None, post: Callable[..., Any], key: str) -> None:
    answer = post({"task": ADD, "args": [1]}, **{"Idempotency-Key": key})
    assert answer.status_code == 400
    assert list(answer.json()) == ["Idempotency-Key"]


def test_an_unknown_tenant_is_refused_where_the_settings_say_so(opened: None, post: Callable[..., Any]) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}):
        answer = post({"task": ADD, "args": [1]})
        assert answer.status_code == 400
        assert list(answer.json()) == ["tenant"]
        Tenant.objects.create(key="acme")
        assert post({"task": ADD, "args": [1]}).status_code == 202


def test_without_the_store_it_is_503_and_no_address_is_told(
    post: Callable[..., Any], get: Callable[..., Any], caplog: Any
) -> None:
    away = {"REDIS_URL": "unix:///nonexistent/store.sock", "API_TENANTS": HEADER}
    with override_settings(DUCTOR={**django_settings.DUCTOR, **away}):
        for answer in (post({"task": ADD, "args": [1]}), get("abcdef.0." + "0" * 22)):
            assert answer.status_code == 503
            assert int(answer["Retry-After"]) >= 1
            assert answer.json()["code"] == "store_unavailable"
            assert b"nonexistent" not in answer.content
    told = [record for record in caplog.records if record.name == "queueapp.api.view"]
    assert "nonexistent" in told[0].reason
    connection.reset()


@pytest.mark.parametrize("error", [StoreMisconfigured("wrong password for 10.0.0.1"), StoreError("odd")])
def test_every_fault_of_the_store_is_503(
    opened: None, get: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    def locate(job_id: str) -> None:
        raise error

    monkeypatch.setattr(shards, "locate", locate)
    answer = get("x")
    assert answer.status_code == 503
    assert b"10.0.0.1" not in answer.content


@pytest.mark.parametrize("job_id", ["x", "abcdef.0." + "0" * 22, "abcdef.9." + "0" * 22, "%00", "é", "a" * 3000, "..."])
def test_an_odd_id_is_not_found(opened: None, get: Callable[..., Any], job_id: str) -> None:
    assert get(job_id, "ALL").status_code == 404


@pytest.mark.parametrize(
    ("limits", "code"), [({"rate": Rate(rate=2, period_ms=3_000)}, "throttled"), ({"backlog_limit": 1}, "backlog_full")]
)
def test_c080_what_may_come_later_is_answered_with_whole_seconds(
    opened: None, client: Client, post: Callable[..., Any], limits: dict[str, Any], code: str
) -> None:
    """C080: HTTP Retry-After is a non-negative whole number rounded up."""
    shards.store("default").configure(1, scopes=[ScopeLimits(tenant="acme", **limits)])
    assert post({"task": ADD, "args": [1]}).status_code == 202
    answer = post({"task": ADD, "args": [2]})
    assert (answer.status_code, answer.json()["code"]) == (429, code)
    assert answer["Retry-After"].isdigit()
    assert int(answer["Retry-After"]) == (2 if code == "throttled" else 300)
    jobs = json.dumps({"jobs": [{"task": ADD, "args": [3]}, {"task": ADD, "args": [4]}]})
    many = client.post("/api/jobs/bulk/", jobs, content_type="application/json", headers={"X-Tenants": "acme"})
    [one, two] = many.json()["results"]
    assert (one["status"], two["status"], one["error"]["code"]) == (429, 429, code)


@pytest.mark.parametrize("path", ["jobs/", "jobs/x/", "pools/"])
def test_more_parameters_than_the_site_reads_are_refused_as_json(opened: None, client: Client, path: str) -> None:
    query = "&".join(f"a{number}=1" for number in range(1_500))
    answer = client.get(f"/api/{path}?{query}", headers={"X-Tenants": "acme"})
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")
