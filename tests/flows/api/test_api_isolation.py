"""Another tenant's token reaches no run: every route of the URLconf, every verb, ids of others and guessed ones. Who
speaks for every tenant needs the permissions that the admin asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client, override_settings

from flows.api import urls
from flows.permissions import CANCEL_RUN, RESUME_RUN, RETRY_STEP, SEND_EVENT, full
from queueapp.api.schema import needed
from queueapp.api.view import DuctorView
from queueapp.producer.handover import new_id
from tests.flows.api.host import STATES, kept_inside, rows, run_in
from tests.unit.api.test_isolation import Token, signed_in_only

pytestmark = [pytest.mark.urls("tests.flows.api.host"), pytest.mark.django_db(transaction=True)]

Ask = Callable[..., Any]
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
ROUTES = {name: route for name, (route, _) in urls.ROUTES.items()}
ASKS = [(name, verb) for name in ROUTES for verb in VERBS]
BODIES: dict[str, object] = {
    "flow-runs": {"args": [1], "tenant": "globex"},
    "run-events": {"name": "go", "payload": 1},
    "run-cancel": {"reason": "mine now"},
}
NEEDS = {
    "run-cancel": full(CANCEL_RUN),
    "run-resume": full(RESUME_RUN),
    "run-step-retry": full(RETRY_STEP),
    "run-events": full(SEND_EVENT),
}


def filled(name: str, run: str) -> str:
    values = {"run_id": run, "step_name": "second", "flow_name": "sum_up"}
    return re.sub(r"<str:(\w+)>", lambda part: values[part[1]], ROUTES[name])


def handles(name: str, verb: str) -> bool:
    return verb in ("GET", "HEAD", "POST") and hasattr(urls.ROUTES[name][1], verb.lower().replace("head", "get"))


def test_every_route_of_the_urlconf_is_tried() -> None:
    assert {pattern.name: str(pattern.pattern) for pattern in urls.urlpatterns} == ROUTES


@pytest.fixture
def theirs(opened: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Another tenant's runs in every state, and one's own of a flow that is not for the API. Whoever asks may all."""
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    runs = {state: run_in(state, "globex") for state in STATES if state != "running"}
    runs["hidden"] = run_in("completed", "acme", flow=kept_inside)
    runs["running"] = run_in("running", "globex")
    return runs


@pytest.mark.parametrize(("name", "verb"), ASKS)
def test_another_tenant_s_token_reaches_nothing(theirs: dict[str, str], ask: Ask, name: str, verb: str) -> None:
    before = rows()
    body = BODIES.get(name) if verb == "POST" else None
    guesses = [new_id(), theirs["running"][:-1], theirs["running"].swapcase(), "x", "_", "0" * 64]
    if not handles(name, verb):
        answers = [ask(verb, filled(name, run)) for run in (theirs["running"], "x")]
        assert {answer.status_code for answer in answers} == {405}
    elif "run_id" in ROUTES[name] or name == "flow-runs":
        answers = [ask(verb, filled(name, run), body=body) for run in (*theirs.values(), *guesses)]
        assert {answer.status_code for answer in answers} == {404}
        assert len({(answer.content, str(answer.headers)) for answer in answers}) == 1
    else:
        tried = ["", *(f"?state={state}" for state in STATES), "?flow=kept_inside", "?tenant=globex", "?tenant=nobody"]
        answers = [ask(verb, f"runs/{query}") for query in tried]
        assert [answer.status_code for answer in answers] == [200] * (len(tried) - 2) + [404] * 2
    for answer in answers:
        for secret in ("globex", *theirs.values()):
            assert secret not in answer.content.decode(), answer.content
    assert rows() == before


def test_the_same_runs_are_there_for_their_own_tenant(theirs: dict[str, str], ask: Ask) -> None:
    """So that the test above can fail."""
    for name, run in theirs.items():
        told = ask("GET", f"runs/{run}/", tenants="globex")
        assert told.status_code == (404 if name == "hidden" else 200)


@pytest.mark.parametrize(("name", "verb"), ASKS)
def test_closed_and_the_host_s_authentication(
    redis_url: str, client: Client, monkeypatch: pytest.MonkeyPatch, name: str, verb: str
) -> None:
    run = run_in("running")
    before = rows()
    path = f"/api/{filled(name, run)}"
    answer = client.generic(verb, path, json.dumps(BODIES.get(name, {})), content_type="application/json")
    assert answer.status_code == 403
    monkeypatch.setattr(DuctorView, "authentication_classes", [Token])
    with override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": signed_in_only}):
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            answer = client.generic(verb, path, b"{", content_type="application/json", headers=headers)
            assert (answer.status_code, answer["WWW-Authenticate"]) == (401, "Bearer")
    assert rows() == before


@pytest.mark.parametrize("speaks", ["acme", "ALL"])
@pytest.mark.parametrize("name", ROUTES)
def test_who_speaks_for_all_needs_what_the_admin_asks_for(
    opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch, name: str, speaks: str
) -> None:
    run = run_in("failed")
    held: set[str] = set()
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: permission in held)
    permission = NEEDS.get(name, "") if speaks == "ALL" else ""
    path = filled(name, run)
    before = rows()
    if handles(name, "GET"):
        assert ask("GET", path, tenants=speaks).status_code == 200
    if handles(name, "POST"):
        for others in ((), {other for other in NEEDS.values() if other != permission}):
            held.update(others)
            answer = ask("POST", path, tenants=speaks, body={"unknown": 1})
            assert answer.status_code == (403 if permission else 400), answer.content
            if permission:
                assert answer.json() == {"detail": f"This needs the permission {permission}.", "code": "permission"}
        held.add(permission)
        assert ask("POST", path, tenants=speaks, body={"unknown": 1}).status_code == 400
        assert needed(urls.ROUTES[name][1], "POST", operator=speaks == "ALL") == permission
    assert rows() == before


def test_a_user_s_permissions_are_asked_for(opened: None, ask: Ask, signed_in: Callable[..., Any]) -> None:
    run = run_in("failed")
    signed_in("operate_job", RESUME_RUN)
    assert ask("POST", f"runs/{run}/cancel/", tenants="ALL").status_code == 403
    assert ask("POST", f"runs/{run}/resume/", tenants="ALL").status_code == 200


ODD = (
    *("%00", "a%00b", "%ff", "%C3%A9", "%0a", "%0d%0aX:1", "%E2%80%AE", "%25", "%2e%2e", "*", "{x}", "_", "-1"),
    *("\u0663", "9" * 400, "a" * 9_000, "0" * 21 + "%0a", "0" * 22 + "%00"),
)


@pytest.mark.parametrize("name", [name for name, route in ROUTES.items() if "run_id" in route])
def test_whatever_stands_in_an_address_is_not_found(theirs: dict[str, str], ask: Ask, name: str) -> None:
    for odd in ODD:
        for verb in ("GET", "POST"):
            if handles(name, verb):
                answer = ask(verb, filled(name, odd), body=BODIES.get(name) if verb == "POST" else None)
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (verb, odd[:60])


@pytest.mark.parametrize(("name", "verb"), [ask for ask in ASKS if handles(*ask)])
def test_what_is_not_known_is_named_and_nothing_is_done(opened: None, ask: Ask, name: str, verb: str) -> None:
    path = filled(name, run_in("failed"))
    before = rows()
    for answer in (
        ask(verb, f"{path}?frobnicate=1"),
        ask(verb, path, body={"frobnicate": 1}),
    ):
        assert answer.status_code == 400
        assert verb == "HEAD" or list(answer.json()) == ["frobnicate"]
    assert ask(verb, path, **{"Transfer-Encoding": "chunked"}).status_code == 411
    assert rows() == before
