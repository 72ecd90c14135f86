"""Bodies of requests: a wrong field is named, and odd JSON is refused without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import Client, override_settings

from queueapp.api import requests
from queueapp.store import shards
from tests.unit.api import host
from tests.unit.api.host import ADD

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]


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
        ({"task": f"{host.__name__}.anything", "args": [], "kwargs": {"self": 1}}, "kwargs"),
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
        ({"deadline": "2099-01-31T10:00:00"}, "deadline"),
        ({"deadline": 60}, "deadline"),
        ({"deadline": "1969-12-31T23:59:59Z"}, "deadline"),
        ({"expires_after": 0}, "expires_after"),
        ({"expires_after": -1}, "expires_after"),
        ({"expires_after": "nan"}, "expires_after"),
        ({"expires_after": 1e300}, "expires_after"),
        ({"delay": -1}, "delay"),
        ({"delay": "5"}, "delay"),
        ({"delay": "nan"}, "delay"),
        ({"delay": True}, "delay"),
        ({"delay": 1e300}, "delay"),
        ({"delay": 5, "run_after": "2099-01-31T10:00:00Z"}, "delay"),
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
        (b'{"task": "%s", "args": [1], "delay": NaN}', "delay"),
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
    ids=range(27),
)
def test_c150_odd_json_is_refused_and_nothing_is_left_behind(
    opened: None, post: Callable[..., Any], get: Callable[..., Any], raw: bytes, key: str | None
) -> None:
    good = post({"task": ADD, "args": [1]}).json()["id"]
    answer = post(raw=raw.replace(b"%s", ADD.encode()))
    assert answer.status_code == 400, (answer.status_code, answer.content[:300])
    said = answer.json()
    if key is not None:
        assert list(said) == ([key, "code"] if key == "detail" else [key])
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
    assert client.put("/api/jobs/", headers=headers).status_code == 405


def test_the_request_is_described_in_one_place() -> None:
    assert set(requests.JobRequest().fields) == {
        "task",
        "args",
        "kwargs",
        "tenant",
        "pool",
        "lane",
        "priority",
        "run_after",
        "delay",
        "expires_after",
        "deadline",
        "metadata",
    }
