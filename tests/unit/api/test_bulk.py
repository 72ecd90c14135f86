"""Many jobs in one request: each is answered for itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

import queueapp
from queueapp.api import bulk, requests
from queueapp.api.requests import BULK_MAX
from queueapp.errors import StoreUnavailable
from queueapp.producer.bulk import Outcome
from queueapp.store import shards
from tests.unit.api import host
from tests.unit.api.host import ADD, state_of
from tests.unit.conftest import RoundTrips

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

GOOD = {"task": ADD, "args": [1]}


def test_each_job_is_answered_as_it_would_be_alone(opened: None, ask: Callable[..., Any], post: Any) -> None:
    items: list[Any] = [
        GOOD,
        {"task": "no.such"},
        {**GOOD, "priority": 1000},
        {**GOOD, "run_after": "2099-01-31T10:00:00Z"},
        {**GOOD, "tenant": "globex"},
        {**GOOD, "pool": "nowhere"},
        {**GOOD, "surplus": 1},
        {"task": ADD, "args": [2**70]},
        {"task": ADD, "args": ["\ud800"]},
        {"task": ADD, "args": [1], "kwargs": {"note": "x" * 1000}},
        {**GOOD, "metadata": {"order": 7}},
    ]
    with override_settings(DUCTOR={**django_settings.DUCTOR, "MAX_PAYLOAD_BYTES": 500}):
        answer = ask("POST", "jobs/bulk/", body={"jobs": items})
        assert answer.status_code == 200, answer.content
        results = answer.json()["results"]
        alone = [post(item) for item in items]
    assert [result["status"] for result in results] == [202, 400, 400, 202, 404, 400, 400, 400, 400, 413, 202]
    assert [result["status"] for result in results] == [each.status_code for each in alone]
    for result, each in zip(results, alone, strict=True):
        if result["status"] == 202:
            assert (result["error"], result["job"].keys()) == (None, each.json().keys())
            assert ask("GET", result["job"]["url"]).json()["id"] == result["job"]["id"]
        else:
            assert (result["job"], result["error"].keys()) == (None, each.json().keys())
    assert [result["job"]["state"] for result in results if result["job"]] == ["pending", "scheduled", "pending"]


@pytest.mark.parametrize("item", [None, 5, "x", [], [GOOD], True])
def test_an_item_that_is_no_object_is_refused_alone(opened: None, ask: Callable[..., Any], item: object) -> None:
    results = ask("POST", "jobs/bulk/", body={"jobs": [item, GOOD]}).json()["results"]
    assert [result["status"] for result in results] == [400, 202]


def test_each_job_may_have_its_own_key(opened: None, ask: Callable[..., Any]) -> None:
    def send(*keys: str, args: int = 1) -> list[Any]:
        jobs = [{"task": ADD, "args": [args], "idempotency_key": key} for key in keys]
        results: list[Any] = ask("POST", "jobs/bulk/", body={"jobs": jobs}).json()["results"]
        return results

    first, again = send("a", "b", "a"), send("b", "c")
    assert [result["status"] for result in first] == [202, 202, 200]
    assert [result["status"] for result in again] == [200, 202]
    assert first[0]["job"] == first[2]["job"]
    assert again[0]["job"] == first[1]["job"]
    [other] = send("a", args=2)
    assert (other["status"], other["error"]["code"]) == (409, "conflict")
    [odd] = send("caf\u00e9")
    assert (odd["status"], list(odd["error"])) == (400, ["idempotency_key"])


def test_a_repeated_request_is_answered_in_as_few_round_trips_as_one_job(
    opened: None, ask: Callable[..., Any], round_trips: RoundTrips
) -> None:
    items = [{"task": ADD, "args": [number], "idempotency_key": f"k{number}"} for number in range(BULK_MAX)]

    def send(items: list[Any]) -> tuple[list[Any], int]:
        round_trips.since_last()
        results: list[Any] = ask("POST", "jobs/bulk/", body={"jobs": items}).json()["results"]
        return results, round_trips.since_last()

    first, _ = send(items)
    ran = host.run()
    send(items[:1])
    _, new = send([GOOD])
    _, one = send(items[:1])
    again, many = send(items)

    assert {result["status"] for result in again} == {200}
    assert [result["job"]["id"] for result in again] == [result["job"]["id"] for result in first]
    assert {result["job"]["id"]: result["job"]["state"] for result in again if result["job"]["state"] != "pending"} == {
        ran: "ended"
    }
    assert (one, many) == (new + 1, new + 1)


def test_the_header_is_for_one_job(opened: None, ask: Callable[..., Any]) -> None:
    answer = ask("POST", "jobs/bulk/", body={"jobs": [GOOD, GOOD]}, **{"Idempotency-Key": "k"})
    assert (answer.status_code, list(answer.json())) == (400, ["Idempotency-Key"])
    assert shards.reads("default").overview().waiting == 0


@pytest.mark.parametrize(
    "body",
    [{}, {"jobs": []}, {"jobs": {}}, {"jobs": None}, {"jobs": "x"}, {"jobs": [GOOD] * (BULK_MAX + 1)}, {"job": [GOOD]}],
    ids=range(7),
)
def test_a_list_of_a_stated_length(opened: None, ask: Callable[..., Any], body: object) -> None:
    answer = ask("POST", "jobs/bulk/", body=body)
    assert answer.status_code == 400
    for wrong in answer.json().values():
        assert isinstance(wrong, list)
        assert all(isinstance(each, str) for each in wrong)
    assert shards.reads("default").overview().waiting == 0


def test_the_most_that_fit(opened: None, ask: Callable[..., Any]) -> None:
    results = ask("POST", "jobs/bulk/", body={"jobs": [GOOD] * BULK_MAX}).json()["results"]
    assert {result["status"] for result in results} == {202}
    assert len({result["job"]["id"] for result in results}) == BULK_MAX
    assert shards.reads("default").overview().waiting == BULK_MAX


def test_for_whom_each_is(opened: None, ask: Callable[..., Any]) -> None:
    jobs = [{**GOOD, "tenant": "acme"}, GOOD, {**GOOD, "tenant": "globex"}, {**GOOD, "tenant": "initech"}]
    results = ask("POST", "jobs/bulk/", body={"jobs": jobs}, tenants="acme,globex").json()["results"]
    assert [result["status"] for result in results] == [202, 400, 202, 404]
    nobody = ask("POST", "jobs/bulk/", body={"jobs": jobs}, tenants="").json()["results"]
    assert [result["status"] for result in nobody] == [404, 403, 404, 404]


def test_c150_odd_json_in_a_bulk_request(opened: None, ask: Callable[..., Any], client: Any) -> None:
    raw = b'{"jobs": [{"task": "%s", "args": [NaN]}, {"task": "%s", "args": [1]}, {"task": "%s", "args": [1e400]}]}'
    answer = client.generic(
        "POST",
        "/api/jobs/bulk/",
        raw.replace(b"%s", ADD.encode()),
        content_type="application/json",
        headers={"X-Tenants": "acme"},
    )
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [400, 202, 400]
    assert state_of(results[1]["job"]["id"]) == "pending"


def test_when_the_store_is_away_the_whole_is_503(ask: Callable[..., Any]) -> None:
    away = {"REDIS_URL": "unix:///nonexistent/store.sock", "API_TENANTS": f"{host.__name__}.of_header"}
    with override_settings(DUCTOR={**django_settings.DUCTOR, **away}):
        answer = ask("POST", "jobs/bulk/", body={"jobs": [GOOD, {"task": "no.such"}]})
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert int(answer["Retry-After"]) >= 1


def test_what_was_taken_is_told_although_the_store_went_away(
    opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(jobs: Any) -> list[Outcome]:
        first, *_ = jobs
        away = Outcome(word="store_unavailable", error=StoreUnavailable("at 10.0.0.1"))
        return [*enqueue_many([first]), away]

    enqueue_many = queueapp.enqueue_many
    monkeypatch.setattr(queueapp, "enqueue_many", half)
    answer = ask("POST", "jobs/bulk/", body={"jobs": [GOOD, GOOD]})
    assert answer.status_code == 200
    assert [result["status"] for result in answer.json()["results"]] == [202, 503]
    assert b"10.0.0.1" not in answer.content


def test_an_error_that_nobody_expected_hides_no_job(
    opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def half(jobs: Any) -> list[Outcome]:
        first, *_ = jobs
        return [*enqueue_many([first]), Outcome(word="KeyError", error=KeyError("internal"))]

    enqueue_many = queueapp.enqueue_many
    monkeypatch.setattr(queueapp, "enqueue_many", half)
    results = ask("POST", "jobs/bulk/", body={"jobs": [GOOD, GOOD]}).json()["results"]
    assert [result["status"] for result in results] == [202, 500]
    assert "internal" not in str(results)
    assert any(record.name == bulk.__name__ and record.exc_info for record in caplog.records)


def test_an_error_of_ours_while_reading_takes_no_job(
    opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepared(view: bulk.BulkView, values: dict[str, Any], key: str | None) -> Any:
        if key == "second":
            raise KeyError("internal")
        return prepare(view, values, key)

    prepare = bulk.BulkView.prepared
    monkeypatch.setattr(bulk.BulkView, "prepared", prepared)
    with pytest.raises(KeyError, match="internal"):
        ask("POST", "jobs/bulk/", body={"jobs": [GOOD, {**GOOD, "idempotency_key": "second"}]})
    assert shards.reads("default").overview().waiting == 0


def test_the_item_is_the_single_request_and_a_key() -> None:
    assert set(requests.BulkJob().fields) == {*requests.JobRequest().fields, "idempotency_key"}
