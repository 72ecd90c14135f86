"""Looking at runs over HTTP: lists, one run, its steps and events; what is told to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flows import declaring, models
from flows.api import answers, runs, shapes
from flows.api.view import definition_of
from queueapp.api import cursors
from tests.flows.api.host import run_in
from tests.flows.host import FAIL
from tests.working import work

pytestmark = [pytest.mark.urls("tests.flows.api.host"), pytest.mark.django_db(transaction=True)]

Ask = Callable[..., Any]
Begin = Callable[..., str]
CARD = {"number": "4111", "holder": "Ada"}


def ids(answer: Any) -> list[str]:
    return [run["id"] for run in answer.json()["results"]]


def pages(ask: Ask, path: str, **how: str) -> list[list[str]]:
    """The ids of every page, from the first to the last."""
    found, following = [], path
    while following:
        answer = ask("GET", following, **how)
        assert answer.status_code == 200, answer.content
        found.append(ids(answer))
        following = answer.json()["next"]
    return found


class TestLists:
    def test_newest_first_by_state_flow_and_tenant(self, opened: None, ask: Ask, begin: Begin) -> None:
        ended, failed = run_in("completed"), run_in("failed")
        fresh, other = begin("hold_on", 1), begin("sum_up", 1, tenants="globex")
        run_in("running", flow=declaring.registry["kept_back"])
        assert ids(ask("GET", "runs/")) == [fresh, failed, ended]
        assert ids(ask("GET", "runs/?state=failed")) == [failed]
        assert ids(ask("GET", "runs/?flow=sum_up")) == [failed, ended]
        assert ids(ask("GET", "runs/?flow=sum_up&state=running")) == []
        assert ids(ask("GET", "runs/?flow=kept_back")) == []
        assert ids(ask("GET", "runs/", tenants="ALL")) == [other, fresh, failed, ended]
        assert ids(ask("GET", "runs/?flow=sum_up", tenants="ALL")) == [other, failed, ended]
        assert ids(ask("GET", "runs/?tenant=globex", tenants="acme,globex")) == [other]

    def test_pages_follow_each_other_without_gap_or_repeat(
        self, opened: None, ask: Ask, begin: Begin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        every = [begin("hold_on", number) for number in range(7)]
        models.Run.objects.update(started_ms=1_000_000)
        # Of one moment they stand in the order of their ids, as the database sorts text.
        [listed] = pages(ask, "runs/?page_size=8")
        assert sorted(listed) == sorted(every)
        every = listed
        for size in (1, 2, 3, 7):
            found = pages(ask, f"runs/?page_size={size}")
            assert [run for page in found for run in page] == every
        monkeypatch.setattr(runs, "LOOKS", 2)
        for size in (1, 2, 3):
            assert [run for page in pages(ask, f"runs/?page_size={size}") for run in page] == every

    def test_a_page_looks_through_so_many_and_no_more(
        self, opened: None, ask: Ask, begin: Begin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wanted = run_in("cancelled")
        for number in range(6):
            begin("hold_on", number)
        monkeypatch.setattr(runs, "LOOKS", 3)
        assert pages(ask, "runs/?state=cancelled") == [[], [], [wanted]]
        with CaptureQueriesContext(connection) as asked:
            ask("GET", "runs/?state=cancelled")
        assert '"started_ms" >= ' in asked[-1]["sql"], "or it would walk to the end, finding nothing"

    def test_it_takes_two_queries_whatever_there_is(
        self, opened: None, ask: Ask, begin: Begin, django_assert_num_queries: Any
    ) -> None:
        for number in range(5):
            begin("hold_on", number)
        with django_assert_num_queries(2):
            assert len(ids(ask("GET", "runs/"))) == 5

    @pytest.mark.parametrize("path", ["runs/", "events"])
    @pytest.mark.parametrize("place", ["", "x", "1", "1 ", "é x", "9" * 30, "-5 x", "1 2 3", "\u0663 x", "1\n x"])
    def test_a_cursor_of_another_list_opens_none(
        self, opened: None, ask: Ask, begin: Begin, path: str, place: str
    ) -> None:
        run = begin("hold_on", 1)
        path = "runs/" if path == "runs/" else f"runs/{run}/events/"
        answer = ask("GET", f"{path}?cursor={cursors.sealed(place)}")
        assert answer.status_code == 400 or answer.json() == {"next": None, "results": []}, answer.content
        for forged in ("A" * 40, place, "é"):
            assert ask("GET", f"{path}?cursor={forged}").status_code == 400

    @pytest.mark.parametrize("query", ["state=pending", "state=", "flow=a b", "flow=%00", "page_size=x", "tenant=_x"])
    def test_a_wrong_parameter_is_named(self, opened: None, ask: Ask, query: str) -> None:
        answer = ask("GET", f"runs/?{query}")
        assert (answer.status_code, list(answer.json())) == (400, [query.partition("=")[0]])


class TestOne:
    def test_a_run_and_its_steps(self, opened: None, ask: Ask) -> None:
        run = run_in("completed")
        told = ask("GET", f"runs/{run}/").json()
        assert (told["flow"], told["tenant"], told["state"], told["output"]) == ("sum_up", "acme", "completed", 16)
        assert (told["round"], told["cause"], told["key"], told["step_of"]) == (1, None, None, None)
        assert told["took_s"] >= 0
        assert told["ended"] >= told["started"]
        first, second = told["steps"]
        assert (first["step"], first["kind"], first["state"], first["attempt"]) == ("add", "task", "completed", 1)
        assert second["took_s"] >= 0
        assert first["items"] is first["error"] is first["skipped"] is None
        assert ask("GET", f"runs/{run}/steps/").json() == {"results": told["steps"]}

    def test_a_step_that_was_not_reached_waits(self, opened: None, ask: Ask, begin: Begin) -> None:
        run = begin("hold_on", 1)
        go, add = ask("GET", f"runs/{run}/steps/").json()["results"]
        assert (go["step"], go["kind"], go["state"]) == ("go", "event", "running")
        assert (add["state"], add["attempt"], add["started"], add["took_s"]) == ("waiting", 0, None, None)

    def test_a_map_tells_its_counts(self, opened: None, ask: Ask, begin: Begin) -> None:
        run = begin("spread_out", 3)
        work(slots=2)
        told = ask("GET", f"runs/{run}/").json()
        assert told["output"] == [0, 2, 4]
        assert told["steps"][1]["items"] == {"total": 3, "completed": 3, "failed": 0}

    def test_what_undoes_stands_at_the_end(self, opened: None, ask: Ask, begin: Begin) -> None:
        FAIL.add("second")
        run = begin("careful_sum", 1)
        work(slots=2)
        told = ask("GET", f"runs/{run}/").json()
        assert (told["state"], told["cause"]) == ("compensated", "second")
        assert [step["step"] for step in told["steps"]] == ["add", "second", "undo:add"]

    def test_a_sub_flow_says_whose_step_it_is_where_that_is_told(self, opened: None, ask: Ask, begin: Begin) -> None:
        parent = begin("nested", 1)
        hidden = run_in("running", flow=declaring.registry["kept_inside"])
        work(slots=2)
        subs = {models.Run.objects.get(pk=run).parent_run: run for run in ids(ask("GET", "runs/?flow=sum_up"))}
        of = ask("GET", f"runs/{subs[parent]}/").json()["step_of"]
        assert of == {"run": parent, "url": f"http://testserver/api/runs/{parent}/", "step": "sum_up"}
        assert ask("GET", f"runs/{subs[hidden]}/").json()["step_of"] is None
        models.Run.objects.filter(pk=parent).update(tenant="globex")
        assert ask("GET", f"runs/{subs[parent]}/").json()["step_of"] is None

    def test_a_run_whose_flow_is_gone_shows_its_state(
        self, opened: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = run_in("completed")
        monkeypatch.delitem(declaring.registry, "sum_up")
        told = ask("GET", f"runs/{run}/").json()
        assert (told["state"], told["output"], len(told["steps"])) == ("completed", None, 2)
        models.FlowVersion.objects.all().delete()
        monkeypatch.setattr("flows.versions._stored", {})
        told = ask("GET", f"runs/{run}/").json()
        assert (told["steps"][0]["kind"], told["steps"][0]["state"]) == (None, "completed")


class TestContents:
    def test_input_notes_and_texts_of_errors_are_for_those_who_may_see_contents(
        self, opened: None, ask: Ask, begin: Begin, signed_in: Callable[..., Any]
    ) -> None:
        failed, cancelled = run_in("failed"), run_in("cancelled")
        told = ask("GET", f"runs/{failed}/").json()
        step = told["steps"][1]
        assert (told["input"], step["error"], step["message"]) == (None, "ValueError", None)
        assert (told["cause"], ask("GET", f"runs/{cancelled}/").json()["note"]) == ("second", None)
        signed_in("view_payload")
        told = ask("GET", f"runs/{failed}/").json()
        assert told["input"] == {"number": 5, "more": 1}
        assert "second was told to fail" in told["steps"][1]["message"]
        assert ask("GET", f"runs/{failed}/steps/").json()["results"] == told["steps"]
        assert ask("GET", f"runs/{cancelled}/").json()["note"] == "secret reason"

    def test_contents_are_masked(self, opened: None, ask: Ask, begin: Begin, signed_in: Callable[..., Any]) -> None:
        paid, kept = begin("pay_card", CARD, 7), begin("open_vault", "c-1")
        work(slots=2)
        assert ask("GET", f"runs/{paid}/").json()["output"] == {"token": "********", "amount": 7}
        assert ask("GET", f"runs/{kept}/").json()["output"] == "********"
        signed_in("view_payload")
        assert ask("GET", f"runs/{paid}/").json()["input"] == {"card": "********", "amount": 7}
        for run in (paid, kept):
            content = ask("GET", f"runs/{run}/").content
            assert not any(secret in content for secret in (b"4111", b"t-1", b"c-1"))

    def test_payloads_of_events_are_masked_and_for_those_who_may_see_contents(
        self, opened: None, ask: Ask, begin: Begin, signed_in: Callable[..., Any]
    ) -> None:
        run = begin("hold_on", 1)
        body = {"name": "go", "payload": {"more": 4, "password": "p-1"}, "id": "e1"}
        assert ask("POST", f"runs/{run}/events/", body=body).status_code == 202
        [event] = ask("GET", f"runs/{run}/events/").json()["results"]
        assert (event["id"], event["name"], event["taken_by"], event["payload"]) == ("e1", "go", "go", None)
        signed_in("view_payload")
        [event] = ask("GET", f"runs/{run}/events/").json()["results"]
        assert event["payload"] == {"more": 4, "password": "********"}


def test_what_is_told_has_the_shape_that_is_described(opened: None, ask: Ask, begin: Begin) -> None:
    run = models.Run.objects.get(pk=begin("spread_out", 3))
    work(slots=2)
    run.refresh_from_db()
    whole = answers.whole(run, str, definition=definition_of(run), known=True, parent=run, contents=True)
    assert set(whole) == set(shapes.Run().fields)
    assert set(whole["step_of"]) == set(shapes.StepOf().fields)
    assert set(whole["steps"][1]) == set(shapes.RunStep().fields)
    assert set(whole["steps"][1]["items"]) == set(shapes.MapItems().fields)
    assert set(answers.brief(run, str)) == set(shapes.RunBrief().fields)
    event = answers.event(models.Event(event_id="e", name="go", sent_ms=1), contents=True)
    assert set(event) == set(shapes.RunEvent().fields)


def test_a_page_of_events_follows_the_one_before(opened: None, ask: Ask, begin: Begin) -> None:
    run = begin("hold_on", 1)
    for number in range(5):
        ask("POST", f"runs/{run}/events/", body={"name": "other", "id": f"e{number}"})
    assert pages(ask, f"runs/{run}/events/?page_size=2") == [["e0", "e1"], ["e2", "e3"], ["e4"]]
