"""Starting runs over HTTP: what is taken, what is taken once, and what is refused with the name of what is wrong."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection as database
from django.db import connections
from django.test import Client, override_settings
from django.urls import resolve

from flows import declaring, flow, models, runtime, step
from flows.api import runs
from flows.errors import FlowInvalid
from queueapp.store import connection
from tests.flows.api.host import rows, state_of
from tests.flows.host import add
from tests.working import work

pytestmark = [pytest.mark.urls("tests.flows.api.host"), pytest.mark.django_db(transaction=True)]

Ask = Callable[..., Any]
SUM_UP = "flows/sum_up/runs/"


def test_a_run_is_started_and_runs_to_its_end(opened: None, ask: Ask) -> None:
    answer = ask("POST", SUM_UP, body={"args": [5], "kwargs": {"more": 2}})
    told = answer.json()
    assert (answer.status_code, told["state"]) == (202, "running")
    assert answer["Location"] == told["url"] == f"http://testserver/api/runs/{told['id']}/"
    assert models.Run.objects.get().tenant == "acme"
    work(slots=2)
    assert ask("GET", told["url"]).json()["output"] == 17


def test_under_another_prefix_addresses_lead_there(opened: None, ask: Ask) -> None:
    told = ask("POST", f"/shop/deep/{SUM_UP}", body={"args": [5]}).json()
    assert told["url"] == f"http://testserver/shop/deep/runs/{told['id']}/"
    listed = ask("GET", "/shop/deep/runs/").json()["results"]
    assert [run["url"] for run in listed] == [told["url"]]


class TestOnce:
    KEY = {"Idempotency-Key": "order-17"}  # noqa: RUF012  (read only)

    def test_a_key_makes_one_run(self, opened: None, ask: Ask) -> None:
        first, again = (ask("POST", SUM_UP, body={"args": [5]}, **self.KEY) for _ in range(2))
        assert (first.status_code, again.status_code) == (202, 200)
        assert first.json()["id"] == again.json()["id"]
        assert "Idempotency-Replayed" not in first
        assert again["Idempotency-Replayed"] == "true"
        assert again["Location"] == first["Location"]
        work(slots=2)
        assert ask("POST", SUM_UP, body={"args": [5]}, **self.KEY).json()["state"] == "completed"

    @pytest.mark.parametrize("body", [{"args": [6]}, {"args": [5], "kwargs": {"more": 2}}])
    def test_another_input_under_the_key_is_a_conflict(self, opened: None, ask: Ask, body: object) -> None:
        ask("POST", SUM_UP, body={"args": [5]}, **self.KEY)
        before = rows()
        answer = ask("POST", SUM_UP, body=body, **self.KEY)
        assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "conflict", "running")
        assert rows() == before

    def test_spelt_otherwise_it_is_the_same_input(self, opened: None, ask: Ask) -> None:
        ask("POST", SUM_UP, body={"args": [5]}, **self.KEY)
        again = ask("POST", SUM_UP, body={"kwargs": {"more": 1, "number": 5}}, **self.KEY)
        assert again.status_code == 200

    def test_a_parameter_that_came_with_a_deploy_makes_no_other_input(self) -> None:
        assert not runs._differs({"number": 5}, {"number": 5, "fresh": 1})
        assert runs._differs({"number": 5}, {"number": 6, "fresh": 1})

    def test_the_key_is_of_the_tenant_and_of_the_flow(self, opened: None, ask: Ask) -> None:
        asked = [("acme", SUM_UP), ("globex", SUM_UP), ("acme", "flows/hold_on/runs/")]
        answers = [ask("POST", path, tenants=tenant, body={"args": [5]}, **self.KEY) for tenant, path in asked]
        assert [answer.status_code for answer in answers] == [202] * 3

    @pytest.mark.parametrize(("key", "status"), [("k" * 255, 202), ("k" * 256, 400), ("", 400)])
    def test_a_key_has_bounds(self, opened: None, ask: Ask, key: str, status: int) -> None:
        answer = ask("POST", SUM_UP, body={"args": [5]}, **{"Idempotency-Key": key})
        assert answer.status_code == status
        assert status == 202 or list(answer.json()) == ["Idempotency-Key"]

    def test_many_at_once_make_one_run(self, opened: None) -> None:
        together = threading.Barrier(8)

        def post() -> Any:
            together.wait(30)
            headers = {"X-Tenants": "acme", **self.KEY}
            try:
                return Client().post(f"/api/{SUM_UP}", {"args": [5]}, content_type="application/json", headers=headers)
            finally:
                connections.close_all()

        with ThreadPoolExecutor(8) as threads:
            answers = [thread.result(60) for thread in [threads.submit(post) for _ in range(8)]]
        assert Counter(answer.status_code for answer in answers) == {202: 1, 200: 7}
        assert len({answer.json()["id"] for answer in answers}) == 1


class TestRefusals:
    @pytest.mark.parametrize(
        "name", ["kept_inside", "no_such", "x" * 3_000, "a%00b", "%ff", "..", "sum_up%0a", "SUM_UP"]
    )
    def test_a_flow_that_is_not_for_the_api_is_none(self, opened: None, ask: Ask, name: str) -> None:
        answer = ask("POST", f"flows/{name}/runs/", body={"args": [1]})
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not found.", "code": "not_found"})
        assert not models.Run.objects.exists()

    @pytest.mark.parametrize(
        ("raw", "field", "text"),
        [
            (b"{}", "kwargs", "needs number"),
            (b'{"args": [1, 2, 3]}', "kwargs", "was given 3 arguments"),
            (b'{"args": [1], "kwargs": {"number": 2}}', "kwargs", "number was given twice"),
            (b'{"kwargs": {"nmber": 2}}', "kwargs", "nmber is no argument of it; it takes number, more"),
            (b'{"args": [1], "kwargs": {"self": 2}}', "kwargs", "self cannot name an argument"),
            (b'{"args": [1], "kwargs": {"a b": 2}}', "kwargs", "a b cannot name an argument"),
            (b'{"args": ["a\\u0000b"]}', "kwargs", "number has the character U+0000"),
            (b'{"args": [{"a\\u0000": 1}]}', "kwargs", "number has the character U+0000"),
            (b'{"args": ["\\ud800"]}', "args", "args[0]: text with a lone surrogate"),
            (b'{"args": [99999999999999999999]}', "args", "args[0]: the integer"),
            (b'{"kwargs": {"number": 1e999}}', "kwargs", "JSON has no inf"),
            (b'{"args": [' + b"[" * 150 + b"]" * 150 + b"]}", "args", "nested deeper than 100"),
            (b'{"args": 5}', "args", "Expected a list"),
            (b'{"kwargs": []}', "kwargs", "Expected a dictionary"),
            (b'{"input": {}}', "input", "Unknown field; known are: args, kwargs, tenant."),
            (b'{"args": [1], "tenant": 5}', "tenant", "Not a valid string"),
        ],
    )
    def test_the_field_is_named(self, opened: None, client: Client, raw: bytes, field: str, text: str) -> None:
        answer = client.post(f"/api/{SUM_UP}", raw, content_type="application/json", headers={"X-Tenants": "acme"})
        assert (answer.status_code, list(answer.json())) == (400, [field]), answer.content
        assert text in str(answer.json()[field])
        assert not models.Run.objects.exists()

    @pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"args": [NaN]}', b'{"args": [], "args": [1]}', b"\xff"])
    def test_what_is_no_json_is_none(self, opened: None, client: Client, raw: bytes) -> None:
        answer = client.post(f"/api/{SUM_UP}", raw, content_type="application/json", headers={"X-Tenants": "acme"})
        assert answer.status_code == 400
        assert not models.Run.objects.exists()

    def test_a_wrong_name_is_not_told_at_length(self, opened: None, ask: Ask) -> None:
        answer = ask("POST", SUM_UP, body={"kwargs": {"x" * 50_000: 1}})
        assert answer.status_code == 400
        assert len(answer.content) < 1_000

    def test_a_huge_input_is_too_large(self, opened: None, ask: Ask, settings: Any) -> None:
        settings.DUCTOR = {**settings.DUCTOR, "MAX_PAYLOAD_BYTES": 1_000}
        for size, status in ((900, 202), (1_100, 413), (500_000, 413)):
            answer = ask("POST", SUM_UP, body={"args": ["x" * size]})
            assert (answer.status_code, answer.json().get("code", "")) == (
                status,
                "payload_too_large" * (status == 413),
            )
        assert models.Run.objects.count() == 1

    def test_for_whom_it_is_must_be_clear_and_one_s_own(self, opened: None, ask: Ask) -> None:
        for tenants, body, status in (
            ("acme,globex", {"args": [1]}, 400),
            ("acme,globex", {"args": [1], "tenant": "globex"}, 202),
            ("acme", {"args": [1], "tenant": "globex"}, 404),
            ("", {"args": [1]}, 403),
            ("ALL", {"args": [1], "tenant": "initech"}, 202),
        ):
            assert ask("POST", SUM_UP, tenants=tenants, body=body).status_code == status
        assert sorted(models.Run.objects.values_list("tenant", flat=True)) == ["globex", "initech"]

    def test_a_tenant_without_a_row_is_refused_where_the_queue_would(
        self, opened: None, ask: Ask, settings: Any
    ) -> None:
        settings.DUCTOR = {**settings.DUCTOR, "UNKNOWN_TENANTS": "reject"}
        answer = ask("POST", SUM_UP, body={"args": [1]})
        assert (answer.status_code, list(answer.json())) == (400, ["tenant"])
        assert not models.Run.objects.exists()


def test_a_store_that_is_away_delays_a_run_and_refuses_none(opened: None, ask: Ask) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": "unix:///nonexistent/store.sock"}):
        answer = ask("POST", SUM_UP, body={"args": [5]})
        connection.reset()
    run_id = answer.json()["id"]
    assert (answer.status_code, state_of(run_id)) == (202, "running")
    runtime.relay(run_id)
    work(slots=2)
    assert state_of(run_id) == "completed"


def test_atomic_requests_are_not_ours(opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database.settings_dict, "ATOMIC_REQUESTS", True)
    assert vars(resolve(f"/api/{SUM_UP}").func)["_non_atomic_requests"] == {"default"}
    assert ask("POST", SUM_UP, body={"args": [5]}).status_code == 202
    assert not models.FlowCommand.objects.exists(), "its first step was handed over before the answer"


def test_being_of_the_api_is_no_part_of_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaring, "registry", {})

    def same(number: int) -> object:
        return step(add, number, 1)

    open_, closed = flow(api=True)(same), flow(same)
    assert (open_.api, closed.api) == (True, False)
    assert open_.definition.version == closed.definition.version
    with pytest.raises(FlowInvalid, match=r"flow same: api is 'yes': it must be True or False\."):
        flow(api="yes")(same)  # type: ignore[call-overload]
