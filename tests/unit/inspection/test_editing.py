"""A dead letter's arguments are corrected: judged first, then saved, written down, and retried if that is wanted."""

from __future__ import annotations

import json
import logging
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import OperationalError
from django.test import override_settings

import queueapp
from queueapp.codec import decode_arguments
from queueapp.errors import (
    EditedMeanwhile,
    InvalidOption,
    KeysWouldChange,
    NotDead,
    NothingEdited,
    PayloadTooLarge,
    UnknownTask,
)
from queueapp.inspection import bulk
from queueapp.inspection.actions import Done
from queueapp.inspection.editing import Draft, Saved, draft, save
from queueapp.inspection.jobs import JobView, find_job
from queueapp.inspection.masking import HIDDEN
from queueapp.models import DeadLetterInspection
from queueapp.store.records import Failed
from queueapp.store.store import Store
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db


@queueapp.task
def pay(customer: int, amount: int = 1, *, token: str = "", card: object = None) -> None: ...


@queueapp.task(typed=True, sensitive=["card.number"], takes_context=True)
def charge(context: object, total: Decimal, card: dict[str, str] | None = None) -> None: ...


@queueapp.task(concurrency=[queueapp.Key("customer:{customer}", limit=2), queueapp.Key("all", limit=9)])
def keyed(customer: int, amount: int = 1) -> None: ...


@queueapp.task(singleton=queueapp.Singleton("night:{day}", mode="next"))
def nightly(day: str, size: int = 1) -> None: ...


@queueapp.task(singleton=queueapp.Singleton())
def alone(day: str, size: int = 1) -> None: ...


@queueapp.task(debounce=queueapp.Debounce("index:{document}", period=0.001))
def index(document: int, depth: int = 1) -> None: ...


def dead(scene: Scene, task: Any, *args: Any, **kwargs: Any) -> JobView:
    """A dead letter of this task."""
    job_id = task.using(tenant="acme", on_commit=False).enqueue(*args, **kwargs).id
    return die(scene, job_id)


def die(scene: Scene, job_id: str) -> JobView:
    while not (jobs := scene.lease()):
        scene.store.promote_due()
    error = json.dumps({"class": "builtins.ValueError", "message": "no", "traceback": ""}).encode()
    scene.store.fail([Failed(id=job.id, attempts=job.attempts, run_ms=1, error=error) for job in jobs])
    return seen(job_id)


def seen(job_id: str) -> JobView:
    found = find_job(job_id)
    assert found is not None
    return found


def payload(job: JobView) -> tuple[Any, Any, Any]:
    found = seen(job.id).record.payload
    assert found is not None
    return decode_arguments(found)


def edit(job: JobView, **given: Any) -> Saved:
    return save(draft(job, **given), by="eve", note="typo")


def places(made: Draft) -> list[tuple[str, str]]:
    return [(change.place, change.words) for change in made.changes]


# -- what becomes of it ------------------------------------------------------------------------------------------------


def test_a_draft_changes_nothing_and_tells_what_would_change(scene: Scene) -> None:
    job = dead(scene, pay, 7, amount=5, token="t0p")
    made = draft(job, kwargs={"amount": 6, "token": HIDDEN, "card": "c"})
    assert places(made) == [("kwargs.amount", "5 → 6"), ("kwargs.card", 'nothing → "c"')]
    assert made.places == ("kwargs.amount", "kwargs.card")
    assert not made.begins_anew
    assert payload(job) == ([7], {"amount": 5, "token": "t0p"}, {})
    assert "t0p" not in repr(made)


def test_saved_it_is_written_down_without_any_argument(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    job = dead(scene, pay, 7, amount=5, token="t0p")
    with caplog.at_level(logging.INFO, "queueapp"):
        saved = edit(job, args=[8], kwargs={"amount": 6, "token": HIDDEN})
    assert saved == Saved(edits=1, retried=None)
    assert payload(job) == ([8], {"amount": 6, "token": "t0p"}, {})
    (row,) = DeadLetterInspection.objects.all()
    assert (row.job_id, row.action, row.by, row.outcome) == (job.id, "edited", "eve", "rewritten")
    assert row.note == "edited: args[0], kwargs.amount; typo"
    (entry,) = [each for each in caplog.records if each.name == "queueapp.inspection.editing"]
    facts = vars(entry)
    assert (facts["job_id"], facts["by"], facts["places"]) == (job.id, "eve", ["args[0]", "kwargs.amount"])
    after = seen(job.id)
    assert (after.record.edits, after.state) == (1, "dead")
    assert after.record.attempts == job.record.attempts
    assert len(after.record.errors) == 1


def test_and_it_is_retried_if_that_is_wanted(scene: Scene) -> None:
    job = dead(scene, pay, 7)
    saved = save(draft(job, args=[8]), by="eve", retry=True)
    assert saved.retried == Done(counts={"retried": 1})
    assert seen(job.id).state == "pending"
    assert [row.action for row in DeadLetterInspection.objects.order_by("id")] == ["edited", "retried"]
    (leased,) = scene.lease()
    assert decode_arguments(leased.payload)[0] == [8]


def test_what_a_job_brought_along_beside_its_arguments_stays(scene: Scene) -> None:
    job = dead(scene, pay.using(metadata={"ticket": 5}, backoff=3), 7)
    options = payload(job)[2]
    edit(job, args=[8])
    assert payload(job) == ([8], {}, options)


def test_a_half_that_is_not_given_stays(scene: Scene) -> None:
    job = dead(scene, pay, 7, amount=5)
    edit(job, kwargs={"amount": 6})
    assert payload(job)[:2] == ([7], {"amount": 6})
    edit(seen(job.id), args=[8])
    assert payload(job)[:2] == ([8], {"amount": 6})
    edit(seen(job.id), kwargs={})
    assert payload(job)[:2] == ([8], {})


def test_values_of_types_of_their_own_stay_so(scene: Scene) -> None:
    job = dead(scene, charge, Decimal("1.50"), card={"number": "4111", "holder": "Ann"})
    made = draft(job, args=["2.75"], kwargs={"card": {"number": HIDDEN, "holder": "Bob"}})
    assert places(made) == [("args[0]", '"1.50" → "2.75"'), ("kwargs.card.holder", '"Ann" → "Bob"')]
    save(made)
    assert payload(job)[:2] == ([Decimal("2.75")], {"card": {"number": "4111", "holder": "Bob"}})


def test_a_job_that_was_sent_untyped_is_not_typed_by_an_edit(scene: Scene) -> None:
    job = dead(scene, charge.using(typed=False), "1.50")
    edit(job, args=["2.75"])
    assert payload(job)[:2] == (["2.75"], {})


def test_and_one_that_was_sent_typed_stays_so(scene: Scene) -> None:
    job = dead(scene, pay.using(typed=True), 7, card=Decimal("1.50"))
    edit(job, args=[8])
    assert payload(job)[:2] == ([8], {"card": Decimal("1.50")})


def test_a_hidden_value_may_be_replaced_and_neither_shows(scene: Scene) -> None:
    job = dead(scene, pay, 7, token="t0p")
    made = draft(job, kwargs={"token": "n3w"})
    assert places(made) == [("kwargs.token", f"{HIDDEN} → another hidden value")]
    save(made)
    assert payload(job)[1] == {"token": "n3w"}
    assert seen(job.id).arguments() == ([7], {"token": HIDDEN})


def test_a_checkpoint_goes_and_that_is_said_before(scene: Scene) -> None:
    job_id = pay.using(tenant="acme", on_commit=False).enqueue(7).id
    (leased,) = scene.lease()
    scene.store.save(leased.id, 1, {"checkpoint": b'{"at":3}'})
    scene.store.fail([Failed(id=leased.id, attempts=1, run_ms=1, error=b"{}")])
    made = draft(seen(job_id), args=[8])
    assert made.begins_anew
    save(made)
    assert not draft(seen(job_id), args=[9]).begins_anew


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_only_a_dead_letter(scene: Scene) -> None:
    job_id = pay.using(tenant="acme", on_commit=False).enqueue(7).id
    with pytest.raises(NotDead, match="it is pending"):
        draft(seen(job_id), args=[8])
    job = die(scene, job_id)
    made = draft(job, args=[8])
    bulk.retry_many([job.id])
    with pytest.raises(NotDead, match="any more"):
        save(made)
    bulk.cancel_many([job.id])
    with pytest.raises(NotDead, match="it is cancelled"):
        draft(seen(job.id), args=[8])
    assert not DeadLetterInspection.objects.filter(action="edited").exists()


def test_the_second_of_two_is_told_by_whom_when_and_where(scene: Scene) -> None:
    job = dead(scene, pay, 7, amount=5)
    mine, stale = draft(job, args=[8]), draft(job, kwargs={"amount": 6})
    save(mine, by="bob", note="wrong customer")
    for late in (lambda: save(stale, by="eve"), lambda: draft(job, kwargs={"amount": 6})):
        with pytest.raises(EditedMeanwhile, match=r"meanwhile at 2.* by bob \(edited: args\[0\]; wrong customer\)"):
            late()
    with pytest.raises(EditedMeanwhile):
        draft(seen(job.id), kwargs={"amount": 6}, edits=0)
    assert payload(job)[:2] == ([8], {"amount": 5})
    assert draft(seen(job.id), kwargs={"amount": 6}, edits=1).changes


def test_and_is_told_as_much_as_is_known_while_the_database_is_away(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = dead(scene, pay, 7)
    stale = draft(job, args=[9])

    def away(*args: object, **kwargs: object) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(DeadLetterInspection.objects, "bulk_create", away)
    monkeypatch.setattr(DeadLetterInspection.objects, "filter", away)
    assert edit(job, args=[8]).edits == 1
    assert "could not be written down" in caplog.text
    with pytest.raises(EditedMeanwhile, match=r"meanwhile at [^(]*; nothing was changed"):
        save(stale)


def test_what_is_so_already_is_no_edit(scene: Scene) -> None:
    job = dead(scene, pay, 7, token="t0p")
    same: list[dict[str, Any]] = [{"args": [7]}, {"kwargs": {"token": HIDDEN}}, {"kwargs": {"token": "t0p"}}, {}]
    for given in same:
        with pytest.raises(NothingEdited):
            draft(job, **given)
    edit(job, args=[8])
    with pytest.raises(NothingEdited):  # also who repeats it with what they knew before
        draft(seen(job.id), args=[8], edits=0)


def test_arguments_must_fit_the_task_as_it_is_now(scene: Scene) -> None:
    job = dead(scene, pay, 7)
    wrong: list[dict[str, Any]] = [
        {"args": []},
        {"args": [1, 2, 3]},
        {"kwargs": {"surplus": 1}},
        {"kwargs": {"customer": 1}},
    ]
    for given in wrong:
        with pytest.raises(InvalidOption, match="do not fit"):
            draft(job, **given)
    with pytest.raises(InvalidOption, match=r"kwargs\.note"):
        draft(job, kwargs={"note": HIDDEN})


def test_one_that_died_because_it_did_not_fit_is_what_this_is_for(scene: Scene) -> None:
    job = dead(scene, pay, 7, amout=5)
    assert edit(job, kwargs={"amount": 5}).edits == 1


def test_the_size_is_limited_as_that_of_a_new_job(scene: Scene) -> None:
    job = dead(scene, pay, 7)
    with override_settings(DUCTOR={**django_settings.DUCTOR, "MAX_PAYLOAD_BYTES": 200}):
        with pytest.raises(PayloadTooLarge, match="MAX_PAYLOAD_BYTES"):
            draft(job, kwargs={"card": "x" * 200})
        assert draft(job, kwargs={"card": "x" * 100}).changes


def test_a_task_that_is_not_known_here_cannot_be_checked(scene: Scene) -> None:
    (job_id,) = scene.kill(task="gone.tasks.vanished")
    with pytest.raises(UnknownTask, match=r"gone\.tasks\.vanished"):
        draft(seen(job_id), args=[8])


def test_what_nobody_can_read_nobody_can_edit(scene: Scene) -> None:
    (job_id,) = scene.kill(task=pay.module_path, payload=b'["no mapping"]')
    with pytest.raises(InvalidOption, match="cannot be read"):
        draft(seen(job_id), args=[8])


@pytest.mark.parametrize(
    ("task", "given", "what"),
    [
        (keyed, {"args": [8]}, r"concurrency key 'customer:\{customer\}' follows"),
        (nightly, {"args": [8]}, r"singleton 'night:\{day\}' follows"),
        (alone, {"args": [7, 2]}, "singleton of equal arguments follows"),
        (index, {"args": [8]}, r"debounce 'index:\{document\}' follows"),
    ],
)
def test_a_job_keeps_what_it_holds_by_its_arguments(
    scene: Scene, store: Store, task: Any, given: dict[str, Any], what: str
) -> None:
    job = dead(scene, task, 7)
    with pytest.raises(KeysWouldChange, match=what) as refused:
        draft(job, **given)
    assert "enqueue the task anew" in str(refused.value)
    assert "7" not in str(refused.value).replace(job.id, ""), "an argument is told to who may not see it"
    assert payload(job)[0] == [7]
    if task is not alone:
        edit(job, args=[7, 2])
        assert payload(job)[0] == [7, 2]
        assert bulk.retry_many([job.id]).done == 1
        assert len(scene.lease()) == 1
    assert store.verify() == []


def test_keys_that_the_task_does_not_give_cannot_be_judged(scene: Scene) -> None:
    job = dead(scene, pay.using(concurrency=queueapp.Key("own:{customer}", limit=1)), 7)
    with pytest.raises(KeysWouldChange, match=r"another release or \.using\(\) did"):
        draft(job, kwargs={"amount": 2})
    without = dead(scene, keyed.using(concurrency=[]), 7)
    assert edit(without, args=[8]).edits == 1, "it holds none"


def test_a_retry_that_is_refused_leaves_the_edit(scene: Scene) -> None:
    job = dead(scene, nightly, "mo")
    nightly.using(tenant="acme", on_commit=False).enqueue("mo")
    saved = save(draft(job, args=["mo", 2]), retry=True)
    assert saved.retried is not None
    assert (saved.edits, saved.retried.counts) == (1, {"skipped": 1})
    assert seen(job.id).state == "dead"
