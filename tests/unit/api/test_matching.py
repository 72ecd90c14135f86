"""All that match: counted, acted on, asked for again when the number changed; nobody else's, and no hidden task's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from queueapp.api import cursors
from queueapp.api.view import DuctorView
from queueapp.errors import StoreUnavailable
from queueapp.inspection.jobs import find_jobs
from queueapp.store import shards
from queueapp.store.store import Store
from tests.unit.api import host
from tests.unit.api.host import everything, job_in, state_of

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

CANCEL = "jobs/cancel-matching/"
RETRY = "dead-letters/retry-matching/"
DISCARD = "dead-letters/discard-matching/"
Ask = Callable[..., Any]


@pytest.fixture
def may(opened: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API is open, and whoever asks may do everything for their tenants."""
    monkeypatch.setattr(DuctorView, "allowed", lambda view, permission: True)


def test_counted_then_done_and_nothing_the_second_time(may: None, ask: Ask) -> None:
    dead, theirs, hidden = (
        [job_in("dead") for _ in range(3)],
        job_in("dead", "globex"),
        job_in("dead", task=host.hidden),
    )
    before = everything()
    counted = ask("POST", RETRY, body={"dry_run": True}).json()
    assert (counted["matching"], counted["exact"], counted["done"]) == (3, True, 0)
    assert everything() == before
    body = {"expected": 3, "as_of": counted["as_of"], "rate": 0}
    done = ask("POST", RETRY, body=body).json()
    assert (done["done"], done["refused"], done["changed"], done["more"], done["fault"]) == (3, 0, 0, False, False)
    assert {state_of(job) for job in dead} == {"pending"}
    assert [state_of(job) for job in (theirs, hidden)] == ["dead", "dead"]
    again = ask("POST", RETRY, body={"as_of": counted["as_of"]}).json()
    assert (again["matching"], again["done"]) == (0, 0)


def test_more_than_were_expected_are_told_with_both_numbers(may: None, ask: Ask) -> None:
    jobs = [job_in("dead"), job_in("dead")]
    answer = ask("POST", DISCARD, body={"expected": 1})
    assert answer.status_code == 409
    assert {name: answer.json()[name] for name in ("code", "expected", "matching", "exact")} == {
        "code": "count_changed",
        "expected": 1,
        "matching": 2,
        "exact": True,
    }
    assert {state_of(job) for job in jobs} == {"dead"}
    assert ask("POST", DISCARD, body={"expected": 3}).json()["done"] == 2, "fewer is what happens meanwhile"
    assert {state_of(job) for job in jobs} == {"discarded"}


def test_jobs_that_wait_and_run_are_cancelled_by_what_they_have_in_common(may: None, ask: Ask) -> None:
    running, scheduled = job_in("active"), job_in("scheduled")
    pending, theirs, other = job_in("pending"), job_in("scheduled", "globex"), job_in("scheduled", task=host.anything)
    assert ask("POST", CANCEL, body={"task": host.ADD, "state": "scheduled"}).json()["done"] == 1
    assert [state_of(job) for job in (scheduled, pending, other)] == ["cancelled", "pending", "scheduled"]
    done = ask("POST", CANCEL, body={}).json()
    assert (done["done"], done["stopping"]) == (3, 1)
    assert [state_of(job) for job in (pending, other, theirs, running)] == [
        *("cancelled", "cancelled", "scheduled", "active"),
    ]
    assert ask("POST", CANCEL, tenants="ALL", body={}).json()["done"] == 2, "theirs, and once more the one that runs"


def test_one_request_takes_so_many_and_says_that_there_are_more(
    may: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queueapp.api.matching.MOST_OF_REQUEST", 2)
    for _ in range(5):
        job_in("dead")
    seen = []
    more, as_of = True, None
    while more:
        answer = ask("POST", DISCARD, body={"as_of": as_of} if as_of else {}).json()
        seen.append(answer["done"])
        more, as_of = answer["more"], answer["as_of"]
    assert seen == [2, 2, 1]


def test_the_cursor_goes_on_behind_what_was_met_as_of_the_same_moment_at_the_same_rate(
    may: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queueapp.api.matching.MOST_OF_REQUEST", 2)
    jobs = [job_in("dead") for _ in range(5)]
    first = ask("POST", RETRY, body={"rate": 0.01}).json()
    assert (first["done"], first["more"], first["exact"]) == (2, True, False)
    second = ask("POST", RETRY, body={"rate": 0.01, "cursor": first["cursor"]}).json()
    assert second["as_of"] == first["as_of"]
    third = ask("POST", RETRY, body={"rate": 0.01, "cursor": second["cursor"]}).json()
    assert (third["done"], third["more"], third["cursor"]) == (1, False, None)
    due = sorted(job.record.due_ms for job in find_jobs(jobs) if job.state == "scheduled")
    gaps = [later - sooner for sooner, later in itertools.pairwise(due)]
    assert len(due) == 4, "the first one at once"
    assert [round(gap / 100_000) for gap in gaps] == [1, 1, 1], "a hundred seconds each, whatever the requests"


@pytest.mark.parametrize("cursor", ["nonsense", cursors.sealed("1.2"), cursors.sealed("1 2 nonsense")])
def test_a_cursor_that_no_answer_gave(may: None, ask: Ask, cursor: str) -> None:
    job = job_in("dead")
    assert ask("POST", DISCARD, body={"cursor": cursor}).status_code == 400
    assert state_of(job) == "dead"


def test_a_cursor_of_one_tenant_shows_nothing_of_it_to_another(
    may: None, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queueapp.api.matching.MOST_OF_REQUEST", 1)
    theirs = [job_in("dead", "globex") for _ in range(3)]
    cursor = ask("POST", DISCARD, tenants="globex", body={}).json()["cursor"]
    monkeypatch.setattr("queueapp.api.matching.MOST_OF_REQUEST", 9)
    assert ask("POST", DISCARD, body={"cursor": cursor}).json()["done"] == 0
    assert [state_of(job) for job in theirs].count("dead") == 2


def test_a_redrive_is_laid_out_at_a_rate(may: None, ask: Ask) -> None:
    jobs = [job_in("dead") for _ in range(3)]
    ask("POST", RETRY, body={"rate": 0.001})
    assert [state_of(job) for job in jobs] == ["pending", "scheduled", "scheduled"]


@pytest.mark.parametrize(
    ("path", "permission"), [(CANCEL, "operate_job"), (RETRY, "operate_job"), (DISCARD, "discard_job")]
)
def test_an_operator_needs_the_permission_of_the_admin(opened: None, ask: Ask, path: str, permission: str) -> None:
    job_in("dead")
    before = everything()
    answer = ask("POST", path, tenants="ALL", body={"dry_run": True})
    assert (answer.status_code, answer.json()["code"]) == (403, "permission")
    assert f"queueapp.{permission}" in answer.json()["detail"]
    assert everything() == before


def test_a_tenant_s_token_cancels_and_retries_its_own_jobs_as_it_does_one_by_one(opened: None, ask: Ask) -> None:
    dead, theirs = job_in("dead"), job_in("scheduled", "globex")
    waiting = job_in("scheduled")
    assert ask("POST", RETRY, body={"rate": 0}).json()["done"] == 1
    assert ask("POST", CANCEL, body={}).json()["done"] == 2
    assert [state_of(job) for job in (dead, waiting, theirs)] == ["cancelled", "cancelled", "scheduled"]


def test_what_ended_in_a_fault_is_not_exact(may: None, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    job_in("scheduled")
    job_in("pending")
    cancel, calls = Store.cancel, []

    def away(self: Store, ids: Sequence[str]) -> list[str]:
        calls.append(ids)
        if len(calls) > 1:
            raise StoreUnavailable("gone")
        return cancel(self, ids)

    monkeypatch.setattr(Store, "cancel", away)
    answer = ask("POST", CANCEL, body={}).json()
    assert (answer["matching"], answer["done"], answer["fault"]) == (1, 1, True)
    assert answer["exact"] is False


@pytest.mark.parametrize("path", [CANCEL, RETRY, DISCARD])
def test_another_tenant_is_not_found_and_a_hidden_task_has_no_jobs(may: None, ask: Ask, path: str) -> None:
    for state in ("pending", "dead"):
        job_in(state, "globex")
    job_in("dead", task=host.hidden)
    before = everything()
    assert ask("POST", path, body={"tenant": "globex"}).status_code == 404
    assert ask("POST", path, tenants="acme,initech", body={}).status_code == 400, "for which of them"
    for body in ({"task": host.HIDDEN}, {}):
        assert ask("POST", path, body=body).json()["matching"] == 0
    assert everything() == before


@pytest.mark.parametrize(
    "body",
    [
        {"all": True},
        {"dry_run": "yes"},
        {"expected": -1},
        {"expected": "3"},
        {"as_of": "2030-01-31T09:00:00"},
        {"pool": "nowhere"},
        {"rate": -1},
        {"state": "dead"},
    ],
    ids=str,
)
def test_wrong_requests_name_the_field(may: None, ask: Ask, body: dict[str, object]) -> None:
    path = CANCEL if "state" in body else RETRY
    answer = ask("POST", path, body=body)
    assert answer.status_code == 400
    assert set(answer.json()) == set(body)
    assert shards.store("default").verify() == []


@pytest.mark.parametrize("path", [CANCEL, RETRY, DISCARD])
def test_a_task_cannot_be_named_beside_another(may: None, ask: Ask, path: str) -> None:
    """A name with a line break would be two for the store, the second of which nobody has looked at."""
    state = "pending" if path == CANCEL else "dead"
    job = job_in(state, task=host.hidden)
    answer = ask("POST", path, body={"task": f"{host.ADD}\n{host.hidden.name}"})
    assert (answer.status_code, "task" in answer.json()) == (400, True)
    assert state_of(job) == state


@pytest.mark.parametrize("path", [CANCEL, RETRY, DISCARD])
def test_a_moment_at_the_beginning_of_time_is_not_now(may: None, ask: Ask, path: str) -> None:
    jobs = [job_in("dead"), job_in("pending")]
    answer = ask("POST", path, body={"as_of": "1970-01-01T00:00:00.0001Z"}).json()
    assert (answer["matching"], answer["done"]) == (0, 0)
    assert [state_of(job) for job in jobs] == ["dead", "pending"]


@pytest.mark.parametrize(
    "state", ["ended", "\ud800", "\x00", "x" * 70_000, 5, None, True, ["pending"], {"pending": 1}, float("nan")]
)
def test_a_wrong_state_is_named_and_shown_in_short(may: None, ask: Ask, state: object) -> None:
    answer = ask("POST", CANCEL, body={"state": state})
    assert (answer.status_code, list(answer.json())) == (400, ["state"])
    assert len(answer.content) < 500
