"""The REST API: closed unless the host opens it, one tenant's jobs unseen by another, and an answer to every oddity."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.db import connection as database
from django.db import transaction
from django.http import HttpRequest
from django.test import Client, override_settings
from django.urls import include, path, resolve

import queueapp
from queueapp.api import ALL, serializers, views
from queueapp.errors import BacklogFull, StoreError, StoreMisconfigured, Throttled
from queueapp.models import Tenant
from queueapp.store import connection, shards
from queueapp.store.records import Completed, Failed

urlpatterns = [
    path("api/", include("queueapp.api.urls")),
    path("<slug:site>/deep/", include(("queueapp.api.urls", "ductor"), namespace="inner")),
]

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@queueapp.task(api=True)
def add(a: int, b: int = 0, *, note: str = "", extra: object = None) -> int:
    return a + b


@queueapp.task(api=True, takes_context=True)
def with_context(context: object, a: int) -> int:
    return a


@queueapp.task
def hidden(a: int) -> int:
    return a


ADD = f"{__name__}.add"


def only_acme(request: HttpRequest) -> set[str]:
    return {"acme"}


def of_header(request: HttpRequest) -> object:
    """What the header says: names with commas, or ALL."""
    said = request.headers.get("X-Tenants", "")
    return ALL if said == "ALL" else {name for name in said.split(",") if name}


@pytest.fixture
def opened(redis_url: str) -> Iterator[None]:
    """The API as a host opens it, over the tests' server."""
    with override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": f"{__name__}.of_header"}):
        yield


@pytest.fixture
def post(client: Client) -> Callable[..., Any]:
    def send(body: object = None, *, tenants: str = "acme", raw: bytes | None = None, **headers: str) -> Any:
        content = raw if raw is not None else json.dumps(body).encode()
        return client.post(
            "/api/jobs/", content, content_type="application/json", headers={"X-Tenants": tenants, **headers}
        )

    return send


@pytest.fixture
def get(client: Client) -> Callable[..., Any]:
    return lambda job_id, tenants="acme": client.get(f"/api/jobs/{job_id}/", headers={"X-Tenants": tenants})


def run(result: object = 3, *, fail: bool = False) -> None:
    """A worker that runs one job of the default pool."""
    store = shards.store("default")
    leased = store.check_and_lease("w1", 1, want=1, begin=1, lease_ms=30_000).jobs[0]
    if fail:
        error = json.dumps({"class": "builtins.ValueError", "message": "secret", "traceback": "secret"}).encode()
        store.fail([Failed(id=leased.id, attempts=leased.attempts, run_ms=1, error=error)])
    else:
        encoded = json.dumps(result).encode()
        store.complete([Completed(id=leased.id, attempts=leased.attempts, run_ms=1, result=encoded)])


# -- the way of a job --------------------------------------------------------------------------------------------


def test_a_job_is_accepted_found_and_ends(opened: None, post: Callable[..., Any], get: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "kwargs": {"b": 2}, "lane": "bulk", "priority": 5})
    assert answer.status_code == 202, answer.content
    body = answer.json()
    assert body["state"] == "pending"
    assert body["outcome"] == "enqueued"
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


def test_a_task_with_context_takes_the_caller_s_arguments_only(opened: None, post: Callable[..., Any]) -> None:
    assert post({"task": f"{__name__}.with_context", "args": [1]}).status_code == 202
    assert post({"task": f"{__name__}.with_context", "args": [1, 2]}).status_code == 400


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

    monkeypatch.setattr(views, "tenants_of", tenants_of)
    before = len(database.savepoint_ids)
    assert post({"task": ADD, "args": [1]}).status_code == 202
    assert seen == [before]


# -- closed, and apart -------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("answer", ["acme", None, {1}, 5])
def test_a_wrong_answer_of_the_callable_opens_nothing(redis_url: str, get: Callable[..., Any], answer: object) -> None:
    """A bare text would be a set of its letters."""
    with (
        override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": lambda request: answer}),
        pytest.raises(ImproperlyConfigured, match="API_TENANTS"),
    ):
        get("x")


def test_the_setting_takes_a_callable_as_well(redis_url: str, post: Callable[..., Any]) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "API_TENANTS": only_acme}):
        assert post({"task": ADD, "args": [1]}).status_code == 202
        assert post({"task": ADD, "args": [1], "tenant": "globex"}).status_code == 404


def test_a_task_that_is_not_for_the_api_looks_like_none(
    opened: None, post: Callable[..., Any], get: Callable[..., Any]
) -> None:
    answers = [post({"task": name}) for name in (f"{__name__}.hidden", f"{__name__}.nothing", "os.system", "x")]
    assert {answer.status_code for answer in answers} == {400}
    assert len({answer.content for answer in answers}) == 1
    with queueapp.tenant("acme"):
        assert get(hidden.using(on_commit=False).enqueue(1).id).status_code == 404


def test_a_name_in_a_request_imports_nothing(opened: None, post: Callable[..., Any]) -> None:
    import sys

    sys.modules.pop("this", None)
    assert post({"task": "this.s"}).status_code == 400
    assert "this" not in sys.modules


def test_the_result_of_a_task_that_is_gone_is_not_shown(
    opened: None, post: Callable[..., Any], get: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = post({"task": ADD, "args": [1]}).json()["id"]
    run(3)
    monkeypatch.setattr(views, "registry", {})
    job = get(job_id).json()
    assert job["outcome"] == "completed"
    assert "result" not in job


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "task"),
        ({"task": None}, "task"),
        ({"task": 5}, "task"),
        ({"task": "a" * 600}, "task"),
        ({"args": "ab"}, "args"),
        ({"args": {"a": 1}}, "args"),
        ({"args": None}, "args"),
        ({"kwargs": [1]}, "kwargs"),
        ({"kwargs": {"c": 1}}, "kwargs"),
        ({"args": []}, "kwargs"),
        ({"args": [1, 2, 3]}, "kwargs"),
        ({"args": [2**64]}, "args"),
        ({"kwargs": {"\ud800": 1}}, "kwargs"),
        ({"kwargs": {"k" * 10_000: 1}}, "kwargs"),
        ({"tenant": "_ductor"}, "tenant"),
        ({"tenant": "a b"}, "tenant"),
        ({"tenant": ["acme"]}, "tenant"),
        ({"tenant": "acme\n"}, "tenant"),
        ({"tenant": 5}, "tenant"),
        ({"pool": "nowhere"}, "pool"),
        ({"pool": "Not A Pool"}, "pool"),
        ({"pool": ""}, "pool"),
        ({"lane": "a|b"}, "lane"),
        ({"lane": ""}, "lane"),
        ({"priority": 101}, "priority"),
        ({"priority": -101}, "priority"),
        ({"priority": "5"}, "priority"),
        ({"priority": True}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"priority": 10**400}, "priority"),
        ({"run_after": "2099-01-31T10:00:00"}, "run_after"),
        ({"run_after": "soon"}, "run_after"),
        ({"run_after": 5}, "run_after"),
        ({"run_after": "9999-12-31T23:59:59.999999-23:59"}, "run_after"),
        ({"run_after": "0001-01-01T00:00:00+23:59"}, "run_after"),
        ({"run_after": "1969-12-31T23:59:59Z"}, "run_after"),
        ({"expires_after": 0}, "expires_after"),
        ({"expires_after": -1}, "expires_after"),
        ({"expires_after": "nan"}, "expires_after"),
        ({"expires_after": 1e300}, "expires_after"),
        ({"delay": 5}, "delay"),
        ({"max_attempts": 5}, "max_attempts"),
        ({"cost": 1}, "cost"),
    ],
)
def test_a_wrong_field_is_named(opened: None, post: Callable[..., Any], body: dict[str, Any], field: str) -> None:
    answer = post({"task": ADD, "args": [1]} | body if body else body)
    assert answer.status_code == 400, answer.content
    assert list(answer.json()) == [field]
    assert shards.reads("default").overview().waiting == 0


def test_a_moment_without_a_zone_is_refused_with_its_remedy(opened: None, post: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "run_after": "2099-01-31T10:00:00"})
    assert "add an offset" in answer.json()["run_after"][0]


def test_an_unknown_pool_is_refused_without_naming_the_others(opened: None, post: Callable[..., Any]) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": {"secret-pool": {}}}):
        answer = post({"task": ADD, "args": [1], "pool": "nowhere"})
    assert b"secret-pool" not in answer.content


DEEP = b"[" * 300 + b"]" * 300
VERY_DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b"", "task"),
        (b"{", "detail"),
        (b"null", "detail"),
        (b"[]", "detail"),
        (b'"text"', "detail"),
        (b"5", "detail"),
        (b"NaN", "detail"),
        (b"\xff\xfe", "detail"),
        (b'{"task": "x", "task": "y"}', "detail"),
        (b'{"task": "%s", "args": [NaN]}', "args"),
        (b'{"task": "%s", "args": [1], "kwargs": {"extra": Infinity}}', "kwargs"),
        (b'{"task": "%s", "args": [-Infinity]}', "args"),
        (b'{"task": "%s", "args": [1e400]}', "args"),
        (b'{"task": "%s", "args": [1], "priority": NaN}', "priority"),
        (b'{"task": "%s", "args": [1], "expires_after": 1e400}', "expires_after"),
        (b'{"task": "%s", "args": ["\\ud800"]}', "args"),
        (b'{"task": "%s", "args": [1], "kwargs": {"extra": {"\\udfff": 1}}}', "kwargs"),
        (b'{"task": "\\ud800"}', "task"),
        (b'{"\\ud800": 1}', "\\ud800"),
        (b'{"task": "%s", "args": [1], "tenant": "\\ud800"}', "tenant"),
        (b'{"task": "%s", "args": [1], "tenant": NaN}', "tenant"),
        (b'{"task": "%s", "args": [1], "surplus": NaN}', "surplus"),
        (b'{"task": "%s", "args": ' + DEEP + b"}", "args"),
        (b'{"task": "%s", "args": ' + VERY_DEEP + b"}", "detail"),
        (b'{"task": "%s", "args": [' + b"9" * 5000 + b"]}", "detail"),
        (b'{"task": "%s", "args": [1], "' + b"k" * 100_000 + b'": 1}', None),
    ],
    ids=range(26),
)
def test_c150_odd_json_is_refused_and_nothing_is_left_behind(
    opened: None, post: Callable[..., Any], get: Callable[..., Any], raw: bytes, key: str | None
) -> None:
    good = post({"task": ADD, "args": [1]}).json()["id"]
    answer = post(raw=raw.replace(b"%s", ADD.encode()))
    assert answer.status_code == 400, (answer.status_code, answer.content[:300])
    said = answer.json()
    if key is not None:
        assert list(said) == [key]
    assert len(answer.content) < 2000
    assert shards.reads("default").overview().waiting == 1
    assert get(good).status_code == 200


def test_c150_the_deepest_arguments_that_are_taken_come_back(opened: None, post: Callable[..., Any]) -> None:
    depths = {depth: post(raw=nested(depth)).status_code for depth in (50, 98, 99, 100, 101, 102, 110, 500)}
    assert set(depths.values()) == {202, 400}
    assert [status for _, status in sorted(depths.items())] == sorted(depths.values())


def nested(depth: int) -> bytes:
    return b'{"task": "%s", "args": [1], "kwargs": {"extra": %s}}' % (ADD.encode(), b"[" * depth + b"]" * depth)


def test_arguments_of_every_language_arrive(opened: None, post: Callable[..., Any]) -> None:
    answer = post({"task": ADD, "args": [1], "kwargs": {"note": "Grüße, 世界 \U0001f600 \x00"}})
    assert answer.status_code == 202


def test_only_json_comes_in_and_goes_out(opened: None, client: Client) -> None:
    headers = {"X-Tenants": "acme"}
    assert client.post("/api/jobs/", {"task": ADD}, headers=headers).status_code == 415
    answer = client.get("/api/jobs/x/", headers=headers | {"Accept": "text/html,*/*"})
    assert answer["Content-Type"] == "application/json"
    assert client.get("/api/jobs/", headers=headers).status_code == 405


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
    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["outcome"], again.json()["outcome"]) == ("enqueued", "exists")
    assert first.json()["id"] == again.json()["id"]
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


@pytest.mark.parametrize("refusal", [Throttled("too fast", retry_after=1.2), BacklogFull("full", retry_after=0)])
def test_a_throttled_job_says_when_to_come_back(
    opened: None, post: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, refusal: Throttled
) -> None:
    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise refusal

    monkeypatch.setattr(type(add), "enqueue", refuse)
    answer = post({"task": ADD, "args": [1]})
    assert answer.status_code == 429
    assert answer["Retry-After"] == ("2" if refusal.retry_after else "1")
    assert answer.json() == {"detail": str(refusal), "code": refusal.code}


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
    away = {"REDIS_URL": "unix:///nonexistent/store.sock", "API_TENANTS": f"{__name__}.of_header"}
    with override_settings(DUCTOR={**django_settings.DUCTOR, **away}):
        for answer in (post({"task": ADD, "args": [1]}), get("abcdef.0." + "0" * 22)):
            assert answer.status_code == 503
            assert int(answer["Retry-After"]) >= 1
            assert answer.json()["code"] == "store_unavailable"
            assert b"nonexistent" not in answer.content
    told = [record for record in caplog.records if record.name == "queueapp.api.views"]
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


def test_the_request_is_described_in_one_place() -> None:
    assert set(serializers.JobRequest().fields) == {
        "task",
        "args",
        "kwargs",
        "tenant",
        "pool",
        "lane",
        "priority",
        "run_after",
        "expires_after",
    }
