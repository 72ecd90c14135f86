"""`docs/rest.md` says of flows what holds: routes, actions, permissions, refusals and examples. OpenAPI has all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.urls import get_resolver

from flows import declaring, models
from flows.api import actions, requests, runs, urls
from flows.errors import RunBusy
from flows.handle import RunHandle
from queueapp.api.schema import needed
from tests.flows.api import host
from tests.flows.api.host import run_in

pytestmark = [pytest.mark.urls("tests.flows.api.host"), pytest.mark.django_db(transaction=True)]

ROOT = Path(__file__).resolve().parents[3]
SECTION = (ROOT / "docs/rest.md").read_text().split("\n## Flows\n")[1].split("\n## ")[0]
Ask = Callable[..., Any]


def described(route: str) -> str:
    return route.replace("<str:", "{").replace(">", "}")


def test_every_route_is_in_the_table_with_its_methods() -> None:
    rows = re.findall(r"^\| `([^`]+/)` \| ([^|`]*) ?\| ([^|`]*) ?\|$", SECTION, re.MULTILINE)
    assert {route: (bool(get.strip()), bool(post.strip())) for route, get, post in rows if "–" not in get} == {
        described(route): (hasattr(view, "get"), hasattr(view, "post")) for route, view in urls.ROUTES.values()
    }


def test_the_table_of_actions_is_that_of_the_code() -> None:
    row = re.compile(r"^\| (?:cancel|resume) .*$", re.MULTILINE)
    assert row.findall(SECTION) == row.findall(actions.__doc__ or "")


def test_the_table_of_permissions_is_that_of_the_code() -> None:
    said = dict(re.findall(r"^\| `([^`]+)` \| – \| `(\w+)` \|$", SECTION, re.MULTILINE))
    needs = {described(route): needed(view, "POST", operator=True) for route, view in urls.ROUTES.values()}
    assert {address: f"ductor_flows.{name}" for address, name in said.items()} == {
        address: permission for address, permission in needs.items() if permission
    }
    assert not any(needed(view, "POST", operator=False) for _, view in urls.ROUTES.values())


def test_fields_and_bounds() -> None:
    listed = SECTION.split("\nFields: ")[1].split(". The arguments")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(requests.RunRequest().fields)
    taken = SECTION.split("\n`runs/` takes ")[1].split(". A page")[0]
    assert set(re.findall(r"`(\w+)`", taken)) == set(requests.RunsQuery().fields)
    assert f"looks through {runs.LOOKS:,} runs" in SECTION


def refused(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> Any:
    return ask("POST", f"runs/{run_in('completed')}/resume/")


def unknown_flow(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> Any:
    run = run_in("failed")
    models.Run.objects.update(definition="0" * 12)
    return ask("POST", f"runs/{run}/resume/")


def busy(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> Any:
    def raises(handle: RunHandle) -> bool:
        raise RunBusy

    monkeypatch.setattr(RunHandle, "resume", raises)
    return ask("POST", f"runs/{run_in('failed')}/resume/")


COMES_BACK = {("409", "flow_refused"): refused, ("409", "unknown_flow"): unknown_flow, ("503", "run_busy"): busy}
REFUSALS = re.findall(r"^\| (\d+) \| `(\w+)` \|", SECTION, re.MULTILINE)


@pytest.mark.parametrize(("status", "code"), REFUSALS)
def test_each_refusal_comes_back(
    opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch, status: str, code: str
) -> None:
    answer = COMES_BACK[status, code](ask, monkeypatch)
    assert (str(answer.status_code), answer.json()["code"]) == (status, code)
    assert ("state" in answer.json()) == (status == "409")


def test_every_refusal_that_is_known_here_is_documented() -> None:
    assert set(REFUSALS) == set(COMES_BACK)


def test_the_examples_are_taken(opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(declaring.registry, "import_upload", host.take_upload)
    examples = re.findall(
        r"^```http\nPOST (\S+)\n((?:[A-Z][\w-]+: .*\n)*)(\{.*\})\n\n(\d+) .*\n(?:Location.*\n)?(\{.*\})\n```$",
        SECTION,
        re.MULTILINE,
    )
    assert len(examples) == SECTION.count("```http") == 2
    run = run_in("running")
    for path, headers, body, status, told in examples:
        given = dict(line.split(": ", 1) for line in headers.splitlines())
        path = re.sub(r"runs/\w{22}/", f"runs/{run}/", path)
        answer = ask("POST", path, body=json.loads(body), **given)
        assert str(answer.status_code) == status, answer.content
        assert answer.json().keys() == json.loads(told).keys()


@pytest.mark.urls("ductor_project.urls")
def test_the_example_project_mounts_it_as_the_page_says() -> None:
    [line] = re.findall(r'^(path\("[^"]*", include\("flows\.api\.urls"\)\),)', SECTION, re.MULTILINE)
    assert f"    {line}\n" in (ROOT / "ductor_project/urls.py").read_text()
    assert get_resolver().resolve("/api/ductor/runs/x/").view_name == "ductor_flows:run"


def test_the_document_describes_every_route_and_method() -> None:
    paths = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
    for route, view in urls.ROUTES.values():
        verbs = {verb for verb in ("get", "post") if hasattr(view, verb)}
        assert set(paths[f"/api/ductor/{described(route)}"]) == verbs
