"""Closed unless the host opens it; one tenant's jobs, and tasks that are not for the API, unseen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings

import queueapp
from queueapp.api import view
from queueapp.store import shards
from tests.unit.api import host
from tests.unit.api.host import ADD, run

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]


def test_closed_by_default(redis_url: str, client: Client, post: Callable[..., Any], get: Callable[..., Any]) -> None:
    for answer in (post({"task": ADD, "args": [1]}), get("x"), post(raw=b"not json")):
        assert answer.status_code == 403
        assert "API_TENANTS" in answer.json()["detail"]
    client.force_login(User.objects.create_user("staff", is_staff=True))
    assert get("x").status_code == 403


def test_without_the_setting_the_permission_opens_every_tenant(
    redis_url: str, post: Callable[..., Any], get: Callable[..., Any]
) -> None:
    user = User.objects.create_user("operator")
    user.user_permissions.add(Permission.objects.get(codename="view_all_tenants"))
    # Not through the session: its authentication would ask for a CSRF token, which is the host's business.
    client = Client()
    client.force_login(user)
    answer = client.post("/api/jobs/", json.dumps({"task": ADD, "args": [1]}), content_type="application/json")
    assert answer.status_code == 202
    seen = client.get(answer["Location"])
    assert seen.status_code == 200
    assert seen.json()["tenant"] == "default"


def test_a_job_of_another_tenant_does_not_exist(
    opened: None, post: Callable[..., Any], get: Callable[..., Any]
) -> None:
    job_id = post({"task": ADD, "args": [1]}).json()["id"]
    absent = job_id[:-1] + ("0" if job_id[-1] != "0" else "1")
    mine, theirs, none = get(job_id), get(job_id, "globex"), get(absent, "globex")
    assert mine.status_code == 200
    assert theirs.status_code == none.status_code == 404
    assert theirs.content == none.content
    assert get(job_id, "").status_code == 404
    assert get(job_id, "ALL").status_code == 200


def test_a_job_for_another_tenant_is_refused(opened: None, post: Callable[..., Any]) -> None:
    assert post({"task": ADD, "args": [1], "tenant": "globex"}).status_code == 404
    assert shards.reads("default").overview().waiting == 0


@pytest.mark.parametrize(
    ("tenants", "named", "status", "becomes"),
    [
        ("acme", None, 202, "acme"),
        ("acme,globex", None, 400, None),
        ("acme,globex", "globex", 202, "globex"),
        ("", None, 403, None),
        ("ALL", None, 202, "default"),
        ("ALL", "anybody", 202, "anybody"),
    ],
)
def test_whose_job_it_becomes(
    opened: None,
    post: Callable[..., Any],
    get: Callable[..., Any],
    tenants: str,
    named: str | None,
    status: int,
    becomes: str | None,
) -> None:
    answer = post({"task": ADD, "args": [1], **({"tenant": named} if named else {})}, tenants=tenants)
    assert answer.status_code == status, answer.content
    if becomes:
        assert get(answer.json()["id"], tenants).json()["tenant"] == becomes


@pytest.mark.parametrize("answer", ["acme", None, {1}, 5, {""}, {"acme", "a b"}])
def test_a_wrong_answer_of_the_callable_opens_nothing(redis_url: str, get: Callable[..., Any], answer: object) -> None:
    """A bare text would be a set of its letters."""
    with (
        override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": lambda request: answer}),
        pytest.raises(ImproperlyConfigured, match="API_TENANTS"),
    ):
        get("x")


def test_the_setting_takes_a_callable_as_well(redis_url: str, post: Callable[..., Any]) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": host.only_acme}):
        assert post({"task": ADD, "args": [1]}).status_code == 202
        assert post({"task": ADD, "args": [1], "tenant": "globex"}).status_code == 404


def test_a_task_that_is_not_for_the_api_looks_like_none(
    opened: None, post: Callable[..., Any], get: Callable[..., Any]
) -> None:
    answers = [
        post({"task": name}) for name in (f"{host.__name__}.hidden", f"{host.__name__}.nothing", "os.system", "x")
    ]
    assert {answer.status_code for answer in answers} == {400}
    assert len({answer.content for answer in answers}) == 1
    with queueapp.tenant("acme"):
        assert get(host.hidden.using(on_commit=False).enqueue(1).id).status_code == 404


def test_a_name_in_a_request_imports_nothing(opened: None, post: Callable[..., Any]) -> None:
    import sys

    sys.modules.pop("this", None)
    assert post({"task": "this.s"}).status_code == 400
    assert "this" not in sys.modules


def test_the_result_of_a_task_that_is_gone_is_not_shown(
    opened: None,
    client: Client,
    post: Callable[..., Any],
    get: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_id = post({"task": ADD, "args": [1]}).json()["id"]
    run(3)
    monkeypatch.setattr(view, "registry", {})
    job = get(job_id).json()
    assert job["outcome"] == "completed"
    assert job["result"] is None
    answer = client.get(f"/api/jobs/{job_id}/result/", headers={"X-Tenants": "acme"})
    assert (answer.status_code, answer.json()["code"]) == (409, "unknown_task")
