"""What can be done to a job in each of its states: the table of `api/actions.py`, by every endpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from queueapp.api import actions
from queueapp.models import DeadLetterInspection
from queueapp.states import Outcome, State
from queueapp.store import shards
from tests.unit.api import host
from tests.unit.api.host import STATES, everything, job_in, state_of

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

WORKS = {"cancel": {"pending", "scheduled"}, "retry": {"dead"}, "discard": {"dead"}}
ALREADY = {"cancel": {"cancelled"}, "retry": {"pending", "scheduled", "active"}, "discard": {"discarded"}}
BECOMES = {"cancel": "cancelled", "retry": "pending", "discard": "discarded"}
ENDPOINTS = {
    "cancel": ("jobs/{}/cancel/",),
    "retry": ("jobs/{}/retry/", "dead-letters/{}/retry/"),
    "discard": ("dead-letters/{}/discard/",),
}
CASES = [
    (action, endpoint, state) for action, endpoints in ENDPOINTS.items() for endpoint in endpoints for state in STATES
]


@pytest.fixture
def discarding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks may discard."""
    monkeypatch.setattr("queueapp.api.view.DuctorView.allowed", lambda view, permission: True)


@pytest.mark.parametrize(("action", "endpoint", "state"), CASES)
def test_c151_each_action_in_each_state(
    opened: None, discarding: None, ask: Callable[..., Any], action: str, endpoint: str, state: str
) -> None:
    job = job_in(state)
    assert state_of(job) == state
    before = everything()
    answer = ask("POST", endpoint.format(job))
    said = answer.json()
    if state in WORKS[action]:
        assert (answer.status_code, said["changed"]) == (200, True), said
        assert state_of(job) == BECOMES[action]
        before = everything()
        again = ask("POST", endpoint.format(job))
        assert (again.status_code, again.json()) == (200, {**said, "changed": False, "word": "already"})
        assert said["word"] == {"cancel": "cancelled", "retry": "retried", "discard": "discarded"}[action]
    elif (action, state) == ("cancel", "active"):
        assert (answer.status_code, said["changed"], said["word"], said["state"]) == (202, True, "stopping", "active")
        assert ask("GET", f"jobs/{job}/").json()["cancelling"] is True
        before = everything()
        again = ask("POST", endpoint.format(job))
        assert (again.status_code, again.json()) == (202, {**said, "changed": False})
    elif state in ALREADY[action]:
        assert (answer.status_code, said["changed"]) == (200, False), said
        assert state_of(job) == state
    else:
        assert answer.status_code == 409
        assert said["code"] == actions.CANCEL.refusal if action == "cancel" else actions.RETRY.refusal
        assert state in (said["state"], said["outcome"])
        assert said["detail"]
    assert everything() == before
    assert shards.store("default").verify() == []


def test_the_table_in_the_docstring_is_the_one_that_holds() -> None:
    rows = re.findall(r"^\| (\w+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", actions.__doc__ or "", re.MULTILINE)
    every = {state.value for state in State} - {"ended"} | {outcome.value for outcome in Outcome}
    waits = {state.value for state in State if state.waits}
    tested = set(STATES)
    for name, *cells in rows:
        if name == "action":
            continue
        works, already, refused = [
            {each for word in cell.split(", ") for each in (waits if word == "what waits" else {word})}
            for cell in cells
        ]
        works_here = WORKS[name] | ({"active"} if name == "cancel" else set())
        assert (works & tested, already & tested) == (works_here, ALREADY[name])
        assert refused & tested == tested - works_here - ALREADY[name]
        assert len(works) + len(already) + len(refused) == len(works | already | refused), "each state in one column"
        assert works | already | refused >= every - {"moved", "moving"}, name
    assert {name for name, *_ in rows} - {"action"} == set(ENDPOINTS)


def test_discarding_needs_its_permission_and_tells_nothing_without(opened: None, ask: Callable[..., Any]) -> None:
    job = job_in("dead")
    before = everything()
    mine, none = (ask("POST", f"dead-letters/{job_id}/discard/") for job_id in (job, "abcdef.0." + "0" * 22))
    assert (mine.status_code, mine.json()["code"]) == (403, "permission")
    assert "queueapp.discard_job" in mine.json()["detail"]
    assert mine.content == none.content
    assert everything() == before


def test_what_a_user_did_is_written_down(
    redis_url: str, ask: Callable[..., Any], signed_in: Callable[..., Any]
) -> None:
    user = signed_in("view_all_tenants", "discard_job", "operate_job")
    first, second = job_in("dead"), job_in("dead")
    ask("POST", f"dead-letters/{first}/discard/")
    ask("POST", "dead-letters/retry/", body={"ids": [first, second]})
    rows = DeadLetterInspection.objects.order_by("id").values_list("job_id", "action", "by")
    assert list(rows) == [(first, "discarded", user.username), (second, "retried", user.username)]


def test_many_are_retried_and_counted(opened: None, ask: Callable[..., Any]) -> None:
    dead = [job_in("dead") for _ in range(3)]
    theirs, ended = job_in("dead", "globex"), job_in("completed")
    unseen = job_in("dead", task=host.hidden)
    other_shard = dead[0].replace(".0.", ".1.")
    ids = [*dead, dead[0], theirs, ended, unseen, other_shard, "nonsense", "abcdef.0." + "0" * 22]
    answer = ask("POST", "dead-letters/retry/", body={"ids": ids})
    assert (answer.status_code, answer.json()) == (
        200,
        {"retried": 3, "skipped": 0, "already": 1, "gone": 5, "unreached": 0},
    )
    assert {state_of(job) for job in dead} == {"pending"}
    assert {state_of(job) for job in (theirs, unseen)} == {"dead"}
    again = ask("POST", "dead-letters/retry/", body={"ids": dead})
    assert again.json() == {"retried": 0, "skipped": 0, "already": 3, "gone": 0, "unreached": 0}


@pytest.mark.parametrize(
    "body",
    [{}, {"ids": []}, {"ids": ["x"] * 101}, {"ids": "x"}, {"ids": [1]}, {"ids": [None]}, {"ids": [["x"]]}, {"all": 1}],
)
def test_which_ones_must_be_said(opened: None, ask: Callable[..., Any], body: object) -> None:
    answer = ask("POST", "dead-letters/retry/", body=body)
    assert answer.status_code == 400
    for wrong in answer.json().values():
        assert isinstance(wrong, list)
        assert all(isinstance(each, str) for each in wrong)


def test_a_worker_that_is_faster_is_told_to_stop(
    opened: None, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking and acting, a worker takes the job."""
    job = job_in("pending")
    cancel = actions.CANCEL.act

    def late(ids: list[str], **kwargs: Any) -> Any:
        host.lease()
        return cancel(ids, **kwargs)

    monkeypatch.setattr(actions.CancelView, "action", replace(actions.CANCEL, act=late))
    answer = ask("POST", f"jobs/{job}/cancel/")
    assert (answer.status_code, answer.json()["state"], answer.json()["changed"]) == (202, "active", True)


def test_without_the_store_nothing_is_claimed(ask: Callable[..., Any]) -> None:
    away = {"REDIS_URL": "unix:///nonexistent/store.sock", "API_TENANTS": f"{host.__name__}.of_header"}
    with override_settings(DUCTOR={**django_settings.DUCTOR, **away}):
        for path, body in (
            ("jobs/abcdef.0." + "0" * 22 + "/cancel/", None),
            ("dead-letters/retry/", {"ids": ["abcdef.0." + "0" * 22]}),
        ):
            answer = ask("POST", path, body=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
