"""`POST dead-letters/{id}/edit/`: what is judged in `inspection.editing`, over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import queueapp
from queueapp.inspection import bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.jobs import find_job
from queueapp.inspection.masking import HIDDEN
from queueapp.models import DeadLetterInspection
from queueapp.producer.discovery import registry
from queueapp.store import shards
from tests.unit.api import host
from tests.unit.api.host import ADD, STATES, everything, job_in, run, state_of

pytestmark = [pytest.mark.urls("tests.unit.api.host"), pytest.mark.django_db]

Ask = Callable[..., Any]


@pytest.fixture
def operator(opened: None, signed_in: Callable[..., Any]) -> Any:
    """Whoever asks may edit and see contents."""
    return signed_in("operate_job", "view_payload")


def edit(ask: Ask, job: str, *, edits: int = 0, **body: Any) -> Any:
    return ask("POST", f"dead-letters/{job}/edit/", body={"edits": edits, **body})


def arguments(job: str) -> Any:
    found = find_job(job)
    assert found is not None
    return found.arguments()


def test_it_is_edited_and_looked_at(operator: Any, ask: Ask) -> None:
    job = job_in("dead")
    answer = edit(ask, job, args=[2], kwargs={"note": "n"}, note="typo")
    assert answer.status_code == 200
    said = answer.json()
    assert said == {
        "id": job,
        "state": "dead",
        "outcome": None,
        "url": said["url"],
        "changed": True,
        "word": "edited",
        "edits": 1,
        "changes": [{"place": "args[0]", "before": 1, "after": 2}, {"place": "kwargs.note", "after": "n"}],
        "begins_anew": False,
    }
    looked = ask("GET", f"dead-letters/{job}/").json()
    assert (looked["edits"], looked["arguments"]) == (1, {"args": [2], "kwargs": {"note": "n"}})
    assert looked["edited"]
    (row,) = DeadLetterInspection.objects.all()
    assert (row.action, row.by, row.note) == ("edited", operator.username, "edited: args[0], kwargs.note; typo")


def test_it_is_retried_if_that_is_wanted(operator: Any, ask: Ask) -> None:
    job = job_in("dead")
    said = edit(ask, job, args=[2], retry=True).json()
    assert (said["word"], said["changed"], said["state"]) == ("retried", True, "pending")
    assert host.lease().payload == b'{"a":[2]}'
    answer = edit(ask, job, args=[2], retry=True)
    assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "not_dead", "active")


def test_a_request_that_comes_twice_does_no_harm(operator: Any, ask: Ask) -> None:
    job = job_in("dead")
    edit(ask, job, args=[2])
    before = everything()
    again = edit(ask, job, args=[2])
    assert (again.status_code, again.json()["word"], again.json()["changed"]) == (200, "already", False)
    assert (again.json()["edits"], again.json()["changes"]) == (1, [])
    assert everything() == before
    said = edit(ask, job, args=[2], retry=True).json()
    assert (said["word"], said["changed"]) == ("retried", True), "what the first one did not come to"


def test_a_dry_run_only_tells(operator: Any, ask: Ask) -> None:
    job = job_in("dead")
    before = everything()
    for body in ({"args": [2]}, {"args": [1], "retry": True}):
        said = edit(ask, job, dry_run=True, **body).json()
        assert (said["changed"], said["edits"], said["state"]) == (False, 0, "dead")
    assert edit(ask, job, dry_run=True, args=[2]).json()["word"] == "fits"
    assert everything() == before


@pytest.mark.parametrize("tenants", ["acme", "ALL"])
def test_it_needs_the_permission_whoever_asks(
    opened: None, ask: Ask, signed_in: Callable[..., Any], tenants: str
) -> None:
    job = job_in("dead")
    before = everything()
    signed_in("view_payload", "discard_job")
    mine, none = (
        ask("POST", f"dead-letters/{each}/edit/", tenants=tenants, body={"edits": 0, "args": [2]})
        for each in (job, "x")
    )
    assert (mine.status_code, mine.json()["code"]) == (403, "permission")
    assert "queueapp.operate_job" in mine.json()["detail"]
    assert mine.content == none.content
    assert everything() == before


def test_what_is_another_tenant_s_or_not_of_the_api_is_not_there(operator: Any, ask: Ask) -> None:
    others, hidden = job_in("dead", tenant="globex"), job_in("dead", task=host.hidden)
    before = everything()
    unknown = edit(ask, "abcdef.0." + "0" * 22, args=[2])
    for job in (others, hidden):
        answer = edit(ask, job, args=[2])
        assert (answer.status_code, answer.content) == (404, unknown.content)
    assert everything() == before


def test_contents_take_a_right_of_their_own(opened: None, ask: Ask, signed_in: Callable[..., Any]) -> None:
    signed_in("operate_job")
    said = edit(ask, job_in("dead"), args=[2]).json()
    assert (said["word"], said["changes"]) == ("edited", None)


def test_a_mask_is_never_written(operator: Any, ask: Ask) -> None:
    job = host.pay.using(tenant="acme", on_commit=False).enqueue({"number": "4111", "name": "A"}, password="pw").id
    run(fail=True)
    kwargs = {"password": HIDDEN, "note": "n"}
    said = edit(ask, job, args=[{"number": HIDDEN, "name": "B"}], kwargs=kwargs, retry=True).json()
    assert said["changes"] == [
        {"place": "args[0].name", "before": "A", "after": "B"},
        {"place": "kwargs.note", "after": "n"},
    ]
    payload = host.lease().payload
    assert b"4111" in payload
    assert b"pw" in payload
    assert HIDDEN.encode() not in payload


def test_a_hidden_value_shows_in_no_answer(operator: Any, ask: Ask) -> None:
    job = host.pay.using(tenant="acme", on_commit=False).enqueue({"number": "4111"}, password="pw").id
    run(fail=True)
    for kwargs in ({"password": "n3w"}, {"note": HIDDEN}, {"password": {"a": HIDDEN}}, {"password": HIDDEN, "x": 1}):
        answer = edit(ask, job, kwargs=kwargs, dry_run=True)
        assert b"pw" not in answer.content
        assert b"4111" not in answer.content
        assert b"n3w" not in answer.content


def test_the_second_of_two_is_refused(operator: Any, ask: Ask) -> None:
    job = job_in("dead")
    edit(ask, job, args=[2], note="for operators' eyes")
    answer = edit(ask, job, args=[3])
    said = answer.json()
    assert (answer.status_code, said["code"], said["edits"]) == (409, "edited_meanwhile", 1)
    assert "eyes" not in said["detail"]
    assert arguments(job)[0] == [2]
    assert edit(ask, job, args=[3], edits=said["edits"]).json()["edits"] == 2


@pytest.mark.parametrize("state", [state for state in STATES if state != "dead"])
def test_only_a_dead_letter(operator: Any, ask: Ask, state: str) -> None:
    job = job_in(state)
    before = everything()
    answer = edit(ask, job, args=[2])
    assert (answer.status_code, answer.json()["code"]) == (409, "not_dead")
    assert state in (answer.json()["state"], answer.json()["outcome"])
    assert everything() == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"args": 2}, "args"),
        ({"kwargs": []}, "kwargs"),
        ({"args": [1, 2, 3]}, "kwargs"),
        ({"kwargs": {"surplus": 1}}, "kwargs"),
        ({"kwargs": {"no name": 1}}, "kwargs"),
        ({"kwargs": {"self": 1}}, "kwargs"),
        ({"kwargs": {"note": HIDDEN}}, "kwargs"),
        ({"args": [2**70]}, "args"),
        ({"arg": [2]}, "arg"),
        ({"args": [2], "edits": "0"}, "edits"),
        ({"args": [2], "edits": -1}, "edits"),
        ({"args": [2], "retry": 1}, "retry"),
        ({"args": [2], "note": ""}, "note"),
    ],
    ids=range(13),
)
def test_what_is_wrong_is_told_by_its_field(operator: Any, ask: Ask, body: dict[str, Any], field: str) -> None:
    job = job_in("dead")
    before = everything()
    answer = edit(ask, job, **body)
    assert (answer.status_code, list(answer.json())) == (400, [field]), answer.json()
    assert everything() == before


def test_a_name_that_is_none_is_refused_also_where_the_task_takes_any(operator: Any, ask: Ask) -> None:
    job = host.anything.using(tenant="acme", on_commit=False).enqueue(a=1).id
    run(fail=True)
    for name in ("no name", "self"):
        answer = edit(ask, job, kwargs={name: 1})
        assert (answer.status_code, list(answer.json())) == (400, ["kwargs"])
    assert edit(ask, job, kwargs={"b": 1}).status_code == 200


def test_how_often_it_was_edited_must_be_said(operator: Any, ask: Ask) -> None:
    answer = ask("POST", f"dead-letters/{job_in('dead')}/edit/", body={"args": [2]})
    assert (answer.status_code, list(answer.json())) == (400, ["edits"])


def test_too_large(operator: Any, ask: Ask, settings: Any) -> None:
    job = job_in("dead")
    settings.DUCTOR = {**settings.DUCTOR, "MAX_PAYLOAD_BYTES": 100}
    answer = edit(ask, job, kwargs={"note": "x" * 200})
    assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")


def test_keys_must_stay_and_no_value_of_them_is_told(operator: Any, ask: Ask) -> None:
    job = job_in("dead", task=host.limited.using(concurrency=queueapp.Key("customer:{customer_id}", limit=2)))
    answer = edit(ask, job, args=["c77"])
    assert (answer.status_code, answer.json()["code"]) == (409, "keys_would_change")
    assert "'customer:{customer_id}'" in answer.json()["detail"]
    assert "c77" not in answer.json()["detail"]


def test_a_retry_that_is_refused_leaves_the_edit(operator: Any, ask: Ask) -> None:
    single = host.add.using(tenant="acme", singleton=queueapp.Singleton("k"), on_commit=False)
    plain = job_in("dead")
    job = single.enqueue(1).id
    run(fail=True)
    answer = edit(ask, job, args=[2], retry=True)
    said = answer.json()
    # The task itself declares no singleton: nobody can say whether it would stay.
    assert (answer.status_code, said["code"]) == (409, "keys_would_change")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "retry_many", lambda *args, **how: Done(counts={"skipped": 1}))
        said = edit(ask, plain, args=[2], retry=True).json()
    assert (said["word"], said["changed"], said["state"], said["edits"]) == ("skipped", True, "dead", 1)


def test_a_task_that_is_gone_cannot_be_judged(operator: Any, ask: Ask) -> None:
    job = job_in("dead")
    task = registry.pop(ADD)
    try:
        answer = edit(ask, job, args=[2])
    finally:
        registry[ADD] = task
    assert (answer.status_code, answer.json()["code"]) == (409, "unknown_task")
    assert state_of(job) == "dead"
    assert shards.store("default").verify() == []
