"""What people do to runs in the admin: who may, the page that asks, the act, its message and its record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from flows import dispatch, models
from flows.handle import RunHandle
from queueapp.errors import DuctorError
from queueapp.producer import handover
from tests.flows import host, panel
from tests.flows.panel import AMOUNT, CARD, EVERY_ACT, client_with, page_of, runs, text
from tests.working import work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("redis_url")]

ACTS = {"cancel": "cancel_run", "resume": "resume_run", "retry": "retry_step", "send": "send_event"}
"""Address → the permission that it takes beside the one to look."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with panel.fresh():
        yield


@pytest.fixture
def operator() -> Client:
    return client_with("view_run", *EVERY_ACT)


def failed() -> RunHandle:
    """A run whose second step has failed; it would not fail again."""
    host.FAIL.add("second")
    run: RunHandle = host.chain.start(5)
    work()
    host.FAIL.clear()
    assert run.refresh().state == "failed"
    return run


def messages(answer: object) -> list[str]:
    return [str(message) for message in answer.context["messages"]]  # type: ignore[attr-defined]  # of a test client


def logged() -> list[tuple[str, str | None]]:
    return [(entry.change_message, entry.object_id) for entry in LogEntry.objects.order_by("id")]


class TestActs:
    def test_a_run_is_cancelled_once_that_is_confirmed(self, operator: Client) -> None:
        run = host.chain.start(5)
        asked = text(operator.post(page_of(run.id, "cancel")))
        assert "Nothing of it starts any more" in asked
        assert run.refresh().state == "running"
        assert not logged()
        answer = operator.post(page_of(run.id, "cancel"), {"confirmed": "yes", "reason": "not wanted"}, follow=True)
        assert messages(answer) == ["The run was cancelled."]
        assert run.refresh().state == "cancelled"
        assert run.row.note == "not wanted"
        assert logged() == [("cancel: not wanted", run.id)]
        again = operator.post(page_of(run.id, "cancel"), {"confirmed": "yes"}, follow=True)
        assert messages(again) == ["Somebody was first. Nothing was changed."]
        assert len(logged()) == 1

    def test_a_run_is_resumed(self, operator: Client) -> None:
        run = failed()
        assert "does not run again" in text(operator.post(page_of(run.id, "resume")))
        answer = operator.post(page_of(run.id, "resume"), {"confirmed": "yes"}, follow=True)
        assert messages(answer) == ["The run goes on."]
        work()
        assert run.refresh().output == 16
        assert logged() == [("resume", run.id)]

    def test_one_step_is_retried(self, operator: Client) -> None:
        run = failed()
        page = text(operator.get(page_of(run.id)))
        assert page.count('name="step"') == 1
        assert 'name="step" value="second"' in page
        asked = text(operator.post(page_of(run.id, "retry"), {"step": "second"}))
        assert '<input type="hidden" name="step" value="second">' in asked
        assert run.refresh().state == "failed"
        form = {"confirmed": "yes", "step": "second"}
        answer = operator.post(page_of(run.id, "retry"), form, follow=True)
        assert messages(answer) == ["The step “second” runs again."]
        work()
        assert run.refresh().output == 16
        assert logged() == [("retry step second", run.id)]

    def test_an_event_is_sent_once_however_often_the_button_is_pressed(self, operator: Client) -> None:
        run = panel.approve.start(CARD)
        work()
        asked = operator.post(page_of(run.id, "send"))
        assert asked.context["events"] == ["approved"]
        event_id = asked.context["event_id"]
        payload = json.dumps({"amount": AMOUNT})
        form = {"confirmed": "yes", "name": "approved", "payload": payload, "event_id": event_id}
        assert messages(operator.post(page_of(run.id, "send"), form, follow=True)) == ["The event “approved” was sent."]
        assert messages(operator.post(page_of(run.id, "send"), form, follow=True)) != ["The event “approved” was sent."]
        assert models.Event.objects.count() == 1
        work()
        assert run.refresh().output == f"charged {AMOUNT}"
        assert logged() == [(f"send event approved {event_id}", run.id)]
        assert AMOUNT not in logged()[0][0]

    @pytest.mark.parametrize(
        ("payload", "said"),
        [
            ("{", "payload is no JSON"),
            ("[" * 100_000, "payload is no JSON"),
            ("[" * 150 + "]" * 150, "payload["),
            ("NaN", "payload is nan"),
            ('"\\u0000"', "payload has the character U+0000"),
            ('{"\\ud800": 1}', "payload has the character U+0000, or half"),
            ('"' + "x" * 300_000 + '"', "payload has more than"),
        ],
    )
    def test_what_was_typed_wrong_is_told_above_what_was_typed(self, operator: Client, payload: str, said: str) -> None:
        run = panel.approve.start(CARD)
        form = {"confirmed": "yes", "name": "approved", "payload": payload, "event_id": "e1"}
        answer = operator.post(page_of(run.id, "send"), form)
        assert said in answer.context["fault"]
        assert answer.context["typed"]["payload"] == payload
        assert answer.context["event_id"] == "e1"
        assert not models.Event.objects.exists()

    def test_an_event_that_nobody_waits_for_is_refused(self, operator: Client) -> None:
        run = panel.approve.start(CARD)
        form = {"confirmed": "yes", "name": "aproved", "payload": "", "event_id": "e1"}
        assert "must be one of: approved" in text(operator.post(page_of(run.id, "send"), form))
        assert not models.Event.objects.exists()

    @pytest.mark.parametrize(
        ("act", "fields", "said"),
        [
            ("resume", {}, "only a run that failed or was cancelled can be resumed"),
            ("retry", {"step": "second"}, "only one that failed or was cancelled runs again"),
            ("retry", {"step": "nothing"}, "has no step 'nothing'"),
        ],
    )
    def test_a_refusal_is_a_message_and_changes_nothing(
        self, operator: Client, act: str, fields: dict[str, str], said: str
    ) -> None:
        run = host.chain.start(5)
        work()
        lock = run.refresh().row.lock
        answer = operator.post(page_of(run.id, act), {"confirmed": "yes", **fields}, follow=True)
        [message] = messages(answer)
        assert said in message
        assert run.refresh().row.lock == lock
        assert not logged()

    def test_an_event_for_a_run_that_has_ended_is_refused(self, operator: Client) -> None:
        run = panel.approve.start(CARD)
        run.cancel()
        form = {"confirmed": "yes", "name": "approved", "payload": "", "event_id": "e1"}
        [message] = messages(operator.post(page_of(run.id, "send"), form, follow=True))
        assert "no step of it waits for an event" in message

    @pytest.mark.parametrize("form", [{"ids": "x"}, {"step": ["a", "b"]}, {"confirmed": "yes", "force": "1"}])
    def test_a_field_that_nobody_knows_is_refused(self, operator: Client, form: dict[str, object]) -> None:
        run = failed()
        answer = operator.post(page_of(run.id, "retry"), form, follow=True)
        assert "Nothing was changed." in messages(answer)[0]
        assert run.refresh().state == "failed"

    def test_it_works_where_every_request_is_a_transaction(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What an act hands to the queue follows its commit: a worker must find the rows."""
        run, handed_over = failed(), handover.hand_over
        inside: list[bool] = []

        def watched(orders: Sequence[handover.Order]) -> list[DuctorError | None]:
            inside.append(connection.in_atomic_block)
            return handed_over(orders)

        monkeypatch.setattr(dispatch, "hand_over", watched)
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        try:
            operator.post(page_of(run.id, "resume"), {"confirmed": "yes"})
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False
        assert inside == [False]
        assert not models.FlowCommand.objects.exists()
        work()
        assert run.refresh().output == 16


class TestWhoMay:
    @pytest.mark.parametrize("act", ACTS)
    def test_each_act_takes_its_own_permission(self, act: str) -> None:
        run = failed()
        others = [name for name in EVERY_ACT if name != ACTS[act]]
        without = client_with("view_run", *others, "view_operations", "operate_job")
        form = {"confirmed": "yes", "step": "second"} if act == "retry" else {"confirmed": "yes"}
        assert without.post(page_of(run.id, act), form).status_code == 403
        assert client_with(ACTS[act]).post(page_of(run.id, act), form).status_code == 403
        assert run.refresh().state == "failed"
        assert client_with("view_run", ACTS[act]).post(page_of(run.id, act), {}).status_code == 200

    def test_the_page_has_the_buttons_of_what_one_may_and_what_fits(self) -> None:
        run, waiting = failed(), panel.approve.start(CARD)
        every = client_with("view_run", *EVERY_ACT)

        def buttons(client: Client, run_id: str) -> set[str]:
            page = text(client.get(page_of(run_id)))
            return {act for act in ACTS if f'action="{page_of(run_id, act)}"' in page}

        assert buttons(every, run.id) == {"resume", "retry"}
        assert buttons(every, waiting.id) == {"cancel", "send"}
        assert buttons(client_with("view_run"), run.id) == set()
        assert buttons(client_with("view_run", "resume_run"), run.id) == {"resume"}

    @pytest.mark.parametrize("act", ACTS)
    def test_no_act_is_done_by_a_link(self, operator: Client, act: str) -> None:
        assert operator.get(page_of(failed().id, act)).status_code == 405

    def test_looking_takes_its_permission(self) -> None:
        run = failed()
        nobody = client_with(*EVERY_ACT, "view_operations", "view_payload")
        for address in (runs(), page_of(run.id), page_of(run.id, "history")):
            assert nobody.get(address).status_code == 403
            assert client_with("view_run").get(address).status_code == 200
            assert client_with("view_run").post(address).status_code == 405

    @pytest.mark.parametrize("staff", [False, None])
    def test_who_is_not_of_the_staff_is_sent_to_the_login(self, staff: bool | None) -> None:
        run = failed()
        client = Client() if staff is None else client_with("view_run", *EVERY_ACT, staff=False)
        for address in (runs(), page_of(run.id), *(page_of(run.id, act) for act in ACTS)):
            answer = client.post(address, {"confirmed": "yes"})
            assert answer.status_code == 302
            assert answer["Location"].startswith("/admin/login/")
        assert run.refresh().state == "failed"

    def test_no_post_works_without_a_token(self, admin_user: User) -> None:
        run, client = failed(), Client(enforce_csrf_checks=True)
        client.force_login(admin_user)
        for act in ACTS:
            assert client.post(page_of(run.id, act), {"confirmed": "yes"}).status_code == 403
        assert run.refresh().state == "failed"

    def test_even_a_superuser_adds_edits_and_deletes_nothing(self, admin_client: Client) -> None:
        run = failed()
        for page, status in (("add/", 405), (f"{run.id}/delete/", 404)):
            assert admin_client.post(f"{runs()}{page}", {"post": "yes"}).status_code == status
        version = models.FlowVersion.objects.get(flow="chain")
        for page in ("add/", f"{version.pk}/delete/"):
            assert admin_client.post(f"/admin/ductor_flows/flowversion/{page}", {"post": "yes"}).status_code == 403
        assert models.FlowVersion.objects.filter(pk=version.pk).exists()
        assert admin_client.get("/admin/").status_code == 200
