"""What an operation does not know it does not do without: every address × every method, with a parameter and with a
field that is not its own. `POST pools/x/pause/` with `{"tenant": "acme"}` must not pause the pool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import Client
from rest_framework.request import Request

from queueapp.api import urls
from queueapp.api.faults import Refused
from queueapp.api.parser import require_length
from queueapp.api.schema import handled
from queueapp.api.view import DuctorView
from queueapp.models import Schedule
from queueapp.store import shards
from tests.unit.api.host import everything, job_in

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

Ask = Callable[..., Any]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ASKS = [(name, method) for name in urls.ROUTES for method in METHODS]
KNOWN = [(name, method) for name, method in ASKS if handled(urls.ROUTES[name][1], method)]


@pytest.fixture
def real(opened: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The address of what there is, under each name. Whoever asks has every permission."""
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    schedule = Schedule.objects.create(name="nightly", task="x.y", args=[1], tenant="acme", cron="0 3 * * *")
    there = {"job_id": job_in("dead"), "pool_name": "default", "tenant_key": "acme", "schedule_id": str(schedule.pk)}
    return lambda name: re.sub(r"<str:(\w+)>", lambda part: there[part[1]], urls.ROUTES[name][0])


def fields_of(name: str, method: str) -> list[str]:
    said = handled(urls.ROUTES[name][1], method)
    return list(said.request().fields) if said is not None and said.request is not None else []


def parameters_of(name: str, method: str) -> list[str]:
    said = handled(urls.ROUTES[name][1], method)
    return list(said.query().fields) if said is not None and said.query is not None else []


@pytest.mark.parametrize("speaks", ["acme", "ALL"])
@pytest.mark.parametrize(("name", "method"), ASKS)
def test_an_unknown_parameter_is_named_and_nothing_is_done(
    real: Callable[[str], str], ask: Ask, name: str, method: str, speaks: str
) -> None:
    before = everything()
    for query, unknown in (("frobnicate=1", "frobnicate"), ("%D8=&x=1", "x"), ("a=1&a=2", "a")):
        answer = ask(method, f"{real(name)}?{query}", tenants=speaks)
        assert answer.status_code == (400 if (name, method) in KNOWN else 405), answer.content
        if (name, method) in KNOWN and method != "HEAD":
            known = ", ".join(parameters_of(name, method)) or "none"
            assert answer.json()[unknown] == [f"Unknown parameter; known are: {known}."]
    assert everything() == before


@pytest.mark.parametrize("speaks", ["acme", "ALL"])
@pytest.mark.parametrize(("name", "method"), ASKS)
def test_an_unknown_field_is_named_and_nothing_is_done(
    real: Callable[[str], str], ask: Ask, name: str, method: str, speaks: str
) -> None:
    before = everything()
    answer = ask(method, real(name), tenants=speaks, body={"frobnicate": 1})
    assert answer.status_code == (400 if (name, method) in KNOWN else 405), answer.content
    if (name, method) in KNOWN and method != "HEAD":
        known = ", ".join(fields_of(name, method)) or "none"
        assert answer.json() == {"frobnicate": [f"Unknown field; known are: {known}."]}
    assert everything() == before


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("name", "method"), [case for case in KNOWN if not fields_of(*case)])
def test_an_operation_without_a_body_takes_none(
    real: Callable[[str], str], ask: Ask, client: Client, name: str, method: str
) -> None:
    before = everything()
    headers = {"X-Tenants": "ALL"}
    for raw, kind, status in (
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b"tenant=acme", "application/x-www-form-urlencoded", 415),
        (b'{"tenant": "acme"}', "text/plain", 415),
        (b" " * 2_000_000, "application/json", 413),
    ):
        answer = client.generic(method, f"/api/{real(name)}", raw, content_type=kind, headers=headers)
        assert answer.status_code == status, (raw[:20], answer.content)
    assert everything() == before
    # What clients send for nothing is nothing.
    assert ask(method, real(name), tenants="ALL", body={}).status_code in (200, 202, 409)


def test_a_pool_is_not_paused_by_who_meant_a_tenant(real: Callable[[str], str], ask: Ask) -> None:
    for answer in (
        ask("POST", "pools/default/pause/", tenants="ALL", body={"tenant": "acme"}),
        ask("POST", "pools/default/pause/?tenant=acme", tenants="ALL"),
    ):
        assert (answer.status_code, list(answer.json())) == (400, ["tenant"])
    assert not shards.reads("default").is_paused()


@pytest.mark.parametrize(("name", "method"), KNOWN)
def test_a_body_in_chunks_is_refused(real: Callable[[str], str], client: Client, name: str, method: str) -> None:
    """A WSGI server hands over no byte of it, so that a tenant's pause would forget its lane."""
    before = everything()
    answer = client.generic(method, f"/api/{real(name)}", headers={"X-Tenants": "ALL", "Transfer-Encoding": "chunked"})
    assert answer.status_code == 411
    assert method == "HEAD" or answer.json()["code"] == "length_required"
    assert everything() == before


@pytest.mark.parametrize(
    ("body", "headers", "refused"),
    [
        (b"", [], False),
        (b"", [(b"content-length", b"0")], False),
        (b"{}", [(b"content-length", b"2")], False),
        (b"{}", [], True),
        (b"{}", [(b"content-length", b"two")], True),
        (b"{}", [(b"transfer-encoding", b"chunked")], True),
    ],
)
def test_so_it_is_under_asgi_where_the_bytes_are_there(
    body: bytes, headers: list[tuple[bytes, bytes]], refused: bool
) -> None:
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    request = Request(ASGIRequest(scope, BytesIO(body)))
    if refused:
        with pytest.raises(Refused) as caught:
            require_length(request)
        assert caught.value.status_code == 411
    else:
        require_length(request)


def test_the_names_that_are_told_are_bounded(opened: None, ask: Ask) -> None:
    answer = ask("POST", "jobs/x/cancel/", body={f"{'k' * 1_000}{number}": 1 for number in range(500)})
    assert answer.status_code == 400
    assert len(json.dumps(answer.json())) < 4_000
