"""Acting on runs over HTTP: what each action does by the state of the run, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flows import models
from flows.errors import RunBusy, UnknownRun
from flows.handle import RunHandle
from tests.flows.api.host import STATES, rows, run_in, state_of
from tests.flows.host import FAIL, RAN
from tests.working import work

pytestmark = [pytest.mark.urls("tests.flows.api.host"), pytest.mark.django_db(transaction=True)]

Ask = Callable[..., Any]
Begin = Callable[..., str]
SENT = {"name": "go", "payload": {"more": 4}}
OUTCOMES = {
    "cancel": {"running": 200, "completed": 409, "failed": 409, "cancelled": 200},
    "resume": {"running": 409, "completed": 409, "failed": 200, "cancelled": 200},
    "steps/second/retry": {"running": 409, "completed": 409, "failed": 200, "cancelled": 409},
    "events": {"running": 202, "completed": 409, "failed": 409, "cancelled": 409},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("action", OUTCOMES)
def test_each_action_by_the_state_of_the_run(opened: None, ask: Ask, action: str, state: str) -> None:
    run = run_in(state)
    before = rows()
    answer = ask("POST", f"runs/{run}/{action}/", body=SENT if action == "events" else None)
    assert answer.status_code == OUTCOMES[action][state], answer.content
    if answer.status_code == 409:
        told = answer.json()
        assert (told["code"], told["state"]) == ("flow_refused", state)
        assert told["detail"]
        assert rows() == before


def test_cancel(opened: None, ask: Ask) -> None:
    run = run_in("running")
    first, again = (ask("POST", f"runs/{run}/cancel/", body={"reason": "not wanted"}).json() for _ in range(2))
    url = f"http://testserver/api/runs/{run}/"
    assert first == {"id": run, "url": url, "state": "cancelled", "changed": True}
    assert again == {**first, "changed": False}
    assert models.Run.objects.get().note == "not wanted"
    work()
    assert not RAN


def test_resume_and_a_step_that_is_retried(opened: None, ask: Ask) -> None:
    for path in ("resume", "steps/second/retry"):
        run = run_in("failed")
        told = ask("POST", f"runs/{run}/{path}/").json()
        assert (told["state"], told["changed"]) == ("running", True)
        work(slots=2)
        told = ask("GET", f"runs/{run}/").json()
        assert (told["state"], told["output"], told["round"]) == ("completed", 16, 2)
        assert [step["attempt"] for step in told["steps"]] == [1, 2]


def test_a_refusal_says_why(opened: None, ask: Ask) -> None:
    run = run_in("completed")
    assert ask("POST", f"runs/{run}/resume/").json()["detail"] == (
        f"Run {run} is completed: only a run that failed or was cancelled can be resumed."
    )
    assert (
        "only one that failed or was cancelled runs again"
        in (ask("POST", f"runs/{run}/steps/add/retry/").json()["detail"])
    )


@pytest.mark.parametrize(
    "step", ["third", "undo:third", "undo:", ":", "a%00b", "%ff", "x" * 3_000, "%2e%2e", "add%0a", "ADD", "é", "*"]
)
def test_an_unknown_step_is_not_found(opened: None, ask: Ask, step: str) -> None:
    run = run_in("failed")
    before = rows()
    answer = ask("POST", f"runs/{run}/steps/{step}/retry/")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert rows() == before


def test_what_undoes_a_step_is_not_retried(opened: None, ask: Ask) -> None:
    run = run_in("failed")
    answer = ask("POST", f"runs/{run}/steps/undo:add/retry/")
    assert (answer.status_code, answer.json()["code"]) == (409, "flow_refused")


class TestEvents:
    def test_an_event_is_kept_until_a_step_takes_it_and_counts_once(self, opened: None, ask: Ask, begin: Begin) -> None:
        run = begin("hold_on", 1)
        first = ask("POST", f"runs/{run}/events/", body={**SENT, "id": "e1"})
        again = ask("POST", f"runs/{run}/events/", body={"name": "go", "payload": {"more": 9}, "id": "e1"})
        assert (first.status_code, first.json()) == (202, {"id": "e1", "changed": True})
        assert (again.status_code, again.json()) == (200, {"id": "e1", "changed": False})
        work()
        assert ask("GET", f"runs/{run}/").json()["output"] == 5
        again = ask("POST", f"runs/{run}/events/", body={**SENT, "id": "e1"})
        assert again.status_code == 200, "a repeat of what was taken does no harm, whatever became of the run"

    def test_without_an_id_each_is_one_of_its_own(self, opened: None, ask: Ask, begin: Begin) -> None:
        run = begin("hold_on", 1)
        told = [ask("POST", f"runs/{run}/events/", body={"name": "other"}).json() for _ in range(2)]
        assert [each["changed"] for each in told] == [True, True]
        assert sorted(models.Event.objects.values_list("event_id", flat=True)) == sorted(each["id"] for each in told)
        assert set(models.Event.objects.values_list("payload", flat=True)) == {None}

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "name"),
            ({"name": ""}, "name"),
            ({"name": "a b"}, "name"),
            ({"name": "a\0"}, "name"),
            ({"name": "x" * 101}, "name"),
            ({"name": 5}, "name"),
            ({"name": "go", "id": ""}, "id"),
            ({"name": "go", "id": "a\0"}, "id"),
            ({"name": "go", "id": "\ud800"}, "id"),
            ({"name": "go", "id": "x" * 201}, "id"),
            ({"name": "go", "payload": "a\0"}, "payload"),
            ({"name": "go", "payload": {"a\0": 1}}, "payload"),
            ({"name": "go", "payload": "\ud800"}, "payload"),
            ({"name": "go", "payload": 2**70}, "payload"),
            ({"name": "go", "data": 1}, "data"),
        ],
    )
    def test_the_field_is_named(self, opened: None, ask: Ask, begin: Begin, body: object, field: str) -> None:
        run = begin("hold_on", 1)
        answer = ask("POST", f"runs/{run}/events/", body=body)
        assert (answer.status_code, list(answer.json())) == (400, [field])
        assert not models.Event.objects.exists()

    def test_deep_and_not_finite(self, opened: None, client: Any, begin: Begin) -> None:
        run = begin("hold_on", 1)
        for payload in (b"[" * 150 + b"]" * 150, b"NaN", b"1e999"):
            answer = client.post(
                f"/api/runs/{run}/events/",
                b'{"name": "go", "payload": ' + payload + b"}",
                content_type="application/json",
                headers={"X-Tenants": "acme"},
            )
            assert answer.status_code == 400
        assert not models.Event.objects.exists()

    def test_a_huge_payload_is_too_large(self, opened: None, ask: Ask, begin: Begin, settings: Any) -> None:
        run = begin("hold_on", 1)
        settings.DUCTOR = {**settings.DUCTOR, "MAX_PAYLOAD_BYTES": 1_000}
        for size, status in ((900, 202), (1_100, 413), (500_000, 413)):
            answer = ask("POST", f"runs/{run}/events/", body={"name": "other", "payload": "x" * size})
            assert answer.status_code == status


@pytest.mark.parametrize("reason", ["", "a\0", "x" * 2_001, 5])
def test_a_wrong_reason_is_named(opened: None, ask: Ask, reason: object) -> None:
    run = run_in("running")
    answer = ask("POST", f"runs/{run}/cancel/", body={"reason": reason})
    assert (answer.status_code, list(answer.json())) == (400, ["reason"])
    assert state_of(run) == "running"


class TestOthersAtOnce:
    def raising(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        def raises(handle: RunHandle) -> bool:
            raise error

        monkeypatch.setattr(RunHandle, "resume", raises)

    def test_a_run_that_others_change_each_time_is_busy(
        self, opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = run_in("failed")
        self.raising(monkeypatch, RunBusy("busy"))
        answer = ask("POST", f"runs/{run}/resume/")
        assert (answer.status_code, answer.json()["code"], answer["Retry-After"]) == (503, "run_busy", "1")

    def test_one_that_retention_removes_meanwhile_is_not_found(
        self, opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = run_in("failed")
        self.raising(monkeypatch, UnknownRun("gone"))
        answer = ask("POST", f"runs/{run}/resume/")
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not found.", "code": "not_found"})

    def test_one_whose_version_is_gone_cannot_go_on(
        self, opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = run_in("failed")
        models.Run.objects.update(definition="0" * 12)
        for path in ("resume", "cancel", "steps/add/retry"):
            answer = ask("POST", f"runs/{run}/{path}/")
            assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (
                409,
                "unknown_flow",
                "failed",
            )


def test_the_body_of_a_step_that_failed_ran_once_more(opened: None, ask: Ask) -> None:
    run = run_in("failed")
    FAIL.add("second")
    ask("POST", f"runs/{run}/steps/second/retry/")
    work(slots=2)
    told = ask("GET", f"runs/{run}/").json()
    assert (told["state"], told["steps"][1]["attempt"]) == ("failed", 2)
