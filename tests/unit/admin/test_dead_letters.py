"""Dead letters in the admin: lists, groups, the filter, what is done to them, and what is written down about it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import User
from django.test import AsyncClient, Client
from django.urls import reverse

from queueapp.admin import choosing, export
from queueapp.errors import StoreUnavailable
from queueapp.inspection import bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.jobs import find_job, find_jobs
from queueapp.models import DeadLetterInspection
from queueapp.states import Outcome, State
from queueapp.store import shards
from tests.unit.admin.conftest import IN_A_TRACEBACK, IN_AN_ARGUMENT, SECRET, Login, enqueue, fail, lease, public

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

LIST = reverse("admin:queueapp_deadletters_changelist", urlconf="tests.unit.admin.urls")
GROUPS, RETRY, DISCARD, EXPORT = (
    reverse(f"admin:queueapp_deadletters_{name}", urlconf="tests.unit.admin.urls")
    for name in ("groups", "retry", "discard", "export")
)


def text(answer: Any) -> str:
    return str(answer.content.decode())


def ids_on(answer: Any) -> list[str]:
    return [row.id for row in answer.context["rows"]]


def states(ids: list[str]) -> list[str]:
    """State or outcome of each job."""
    found = []
    for job_id in ids:
        place = shards.locate(job_id)
        assert place is not None
        record = shards.reads(place[0]).job(place[1])
        found.append("gone" if record is None else (record.outcome or record.state).value)
    return found


# -- looking ---------------------------------------------------------------------------------------------------------


def test_the_list_shows_the_newest_first_and_goes_on_as_of_its_first_page(admin_client: Client) -> None:
    died = [fail()[0] for _ in range(53)]
    first = admin_client.get(LIST)
    assert ids_on(first) == died[:2:-1]
    later = fail()[0]
    second = admin_client.get(LIST + first.context["next"])
    assert ids_on(second) == died[2::-1]
    assert ids_on(admin_client.get(LIST))[0] == later
    assert ids_on(admin_client.get(LIST + second.context["previous"])) == ids_on(first)


@pytest.mark.parametrize(
    ("name", "value"), [("tenant", "globex"), ("group", "bbbbbbbbbbbb"), ("pool", "mail"), ("reason", "spoilt")]
)
def test_the_filter(admin_client: Client, name: str, value: str) -> None:
    fail(3)
    wanted = {
        "tenant": lambda: fail(2, tenant="globex"),
        "group": lambda: fail(2, group="bbbbbbbbbbbb"),
        "pool": lambda: fail(2, pool="mail"),
        "reason": spoil,
    }[name]()
    answer = admin_client.get(LIST, {name: value})
    assert sorted(ids_on(answer)) == sorted(wanted)
    assert admin_client.get(LIST, {name: value, "task": "other.task"}).context["rows"] == []


def spoil() -> list[str]:
    ids = enqueue(2)
    shards.store("default").move_to_dlq(ids, "spoilt")
    return public(ids)


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 30, "1e3", "", "100000"])
@pytest.mark.parametrize("per", ["1000000000", "0", "-5", "x"])
def test_whatever_the_address_says_a_page_is_bounded(admin_client: Client, offset: str, per: str) -> None:
    fail()
    answer = admin_client.get(LIST, {"offset": offset, "per": per, "before": "soon", "pool": "n\0ne", "tenant": "\0"})
    assert answer.status_code == 200
    assert answer.context["per"] in choosing.PAGE_SIZES


def test_the_groups_are_counted_and_lead_to_their_letters(admin_client: Client) -> None:
    fail(3)
    newest = fail(2, group="bbbbbbbbbbbb")
    rows = admin_client.get(GROUPS).context["rows"]
    assert [(row["group"], row["count"]) for row in rows] == [("bbbbbbbbbbbb", 2), ("aaaaaaaaaaaa", 3)]
    assert sorted(ids_on(admin_client.get(rows[0]["url"]))) == sorted(newest)


def test_contents_take_a_right_of_their_own_and_are_masked(login: Login) -> None:
    [letter] = fail()
    page = reverse("admin:queueapp_jobs_change", args=[quote(letter)])
    without, within = login("view_operations"), login("view_operations", "view_payload")
    for address in (page, LIST, GROUPS):
        assert IN_A_TRACEBACK not in text(without.get(address))
        assert IN_A_TRACEBACK in text(within.get(address))
    assert IN_AN_ARGUMENT not in text(without.get(page))
    # The place is of no known parameter: hidden. The keyword `amount` is not secret, `password` is.
    assert "&quot;amount&quot;: 3" in text(within.get(page))
    assert SECRET not in text(within.get(page))


# -- acting ----------------------------------------------------------------------------------------------------------


@pytest.mark.compat
@pytest.mark.parametrize(("address", "after"), [(RETRY, State.PENDING), (DISCARD, Outcome.DISCARDED)])
@pytest.mark.parametrize("scope", ["ticked", "page"])
def test_an_action_asks_first_then_acts_and_is_written_down(
    admin_client: Client, address: str, after: str, scope: str
) -> None:
    died, other = fail(3), fail()
    form = {"scope": scope, "ids" if scope == "ticked" else "page_ids": " ".join(died), "pool": "default"}
    asked = admin_client.post(address, form)
    assert asked.status_code == 200
    assert set(states(died)) == {"dead"}
    assert not DeadLetterInspection.objects.exists()
    done = admin_client.post(address, form | {"confirmed": "yes", "note": "mended"}, follow=True)
    assert states(died) == [after] * 3
    assert states(other) == ["dead"]
    [message] = done.context["messages"]
    assert str(message).startswith("3 ")
    rows = DeadLetterInspection.objects.all()
    assert {row.job_id for row in rows} == set(died)
    assert {(row.by, row.note) for row in rows} == {("admin", "mended")}
    [entry] = LogEntry.objects.all()
    assert "mended" in entry.change_message
    assert entry.object_repr == "3 jobs of default"


def test_an_action_on_one_letter_leads_back_to_its_page(admin_client: Client) -> None:
    [letter] = fail()
    page = reverse("admin:queueapp_jobs_change", args=[quote(letter)])
    answer = admin_client.post(RETRY, {"ids": letter, "next": page, "confirmed": "yes"})
    assert answer.headers["Location"] == page
    [entry] = LogEntry.objects.all()
    assert entry.get_admin_url() == page
    assert admin_client.get(page).context["job"].state == "pending"


@pytest.mark.parametrize("elsewhere", ["https://example.com/", "//example.com", "javascript:alert(1)"])
def test_an_action_leads_nowhere_else(admin_client: Client, elsewhere: str) -> None:
    [letter] = fail()
    answer = admin_client.post(RETRY, {"ids": letter, "next": elsewhere, "confirmed": "yes"})
    assert answer.headers["Location"].startswith("/admin/")


def test_all_that_match_must_be_typed(admin_client: Client) -> None:
    wanted, other = fail(3, tenant="globex"), fail(2)
    form = {"scope": "all", "tenant": "globex", "pool": "default"}
    asked = admin_client.post(DISCARD, form)
    assert asked.context["phrase"] == "discard 3"
    confirmed = form | {"confirmed": "yes", "shown": "3"}
    for typed in ("", "discard", "retry 3", "discard 5"):
        mistyped = admin_client.post(DISCARD, confirmed | {"typed": typed})
        assert mistyped.context["mistyped"]
        assert set(states(wanted)) == {"dead"}
    admin_client.post(DISCARD, confirmed | {"typed": "discard 3"})
    assert set(states(wanted)) == {"discarded"}
    assert set(states(other)) == {"dead"}
    [entry] = LogEntry.objects.all()
    assert "tenant=globex" in entry.change_message


def test_what_died_after_the_list_was_drawn_is_left_alone(admin_client: Client) -> None:
    seen = fail(2)
    before = admin_client.get(LIST).context["parameters"]["before"]
    later = fail()
    form = {"scope": "all", "before": before, "confirmed": "yes", "shown": "2", "typed": "retry 2"}
    admin_client.post(RETRY, form)
    assert set(states(seen)) == {"pending", "scheduled"}, "one after the other, at the rate of a selection"
    assert states(later) == ["dead"]


def test_another_number_than_was_shown_is_asked_for_anew(admin_client: Client) -> None:
    seen = fail(2)
    before = admin_client.get(LIST).context["parameters"]["before"]
    form = {"scope": "all", "before": before, "confirmed": "yes", "shown": "1", "typed": "discard 1"}
    again = admin_client.post(DISCARD, form)
    assert (again.context["phrase"], again.context["mistyped"]) == ("discard 2", False)
    assert "2 jobs match now, more than the 1 of before" in text(again)
    assert states(seen) == ["dead", "dead"]
    bulk.discard_many(seen[:1])
    admin_client.post(DISCARD, form | {"shown": "2", "typed": "discard 2"})
    assert states(seen) == ["discarded", "discarded"], "fewer is what happens meanwhile"


def test_where_only_at_least_so_many_were_shown_requests_go_on_until_the_end(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queueapp.inspection.selection.LOOKS", 2)
    monkeypatch.setattr("queueapp.admin.choosing.READS_OF_REQUEST", 1)
    fail(5)
    asked: list[tuple[int | None, str]] = []
    answers = iter([Done(more=True, place="there"), Done(more=True, counts={"discarded": 1}, place="further"), Done()])

    def act(_: Any, **how: Any) -> Done:
        asked.append((how["expected"], how["place"]))
        return next(answers)

    monkeypatch.setattr(bulk, "discard_many", act)
    form = {"scope": "all", "pool": "default"}
    shown = admin_client.post(DISCARD, form | {"reason": "error"})
    assert (shown.context["exact"], shown.context["phrase"]) == (False, "discard 2")
    assert 'name="least"' in text(shown)
    confirmed = form | {"confirmed": "yes", "shown": "0", "least": "yes", "typed": "discard 0"}
    said = [list(admin_client.post(DISCARD, confirmed, follow=True).context["messages"]) for _ in range(3)]
    assert "None of those that one request looks through" in str(said[0][-1])
    assert "go on" in str(said[1][-1])
    assert len(said[2]) == 1
    assert asked == [(None, ""), (None, "there"), (None, "further")]


def test_what_is_retried_by_several_requests_keeps_one_rate(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queueapp.admin.acting.MOST", 3)
    monkeypatch.setattr("queueapp.inspection.bulk.RATE", 0.01)
    died = fail(9)
    for left in (9, 6, 3):
        form = {"scope": "all", "pool": "default", "confirmed": "yes", "shown": str(left), "typed": f"retry {left}"}
        admin_client.post(RETRY, form)
    due = sorted(job.record.due_ms for job in find_jobs(died) if job.state == "scheduled")
    gaps = [later - sooner for sooner, later in itertools.pairwise(due)]
    assert [round(gap / 100_000) for gap in gaps] == [1] * 7, "a hundred seconds each, whatever the requests"


def test_a_request_is_bounded_and_says_what_is_left(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST", 5)
    monkeypatch.setattr("queueapp.admin.acting.MOST", 5)
    died = fail(8)
    form = {"scope": "all", "pool": "default"}
    assert "One request takes the oldest 5" in text(admin_client.post(RETRY, form))
    confirmed = form | {"confirmed": "yes", "shown": "8", "typed": "retry 8"}
    done = admin_client.post(RETRY, confirmed, follow=True)
    assert states(died) == ["pending"] + ["scheduled"] * 4 + ["dead"] * 3
    assert "go on" in str(list(done.context["messages"])[1])


def test_c156_a_thousand_mixed_jobs_are_counted_and_none_stops_the_others(admin_client: Client) -> None:
    dead = fail(90)
    waiting = public(enqueue(20))
    running_ids = enqueue(5, tenant="runner", pool="busy")
    assert len(lease("busy", 5)) == 5
    running = public(running_ids, "busy")
    gone = [f"{dead[0][:9]}{number:022d}" for number in range(880)]
    wrong = ["", "x", "abcdef.0.short", "\0", "zzzzzz.0." + "0" * 22]
    chosen = [*gone[:440], *dead, *wrong, *waiting, *running, *gone[440:]]
    form = {"ids": [" ".join(chosen)], "confirmed": "yes"}
    done = admin_client.post(RETRY, form, follow=True)
    assert done.status_code == 200
    assert set(states(dead)) == {"pending"}
    assert set(states(running)) == {"active"}
    first = str(next(iter(done.context["messages"])))
    assert first.startswith("90 retried")
    assert "20 skipped" in first or "25 skipped" in first
    assert len(DeadLetterInspection.objects.all()) == 90


def test_more_than_a_request_takes_is_said(admin_client: Client) -> None:
    ids = " ".join(f"abcdef.0.{number:022d}" for number in range(choosing.MOST + 7))
    done = admin_client.post(RETRY, {"ids": ids, "confirmed": "yes"}, follow=True)
    assert "7 more jobs were chosen" in str(list(done.context["messages"])[1])


@pytest.mark.parametrize("address", [RETRY, DISCARD, EXPORT])
def test_nothing_chosen_changes_nothing(admin_client: Client, address: str) -> None:
    died = fail(2)
    for form in ({}, {"scope": "ticked", "ids": ""}, {"scope": "page"}, {"before": "soon"}):
        done = admin_client.post(address, {**form, "confirmed": "yes"}, follow=True)
        assert "No job was chosen" in str(next(iter(done.context["messages"])))
    assert set(states(died)) == {"dead"}
    assert not LogEntry.objects.exists()


# -- export ----------------------------------------------------------------------------------------------------------


def streamed(answer: Any) -> str:
    return str(b"".join(answer.streaming_content).decode())


def lines_of(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in streamed(answer).splitlines()]


def test_an_export_is_json_lines_and_written_down(admin_client: Client) -> None:
    died, _ = fail(3), fail(2, tenant="globex")
    answer = admin_client.post(EXPORT, {"scope": "all", "tenant": "acme", "pool": "default"})
    assert answer.headers["Content-Type"] == "application/jsonl"
    assert [line["id"] for line in lines_of(answer)] == died[::-1]
    assert {row.action for row in DeadLetterInspection.objects.all()} == {"exported"}
    assert DeadLetterInspection.objects.count() == 3
    assert LogEntry.objects.count() == 1


def test_an_export_holds_contents_for_those_who_may_see_them_and_masks_them(login: Login) -> None:
    [letter] = fail()
    form = {"ids": letter}
    without = streamed(login("view_operations").post(EXPORT, form))
    within = streamed(login("view_operations", "view_payload").post(EXPORT, form))
    assert letter in without
    assert IN_A_TRACEBACK not in without
    assert '"amount"' not in without
    assert IN_A_TRACEBACK in within
    assert '"amount": 3' in within
    assert SECRET not in within + without


def test_an_export_is_bounded_and_says_so(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MOST", 4)
    monkeypatch.setattr(export, "BATCH", 3)
    fail(6)
    lines = lines_of(admin_client.post(EXPORT, {"scope": "all"}))
    assert len(lines) == 5
    assert "newest 4" in lines[-1]["more"]
    assert DeadLetterInspection.objects.count() == 4


@pytest.mark.django_db(transaction=True)
def test_an_export_streams_under_asgi_too(admin_user: User) -> None:
    died = fail(3)

    async def visit() -> bytes:
        client = AsyncClient()
        await client.aforce_login(admin_user)
        answer: Any = await client.post(EXPORT, {"scope": "all"})
        assert answer.is_async
        return b"".join([piece async for piece in answer.streaming_content])

    lines = async_to_sync(visit)().decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == died[::-1]


def test_an_export_ends_with_what_went_wrong(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    [letter] = fail()

    def broken(*_: object) -> Iterator[Any]:
        yield find_job(letter)
        raise StoreUnavailable("the store went away")

    monkeypatch.setattr(export, "every_dead_letter", broken)
    monkeypatch.setattr(export, "BATCH", 1)
    [first, last] = lines_of(admin_client.post(EXPORT, {"scope": "all"}))
    assert first["id"] == letter
    assert last == {"fault": "the store went away"}
