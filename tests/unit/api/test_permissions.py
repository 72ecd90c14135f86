"""Who may do what over HTTP: every address × every method, for a tenant's token and for who speaks for every tenant,
against one table. The rule: what a tenant may do with its own jobs it may by any address, one by one or all that match,
without a permission; an operator needs the permissions that the admin asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from queueapp.api import urls
from queueapp.api.schema import needed
from queueapp.api.view import DuctorView
from tests.unit.api.host import everything, job_in
from tests.unit.api.test_docs import section

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

NOTHING = ("", "")
JOBS = ("", "operate_job")
"""One's own tenants' jobs; an operator as in the admin."""
EDIT = ("operate_job", "operate_job")
"""The arguments that were there are gone, and hidden ones are used beside new ones."""
DISCARD = ("discard_job", "discard_job")
POOLS = ("operate_pool", "operate_pool")

TABLE: dict[tuple[str, str], tuple[str, str]] = {
    ("jobs", "GET"): NOTHING,
    ("jobs", "POST"): NOTHING,
    ("jobs-bulk", "POST"): NOTHING,
    ("jobs-cancel-matching", "POST"): JOBS,
    ("job", "GET"): NOTHING,
    ("job-result", "GET"): NOTHING,
    ("job-why", "GET"): NOTHING,
    ("job-cancel", "POST"): JOBS,
    ("job-retry", "POST"): JOBS,
    ("dead-letters", "GET"): NOTHING,
    ("dead-letters-retry", "POST"): JOBS,
    ("dead-letters-retry-matching", "POST"): JOBS,
    ("dead-letters-discard-matching", "POST"): DISCARD,
    ("dead-letter", "GET"): NOTHING,
    ("dead-letter-edit", "POST"): EDIT,
    ("dead-letter-retry", "POST"): JOBS,
    ("dead-letter-discard", "POST"): DISCARD,
    ("pools", "GET"): NOTHING,
    ("pool", "GET"): NOTHING,
    ("pool-pause", "POST"): POOLS,
    ("pool-resume", "POST"): POOLS,
    ("pool-drain", "POST"): POOLS,
    ("pool-obliterate", "POST"): POOLS,
    ("schedules", "GET"): NOTHING,
    ("schedule", "GET"): NOTHING,
    ("tenants", "GET"): NOTHING,
    ("tenant", "GET"): NOTHING,
    ("tenant-pause", "POST"): POOLS,
    ("tenant-resume", "POST"): POOLS,
}
"""(name of the address, method) → the permission of a tenant's token, and of who speaks for every tenant."""
OURS = sorted({name for names in TABLE.values() for name in names if name})
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
Ask = Callable[..., Any]


def handled() -> set[tuple[str, str]]:
    return {
        (name, method.upper())
        for name, (_, view) in urls.ROUTES.items()
        for method in ("get", "post", "put", "patch", "delete", "options")
        if method in view.http_method_names and hasattr(view, method)
    }


def test_the_table_names_every_address_and_method() -> None:
    assert TABLE.keys() == handled()


@pytest.mark.parametrize("speaks", ["acme", "ALL"])
@pytest.mark.parametrize("name", urls.ROUTES)
def test_each_address_and_method_needs_what_the_table_says(
    opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch, name: str, speaks: str
) -> None:
    """Without any permission, then with each alone."""
    job = job_in("dead")
    parts = {"job_id": job, "pool_name": "default", "schedule_id": "1", "tenant_key": "acme"}
    path = re.sub(r"<str:(\w+)>", lambda found: parts[found[1]], urls.ROUTES[name][0])
    held: set[str] = set()
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: permission in held)
    for method in METHODS:
        key = (name, "GET" if method == "HEAD" else method)
        permission = TABLE.get(key, NOTHING)[speaks == "ALL"]
        before = everything()
        held.clear()
        answer = ask(method, path, tenants=speaks, body={"unknown": 1} if method == "POST" else None)
        refused = answer.status_code == 403
        assert refused == bool(permission), (method, answer.content)
        if refused:
            assert answer.json() == {
                "detail": f"This needs the permission queueapp.{permission}.",
                "code": "permission",
            }
            assert everything() == before
            for other in {*OURS} - {permission}:
                held = {other}
                assert ask(method, path, tenants=speaks, body={}).status_code == 403, (method, other)
            assert everything() == before
            held = {permission}
            assert ask(method, path, tenants=speaks, body={"unknown": 1}).status_code != 403, method


def test_a_refusal_tells_nothing_of_what_was_asked_for(opened: None, ask: Ask) -> None:
    job = job_in("dead")
    answers = [
        ask("POST", f"jobs/{job_id}/cancel/", tenants="ALL").content for job_id in (job, "abcdef.0." + "0" * 22, "x")
    ]
    assert len(set(answers)) == 1
    assert json.loads(answers[0])["code"] == "permission"


def test_the_page_has_the_same_table() -> None:
    said: dict[str, tuple[str, ...]] = {}
    for line in section("Who may what").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and "`" in cells[0]:
            for address in re.findall(r"`([^`]+)`", cells[0]):
                said[address] = tuple(cell.strip("`").replace("–", "") for cell in cells[1:])
    wanted = {
        urls.ROUTES[name][0].replace("<str:", "{").replace(">", "}"): needs
        for (name, _), needs in TABLE.items()
        if any(needs)
    }
    assert said == wanted


def test_what_is_described_is_what_holds() -> None:
    """The description in the OpenAPI document is made of the same."""
    for (name, method), needs in TABLE.items():
        view = urls.ROUTES[name][1]
        assert tuple(needed(view, method, operator=operator) for operator in (False, True)) == needs
