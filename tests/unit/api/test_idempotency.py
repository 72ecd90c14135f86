"""One idempotency key over HTTP, by many at once and in every spelling."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.test import Client

from queueapp.store import shards
from tests.unit.api.host import ADD, PAY

pytestmark = pytest.mark.urls("tests.unit.api.host")

AT_ONCE = 50
KEY = {"Idempotency-Key": "order-17"}


@pytest.fixture
def posted(opened: None) -> Callable[..., Any]:
    """Posts without a session, so that no thread asks the database."""

    def post(path: str, body: object, *, tenants: str = "acme", **headers: str) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"X-Tenants": tenants, **headers}
        return Client().post(f"/api/{path}", raw, content_type="application/json", headers=headers)

    return post


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(AT_ONCE) as executor:
        yield executor


def test_c089_fifty_at_once_with_one_key_make_one_job(posted: Callable[..., Any], threads: ThreadPoolExecutor) -> None:
    """C089: two simultaneous requests with one idempotency key both pass the check. Right: one job, and 49 answers that
    replay its id, byte for byte."""
    together = threading.Barrier(AT_ONCE)

    def post() -> Any:
        together.wait(30)
        return posted("jobs/", {"task": ADD, "args": [1], "kwargs": {"b": 2}}, **KEY)

    answers = [thread.result(60) for thread in [threads.submit(post) for _ in range(AT_ONCE)]]
    assert Counter(answer.status_code for answer in answers) == {202: 1, 200: AT_ONCE - 1}
    assert [answer.status_code for answer in answers if "Idempotency-Replayed" not in answer] == [202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len({answer.content for answer in answers}) == 1
    assert len({answer["Location"] for answer in answers}) == 1
    assert shards.reads("default").overview().waiting == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"task": ADD, "args": [1], "kwargs": {"b": 3}}, id="another argument"),
        pytest.param({"task": ADD, "args": [1]}, id="an argument less"),
        pytest.param({"task": PAY, "args": [{"number": "1"}]}, id="another task"),
        pytest.param({"task": ADD, "args": [2], "kwargs": {"b": 1}}, id="exchanged"),
    ],
)
def test_c089_another_body_under_the_key_is_a_conflict_and_changes_nothing(
    posted: Callable[..., Any], body: dict[str, Any]
) -> None:
    """C089: the same key with another payload silently returns the old answer. Right: 409."""
    first = posted("jobs/", {"task": ADD, "args": [1], "kwargs": {"b": 2}}, **KEY)
    other = posted("jobs/", body, **KEY)
    assert (first.status_code, other.status_code, other.json()["code"]) == (202, 409, "conflict")
    assert shards.reads("default").overview().waiting == 1


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"kwargs": {"b": 2, "note": "n"}, "args": [1], "task": "%s"}', id="another order of names"),
        pytest.param(b' {"task":"%s","args":[1],"kwargs":{"note":"n","b":2}}\n', id="other blanks"),
        pytest.param(b'{"task": "%s", "args": [1], "kwargs": {"b": 2, "note": "\\u006e"}}', id="escaped letters"),
    ],
)
def test_c089_how_a_body_is_written_does_not_matter(posted: Callable[..., Any], raw: bytes) -> None:
    first = posted("jobs/", {"task": ADD, "args": [1], "kwargs": {"b": 2, "note": "n"}}, **KEY)
    again = posted("jobs/", raw % ADD.encode(), **KEY)
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.json()["id"] == first.json()["id"]


def test_c089_a_whole_number_and_a_fraction_are_different_arguments(posted: Callable[..., Any]) -> None:
    """A task can tell 1 from 1.0, and so does the fingerprint: rather a conflict than the answer of another call."""
    assert posted("jobs/", {"task": ADD, "args": [1]}, **KEY).status_code == 202
    assert posted("jobs/", b'{"task": "%s", "args": [1.0]}' % ADD.encode(), **KEY).status_code == 409


def test_c089_the_key_is_the_tenant_s_and_holds_for_every_endpoint(posted: Callable[..., Any]) -> None:
    body = {"task": ADD, "args": [1]}
    mine, theirs = (posted("jobs/", body, tenants=tenant, **KEY) for tenant in ("acme", "globex"))
    assert (mine.status_code, theirs.status_code) == (202, 202)
    assert mine.json()["id"] != theirs.json()["id"]
    bulk = posted("jobs/bulk/", {"jobs": [{**body, "idempotency_key": KEY["Idempotency-Key"]}]}).json()
    assert [item["job"]["id"] for item in bulk["results"]] == [mine.json()["id"]]
    assert shards.reads("default").overview().waiting == 2
