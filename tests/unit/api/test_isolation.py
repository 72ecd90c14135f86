"""Another tenant's token reaches nothing: every route of the URLconf, every verb, ids of others and guessed ones.

The routes are read from the URLconf, so that a new one is tried without being named here; one with a part that is not
known here fails until somebody says what stands for another tenant's in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import AnonymousUser
from django.test import Client, override_settings
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.request import Request

from queueapp.api import urls
from queueapp.api.view import DuctorView
from queueapp.models import Pool, Schedule, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.ids import new_id
from tests.unit.api import host
from tests.unit.api.host import ADD, STATES, everything, job_in

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
ROUTES = {name: route for name, (route, _) in urls.ROUTES.items()}
ASKS = [(name, verb) for name in ROUTES for verb in VERBS]
BODY = {"task": ADD, "args": [1], "tenant": "globex"}


def parts(route: str) -> list[str]:
    return re.findall(r"<str:(\w+)>", route)


def filled(route: str, value: str) -> str:
    return re.sub(r"<str:\w+>", value, route)


def handles(name: str, verb: str) -> bool:
    method = "get" if verb == "HEAD" else verb.lower()
    return method in DuctorView.http_method_names and hasattr(urls.ROUTES[name][1], method)


def guesses() -> list[str]:
    """Ids that are nobody's: of a pool that there is and of none, of another shard, a near miss, and no ids at all."""
    inner = new_id()
    known = shards.keys("default").code
    return [f"{known}.0.{inner}", f"zzzzzz.0.{inner}", f"{known}.1.{inner}", f"{known}.0.{inner[:-1]}", inner, "x", "_"]


def test_every_route_of_the_urlconf_is_tried() -> None:
    assert {pattern.name: str(pattern.pattern) for pattern in urls.urlpatterns} == ROUTES
    assert {part for route in ROUTES.values() for part in parts(route)} == {
        *("job_id", "pool_name", "schedule_id", "tenant_key")
    }


@pytest.fixture
def theirs(opened: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Another tenant's jobs in every state, a hidden one of one's own, and limits. Whoever asks may discard."""
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    jobs = {state: job_in(state, "globex") for state in STATES if state != "pending"}
    jobs["hidden"] = job_in("dead", "acme", task=host.hidden)
    jobs["pending"] = job_in("pending", "globex")
    tenant = Tenant.objects.create(key="globex", name="Globex Secret Corporation")
    TenantLimits.objects.create(pool=Pool.objects.create(name="default"), tenant=tenant, weight=7)
    for name, values in {"globex's": {"task": ADD, "tenant": "globex"}, "hidden": {"task": host.HIDDEN}}.items():
        Schedule.objects.create(name=f"globex {name}", args=[1], cron="0 3 * * *", **{"tenant": "acme", **values})
    return jobs


@pytest.mark.parametrize(("name", "verb"), ASKS)
def test_another_tenant_s_token_reaches_nothing(
    theirs: dict[str, str], ask: Callable[..., Any], name: str, verb: str
) -> None:
    route = ROUTES[name]
    before = everything()
    if not handles(name, verb):
        answers = [ask(verb, filled(route, value), body=BODY) for value in (theirs["pending"], "x")]
        assert {answer.status_code for answer in answers} == {405}
    elif parts(route) == ["job_id"]:
        answers = [ask(verb, filled(route, value)) for value in (*theirs.values(), *guesses())]
        assert {answer.status_code for answer in answers} == {404}
    elif parts(route) == ["tenant_key"]:
        answers = [ask(verb, filled(route, value)) for value in ("globex", "initech", "_ductor", "x" * 64)]
        assert {answer.status_code for answer in answers} == {404}
    elif parts(route) == ["schedule_id"]:
        nobody_s = [*Schedule.objects.values_list("pk", flat=True), 999, "x", "_", "9" * 30]
        answers = [ask(verb, filled(route, str(value))) for value in nobody_s]
        assert {answer.status_code for answer in answers} == {404}
    elif parts(route) == ["pool_name"]:
        # An operator's addresses know no parameter, as `test_unknown` shows: refused before it is looked for whom.
        tried = [""] if verb == "POST" else [f"?tenant={tenant}" for tenant in ("globex", "nobody")]
        answers = [ask(verb, filled(route, pool) + query) for query in tried for pool in ("default", "nowhere", "_")]
        assert {answer.status_code for answer in answers} == {404}
    elif verb == "POST":
        bodies = {"jobs": BODY, "jobs-bulk": {"jobs": [BODY, {"task": host.HIDDEN}]}}
        retried = {"ids": [*theirs.values(), *guesses()]}
        answers = [ask(verb, route, body=bodies.get(name, retried))]
    else:
        tried = ["", *(f"?tenant={tenant}" for tenant in ("globex", "nobody"))]
        if name == "jobs":
            tried += [f"?state={state}" for state in ("pending", "scheduled", "active", "dead", "ended")]
            tried += [f"?state=dead&task={host.HIDDEN}"]
        answers = [ask(verb, route + query) for query in tried]
    for answer in answers:
        for secret in ("globex", "Globex", *theirs.values()):
            assert secret not in answer.content.decode(), (answer.status_code, answer.content)
        assert answer.status_code < 500
    if all(answer.status_code == 404 for answer in answers):
        assert len({(answer.content, str(answer.headers)) for answer in answers}) == 1
    assert everything() == before


def test_a_bulk_request_and_many_ids_reach_nothing_either(theirs: dict[str, str], ask: Callable[..., Any]) -> None:
    ids = [*theirs.values(), *guesses()]
    retried = ask("POST", "dead-letters/retry/", body={"ids": ids}).json()
    assert retried == {"retried": 0, "skipped": 0, "already": 0, "gone": len(ids), "unreached": 0}
    items = ask("POST", "jobs/bulk/", body={"jobs": [BODY, {**BODY, "tenant": "nobody"}]}).json()["results"]
    assert [item["status"] for item in items] == [404, 404]
    assert items[0] == items[1]


def test_one_tenant_s_idempotency_key_is_not_another_s(theirs: dict[str, str], ask: Callable[..., Any]) -> None:
    mine, other = (
        ask("POST", "jobs/", tenants=tenant, body={"task": ADD, "args": [1]}, **{"Idempotency-Key": "same"})
        for tenant in ("acme", "globex")
    )
    assert (mine.status_code, other.status_code) == (202, 202)
    assert mine.json()["id"] != other.json()["id"]


@pytest.mark.parametrize(("name", "verb"), ASKS)
def test_without_the_setting_every_route_says_which_is_missing(
    redis_url: str, client: Client, name: str, verb: str
) -> None:
    job = job_in("pending")
    before = everything()
    answer = client.generic(
        verb, "/api/" + filled(ROUTES[name], job), json.dumps(BODY), content_type="application/json"
    )
    assert answer.status_code == 403
    if verb != "HEAD":
        assert "API_TENANTS" in answer.json()["detail"]
        assert answer.json()["code"] == "closed"
    assert everything() == before


class Token(BaseAuthentication):
    """A host's authentication: one token, and a challenge for everybody else."""

    def authenticate(self, request: Request) -> tuple[Any, None] | None:
        said = request.headers.get("Authorization")
        if said is None:
            return None
        if said != "Bearer acme":
            raise AuthenticationFailed()
        return AnonymousUser(), None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def signed_in_only(request: Request) -> set[str]:
    """A host's callable that refuses by itself."""
    if "Authorization" not in request.headers:
        raise NotAuthenticated()
    return {"acme"}


@pytest.mark.parametrize(("name", "verb"), ASKS)
def test_the_host_s_authentication_comes_first(
    redis_url: str, client: Client, monkeypatch: pytest.MonkeyPatch, name: str, verb: str
) -> None:
    monkeypatch.setattr(DuctorView, "authentication_classes", [Token])
    job = job_in("pending")
    before = everything()
    with override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": signed_in_only}):
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            answer = client.generic(
                verb, "/api/" + filled(ROUTES[name], job), b"{", content_type="application/json", headers=headers
            )
            assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
        assert everything() == before
        if name == "job" and verb == "GET":
            headers = {"Authorization": "Bearer acme"}
            assert client.get(f"/api/jobs/{job}/", headers=headers).status_code == 200
