"""Runs in the admin: the list, and what a run's page shows to whom."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from flows import models
from flows.admin.picture import SIGNS
from queueapp.inspection.jobs import find_job
from tests.flows import host, panel
from tests.flows.panel import AMOUNT, CARD, SECRET, client_with, page_of, runs, text
from tests.working import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_url")]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with panel.fresh():
        yield


@pytest.fixture
def looker() -> Client:
    """Sees runs, and nothing of what is in them."""
    return client_with("view_run")


class TestList:
    def test_it_shows_what_tells_runs_apart(self, looker: Client) -> None:
        host.FAIL.add("second")
        run = host.chain.using(tenant="acme").start(5)
        work()
        [row] = looker.get(runs()).context["rows"]
        assert (row.flow, row.state, row.tenant, row.cause, row.round) == ("chain", "failed", "acme", "second", 1)
        assert row.url == page_of(run.id)
        assert row.started
        assert row.took

    def test_it_is_filtered_by_state_flow_and_tenant(self, looker: Client) -> None:
        chain, patient = host.chain.using(tenant="acme").start(1), host.patient.using(tenant="globex").start(1)
        chain.cancel()

        def listed(**asked: str) -> set[str]:
            return {row.id for row in looker.get(runs(), asked).context["rows"]}

        assert listed() == {chain.id, patient.id}
        assert listed(state="cancelled") == {chain.id}
        assert listed(flow="patient") == {patient.id}
        assert listed(tenant="globex") == {patient.id}
        assert listed(tenant="globex", state="cancelled") == set()
        assert listed(state="no such") == {chain.id, patient.id}

    def test_an_id_leads_to_its_page_and_a_key_to_the_runs_that_have_it(self, looker: Client) -> None:
        first, second = (host.chain.using(tenant=tenant, key="a b").start(1) for tenant in ("acme", "globex"))
        host.chain.start(1)
        assert looker.get(runs(), {"q": first.id})["Location"] == page_of(first.id)
        assert {row.id for row in looker.get(runs(), {"q": "a b"}).context["rows"]} == {first.id, second.id}
        assert not looker.get(runs(), {"q": "no such"}).context["rows"]

    def test_its_pages_hold_every_run_once_also_of_one_moment(self, looker: Client) -> None:
        made = [
            models.Run(id=f"r{number:03}", flow="f", definition="v", tenant="t", pool="p", input={}, started_ms=5)
            for number in range(120)
        ]
        models.Run.objects.bulk_create(made)
        seen, query = [], "?per=50"
        for _ in range(4):
            answer = looker.get(runs() + query)
            seen += [row.id for row in answer.context["rows"]]
            query = answer.context["next"]
            if not query:
                break
        assert len(seen) == len(set(seen)) == 120

    def test_it_counts_nothing_and_reads_no_contents(self, looker: Client) -> None:
        host.chain.start(1)
        with CaptureQueriesContext(connection) as queries:
            text(looker.get(runs(), {"tenant": "default"}))
        assert len(queries) <= 8
        assert not [query for query in queries if "COUNT(" in query["sql"] or '"input"' in query["sql"]]


class TestPage:
    def test_the_steps_are_drawn_and_listed_with_state_attempt_and_duration(self, looker: Client) -> None:
        host.FAIL.add("second")
        run = host.chain.start(5)
        work()
        page = looker.get(page_of(run.id))
        lines = {line.step: line for line, _ in page.context["lines"]}
        assert {step: (line.state, line.attempt) for step, line in lines.items()} == {
            "add": ("completed", 1),
            "second": ("failed", 1),
        }
        assert all(line.started and line.took for line in lines.values())
        boxes = {box.name: box for box in page.context["picture"].boxes}
        assert {name: (box.state, box.second, box.third) for name, box in boxes.items()} == {
            step: (line.state, f"{line.state} · attempt 1", line.took) for step, line in lines.items()
        }
        shown = text(page)
        assert shown.count('role="img"') == 1
        assert f'd="{SIGNS["failed"]}"' in shown
        assert 'href="#step-second"' in shown

    def test_a_step_leads_to_its_job_for_those_who_see_jobs(self, looker: Client) -> None:
        run = host.chain.start(5)
        work()
        jobs_too = client_with("view_run", "view_operations")
        lines = [line for line, _ in jobs_too.get(page_of(run.id)).context["lines"]]
        assert len({line.job_url for line in lines}) == 2
        for line in lines:
            job_id = line.job_url.rstrip("/").rpartition("/")[2].replace("_5F", "_")
            job = find_job(job_id)
            assert job is not None
            assert job.state == "completed"
            assert line.job_url in text(jobs_too.get(page_of(run.id)))
        assert not any(line.job_url for line, _ in looker.get(page_of(run.id)).context["lines"])

    def test_contents_take_the_right_to_see_them_and_are_masked(self, looker: Client) -> None:
        run = panel.pay.start(CARD, "0", {"password": SECRET, "note": "keep"})
        work()
        seen = text(client_with("view_run", "view_payload").get(page_of(run.id)))
        assert "&quot;note&quot;: &quot;keep&quot;" in seen
        assert f"ValueError: nothing of {AMOUNT}" in seen
        assert "Traceback" in seen
        assert SECRET not in seen
        assert CARD not in seen
        unseen = text(looker.get(page_of(run.id)))
        assert "ValueError" in unseen
        for hidden in ("keep", AMOUNT, "Traceback", SECRET, CARD):
            assert hidden not in unseen

    def test_the_output_of_a_completed_run_is_shown(self) -> None:
        run = panel.pay.start(CARD, AMOUNT, {})
        work()
        assert f"charged {AMOUNT}" in text(client_with("view_run", "view_payload").get(page_of(run.id)))
        assert AMOUNT not in text(client_with("view_run").get(page_of(run.id)))

    def test_a_map_of_a_thousand_items_is_one_box_with_its_counts_and_the_first_that_failed(self) -> None:
        run = panel.weigh_all.start(list(range(1000)))
        work()
        assert run.refresh().state == "failed"
        page = client_with("view_run", "view_operations").get(page_of(run.id))
        [box] = page.context["picture"].boxes
        assert (box.shape, box.state) == ("map", "failed")
        [(line, _)] = page.context["lines"]
        assert line.total == 1000
        assert line.failed >= 1
        assert box.third.startswith(f"{line.completed}/1000 · {line.failed} failed")
        assert box.bar_failed >= 1
        items = page.context["items"]
        assert items[0].index == 99
        assert items[0].error == "ValueError"
        assert items[0].job_url
        assert len(text(page)) < 60_000

    def test_a_sub_flow_and_its_parent_lead_to_each_other(self, looker: Client) -> None:
        run = host.outer.start(1)
        work()
        sub = models.Run.objects.get(parent_run=run.id)
        assert f'href="{page_of(sub.id)}">its run' in text(looker.get(page_of(run.id)))
        assert [row.place for row in looker.get(page_of(run.id)).context["subs"]] == ["chain"]
        assert f'href="{page_of(run.id)}"' in text(looker.get(page_of(sub.id)))
        assert [row.id for row in looker.get(runs(), {"parent": run.id}).context["rows"]] == [sub.id]

    def test_events_are_listed_and_what_a_step_waits_for_is_said(self, looker: Client) -> None:
        run = panel.approve.start(CARD)
        work()
        assert "waits for the event “approved”; until 20" in text(looker.get(page_of(run.id)))
        run.send_event("approved", {"amount": AMOUNT, "password": SECRET})
        work()
        seen = text(client_with("view_run", "view_payload").get(page_of(run.id)))
        assert "&quot;amount&quot;" in seen
        assert SECRET not in seen
        [event] = looker.get(page_of(run.id)).context["events"]
        assert (event.name, event.taken_by, event.payload) == ("approved", "approved", "")

    def test_why_a_step_was_skipped_is_said_in_words(self, looker: Client) -> None:
        run = host.chain.start(5)
        work()
        models.StepRun.objects.filter(run_id=run.id, step="second").update(state="skipped", skipped="condition")
        assert "its condition was not true" in text(looker.get(page_of(run.id)))

    def test_a_run_whose_definition_is_gone_is_listed_without_a_graph(self, looker: Client) -> None:
        run = host.chain.start(5)
        work()
        models.Run.objects.filter(pk=run.id).update(definition="gone")
        page = looker.get(page_of(run.id))
        assert "is not stored any more" in text(page)
        assert page.context["picture"] is None
        assert [line.step for line, _ in page.context["lines"]] == ["add", "second"]

    @pytest.mark.parametrize("run_id", ["no-such", "x%00y", "%3Cscript%3E"])
    def test_an_unknown_id_is_a_404_with_a_page(self, looker: Client, run_id: str) -> None:
        answer = looker.get(f"{runs()}{run_id}/")
        assert answer.status_code == 404
        assert "<script>" not in answer.content.decode().replace("<script ", "")

    def test_it_costs_the_same_for_a_large_map(self, looker: Client) -> None:
        small, large = panel.weigh_all.start([1]), panel.weigh_all.start(list(range(300)))
        for _ in range(5):
            work(slots=4)
        counted = []
        for run in (small, large):
            looker.get(page_of(run.id))
            with CaptureQueriesContext(connection) as queries:
                text(looker.get(page_of(run.id)))
            counted.append(len(queries))
            assert not [query for query in queries if '"output"' in query["sql"].partition("FROM")[0]]
        assert max(counted) <= 14
        assert counted[1] - counted[0] <= 1


def test_names_and_texts_are_text_on_every_page() -> None:
    script = "<script>alert(1)</script>{{ 7 }}"
    run = host.chain.using(tenant="acme", key=script).start(5)
    run.cancel(script)
    models.StepRun.objects.filter(run_id=run.id).update(error=script)
    models.Event.objects.create(run_id=run.id, event_id=script, name=script, payload={script: script}, sent_ms=1)
    client = client_with("view_run", "view_payload", "view_operations")
    answers = [client.get(page_of(run.id))]
    answers += [client.get(runs(), dict.fromkeys(("q", "state", "flow", "tenant", "parent", "cursor"), script))]
    for answer in answers:
        assert "<script>alert" not in text(answer)
        assert "{{ 7" in json.dumps(text(answer))


def test_a_stored_definition_is_drawn_and_listed() -> None:
    host.fan.start(3)
    panel.weigh_all.start([])
    client = client_with("view_flowversion")
    row = models.FlowVersion.objects.get(flow="fan")
    assert row.version in text(client.get(reverse("admin:ductor_flows_flowversion_changelist")))
    address = reverse("admin:ductor_flows_flowversion_change", args=[row.pk])
    page = client.get(address)
    assert [step.kind for step in page.context["steps"]] == ["task", "map", "task"]
    assert [box.state for box in page.context["picture"].boxes] == ["", "", ""]
    assert page.context["is_current"]
    other = models.FlowVersion.objects.get(flow="weigh_all")
    assert SECRET in other.definition
    assert SECRET not in text(client.get(reverse("admin:ductor_flows_flowversion_change", args=[other.pk])))
    assert client.post(address).status_code == 405
    assert client.get(reverse("admin:ductor_flows_flowversion_change", args=["9" * 40])).status_code == 404
    models.FlowVersion.objects.filter(pk=row.pk).update(definition=json.dumps({"form": 99, "name": "fan"}))
    assert "later release" in text(client.get(address))
