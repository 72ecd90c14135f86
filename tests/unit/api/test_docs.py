"""`docs/rest.md` names every route, action, rate and refusal, and nothing that does not exist."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.cache import cache
from django.urls import path as django_path
from drf_spectacular.views import SpectacularJSONAPIView

from queueapp import Singleton
from queueapp.api import ALL, actions, requests, throttles, urls
from queueapp.api.view import DuctorView
from queueapp.permissions import DISCARD_JOB, VIEW_ALL_TENANTS, VIEW_PAYLOAD, full
from queueapp.producer.discovery import registry
from queueapp.store import connection, scripts, shards
from queueapp.store.configuration import ScopeLimits
from queueapp.store.ids import LENGTH
from queueapp.store.store import Store
from tests.unit.api import host
from tests.unit.api.host import ADD, job_in
from tests.unit.api.test_isolation import Token, signed_in_only

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

PAGE = (Path(__file__).resolve().parents[3] / "docs/rest.md").read_text()


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_route_is_in_the_table_with_its_methods() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]*) ?\| ([^|]*) ?\|$", section("Routes"), re.MULTILINE)
    table = {route: (bool(get.strip()), bool(post.strip())) for route, get, post in rows}
    assert table == {
        route.replace("<str:", "{").replace(">", "}"): (hasattr(view, "get"), hasattr(view, "post"))
        for route, view in urls.ROUTES.values()
    }


def test_the_table_of_actions_is_that_of_the_code() -> None:
    assert re.findall(r"^\| (?:cancel|retry|discard) .*$", section("Act"), re.MULTILINE) == re.findall(
        r"^\| (?:cancel|retry|discard) .*$", actions.__doc__ or "", re.MULTILINE
    )


def test_fields_bounds_scopes_and_permissions() -> None:
    listed = section("Start a job").split("\nFields: ")[1].split(". The job")[0]
    fields = set(re.findall(r"`(\w+)`", listed))
    assert fields == set(requests.JobRequest().fields)
    assert set(re.findall(r'"(ductor-\w+)"', section("Rates"))) == {throttles.ENQUEUE, throttles.READ, throttles.ACT}
    for permission in map(full, (VIEW_ALL_TENANTS, VIEW_PAYLOAD, DISCARD_JOB)):
        assert f"`{permission}`" in PAGE
    assert f"up to {requests.BULK_MAX} jobs" in PAGE
    assert f"(1 to {requests.IDEMPOTENCY_KEY_MAX} printable" in PAGE
    assert f"`page_size` ({requests.PAGE_SIZE}; at most {requests.PAGE_MAX} are given" in PAGE


Ask = Callable[..., Any]
GOOD = {"task": ADD, "args": [1]}


def closed(ask: Ask, settings: Any) -> Any:
    settings.DUCTOR = {**settings.DUCTOR, "API_TENANTS": None}
    return ask("GET", "jobs/")


def not_authenticated(ask: Ask, settings: Any) -> Any:
    settings.DUCTOR = {**settings.DUCTOR, "API_TENANTS": signed_in_only}
    return ask("GET", "jobs/")


def conflict(ask: Ask, settings: Any) -> Any:
    for args in ([1], [2]):
        answer = ask("POST", "jobs/", body={"task": ADD, "args": args}, **{"Idempotency-Key": "k"})
    return answer


def too_large(ask: Ask, settings: Any) -> Any:
    settings.DUCTOR = {**settings.DUCTOR, "MAX_PAYLOAD_BYTES": 100}
    return ask("POST", "jobs/", body={**GOOD, "kwargs": {"note": "x" * 200}})


def throttled(ask: Ask, settings: Any) -> Any:
    cache.clear()
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"ductor-read": "0/min"}}
    return ask("GET", "jobs/")


def backlog_full(ask: Ask, settings: Any) -> Any:
    shards.store("default").configure(1, scopes=[ScopeLimits(tenant="acme", backlog_limit=0)])
    return ask("POST", "jobs/", body=GOOD)


def skipped(ask: Ask, settings: Any) -> Any:
    single = host.add.using(tenant="acme", singleton=Singleton("k"), on_commit=False)
    dead = single.enqueue(1)
    shards.store("default").move_to_dlq([dead.id[-LENGTH:]], "why")
    single.enqueue(2)
    return ask("POST", f"jobs/{dead.id}/retry/")


def as_operator(ask: Ask, path: str, body: object) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuctorView, "allowed", lambda view, permission: True)
        return ask("POST", path, tenants="ALL", body=body)


def count_changed(ask: Ask, settings: Any) -> Any:
    job_in("dead")
    return as_operator(ask, "dead-letters/retry-matching/", {"expected": 0})


def edited_meanwhile(ask: Ask, settings: Any) -> Any:
    return as_operator(ask, f"dead-letters/{job_in('dead')}/edit/", {"edits": 1, "args": [2]})


def keys_would_change(ask: Ask, settings: Any) -> Any:
    job = job_in("dead", task=host.limited)
    return as_operator(ask, f"dead-letters/{job}/edit/", {"edits": 0, "args": [2]})


def still_running(ask: Ask, settings: Any) -> Any:
    job_in("active")
    return as_operator(ask, "pools/default/obliterate/", {"name": "default"})


def reopened(ask: Ask, settings: Any) -> Any:
    """Before its second share, as after a failover."""
    job_in("dead")
    act, calls = Store.obliterate, []

    def loses(self: Store, token: str, **how: Any) -> Any:
        calls.append(token)
        if len(calls) == 2:
            self.client.hset(self.keys["conf"], "schema", scripts.SCHEMA)
        return act(self, token, **how | {"limit": 1})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "obliterate", loses)
        return as_operator(ask, "pools/default/obliterate/", {"name": "default"})


def away(ask: Ask, settings: Any) -> Any:
    settings.DUCTOR = {**settings.DUCTOR, "REDIS_URL": "unix:///nonexistent/store.sock"}
    answer = ask("GET", "jobs/")
    connection.reset()
    return answer


def unknown_task(ask: Ask, settings: Any) -> Any:
    job = job_in("completed")
    task = registry.pop(ADD)
    try:
        return ask("GET", f"jobs/{job}/result/")
    finally:
        registry[ADD] = task


def in_chunks(ask: Ask, settings: Any) -> Any:
    return ask("POST", "jobs/", **{"Transfer-Encoding": "chunked"})


def wrong_type(ask: Ask, settings: Any) -> Any:
    return ask("POST", "jobs/", body=GOOD, **{"Content-Type": "text/plain"})


COMES_BACK: dict[tuple[str, str], Callable[[Ask, Any], Any]] = {
    ("400", "parse_error"): lambda ask, settings: ask("POST", "jobs/", body=[]),
    ("401", "not_authenticated"): not_authenticated,
    ("403", "closed"): closed,
    ("403", "no_tenant"): lambda ask, settings: ask("GET", "jobs/", tenants=""),
    ("403", "permission"): lambda ask, settings: ask("POST", "dead-letters/x/discard/"),
    ("404", "not_found"): lambda ask, settings: ask("GET", "jobs/x/"),
    ("405", "method_not_allowed"): lambda ask, settings: ask("DELETE", "jobs/"),
    ("409", "conflict"): conflict,
    ("409", "count_changed"): count_changed,
    ("409", "still_running"): still_running,
    ("409", "reopened"): reopened,
    ("409", "not_waiting"): lambda ask, settings: ask("POST", f"jobs/{job_in('dead')}/cancel/"),
    ("409", "skipped"): skipped,
    ("409", "not_dead"): lambda ask, settings: ask("POST", f"jobs/{job_in('completed')}/retry/"),
    ("409", "edited_meanwhile"): edited_meanwhile,
    ("409", "keys_would_change"): keys_would_change,
    ("409", "not_completed"): lambda ask, settings: ask("GET", f"jobs/{job_in('pending')}/result/"),
    ("409", "unknown_task"): unknown_task,
    ("411", "length_required"): in_chunks,
    ("413", "payload_too_large"): too_large,
    ("415", "unsupported_media_type"): lambda ask, settings: ask(
        "POST", "jobs/", body=GOOD, **{"Content-Type": "text/plain"}
    ),
    ("429", "throttled"): throttled,
    ("429", "backlog_full"): backlog_full,
    ("503", "store_unavailable"): away,
}


REFUSALS = re.findall(r"^\| (\d+) \| `(\w+)` \|", section("Refusals"), re.MULTILINE)


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_each_refusal_comes_back(
    opened: None, ask: Ask, settings: Any, monkeypatch: pytest.MonkeyPatch, status: str, code: str
) -> None:
    monkeypatch.setattr(DuctorView, "authentication_classes", [Token])
    answer = COMES_BACK[status, code](ask, settings)
    assert (str(answer.status_code), answer.json()["code"]) == (status, code)
    assert answer.json()["detail"]


def test_every_refusal_that_is_known_here_is_documented() -> None:
    assert set(REFUSALS) == set(COMES_BACK)


BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
REQUEST = re.compile(
    r"^(?P<method>GET|POST) (?P<path>\S+)\n"
    r"(?P<headers>(?:[A-Z][\w-]+: .*\n)*)(?P<body>\{.*\}\n)?(?:\n(?P<status>\d{3}) )?",
    re.MULTILINE,
)
INLINE = re.findall(r"`(GET|POST) ([a-z-]+/\S*)`\s+with\s+`(\{.*?\})`", PAGE)


@pytest.fixture
def as_written(opened: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks and the pool that the page speaks of; whoever asks has every permission."""
    settings.DUCTOR = {**settings.DUCTOR, "POOLS": {"emails": {}}}
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)
    for name in re.findall(r'"task": "([\w.]+)"', PAGE):
        monkeypatch.setitem(registry, name, host.whatever)


@pytest.mark.django_db(transaction=True)
def test_the_examples_are_taken(as_written: None, ask: Ask) -> None:
    tried = [found for kind, block in BLOCKS if not kind for found in REQUEST.finditer(block)]
    assert len(tried) >= 3
    host.whatever.using(tenant="acme", on_commit=False).enqueue(amount=500, token="t")
    dead = host.run(fail=True)
    for found in tried:
        headers = dict(line.split(": ", 1) for line in found["headers"].splitlines())
        body = json.loads(found["body"]) if found["body"] else None
        path = re.sub(r"(dead-letters)/[\w-]+\.0\.[\w-]+/", rf"\1/{dead}/", found["path"])
        answer = ask(found["method"], path, body=body, **headers)
        assert answer.status_code == int(found["status"] or 200), (found[0], answer.content)


@pytest.mark.django_db(transaction=True)
def test_so_are_those_in_the_text(as_written: None, ask: Ask) -> None:
    assert len(INLINE) >= 2
    for method, path, body in INLINE:
        answer = ask(method, path, tenants="ALL", body=json.loads(body))
        meant = 400 if "pauses nothing" in PAGE.split(path, 1)[1][:60] else 200
        assert answer.status_code == meant, (path, answer.content)


def test_the_callable_and_the_address_of_the_schema_work(signed_in: Callable[..., Any]) -> None:
    blocks = [block for kind, block in BLOCKS if kind == "python"]
    names: dict[str, Any] = {}
    exec(next(block for block in blocks if "def tenants_of" in block), names)
    user = signed_in()
    user.memberships = SimpleNamespace(values_list=lambda *_, **__: [7, 8])
    assert names["tenants_of"](SimpleNamespace(user=user)) == {"7", "8"}
    assert names["tenants_of"](SimpleNamespace(user=AnonymousUser())) == set()
    user.is_superuser = True
    assert names["tenants_of"](SimpleNamespace(user=user)) is ALL
    line = next(block for block in blocks if "SpectacularJSONAPIView" in block)
    [pattern] = eval(line, {"path": django_path, "SpectacularJSONAPIView": SpectacularJSONAPIView})
    assert pattern.resolve("api/schema.json") is not None
