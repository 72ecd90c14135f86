"""Why a job does not run, where it does not wait: each sentence from a real store. And who is told what."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from queueapp.errors import StoreUnavailable
from queueapp.inspection.explain import as_mapping, explain
from queueapp.inspection.reason import Kind
from queueapp.models import OutboxEntry
from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.store.ids import new_id
from queueapp.store.records import Returned
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.asking import configure, end, kinds, work
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db


# -- running and over ------------------------------------------------------------------------------------------------


def test_running(scene: Scene) -> None:
    done, job_id = scene.add(2)
    work(scene)
    end(scene, done)
    work(scene)
    why = explain(job_id)
    assert re.match(
        r"It has been running for .* on the worker w\.1, which last called .* ago; "
        r"its lease ends in .* unless it is renewed\.",
        why.sentence,
    )
    assert (why.state, kinds(why)) == ("active", ["running"])
    assert why.until is not None
    assert why.until > why.as_of
    assert why.estimate is not None
    assert why.estimate.of == "end"
    assert why.estimate.earliest is not None or "longer than usual" in why.estimate.basis


def test_told_to_stop(scene: Scene) -> None:
    [job_id] = scene.add()
    work(scene)
    assert scene.store.cancel(scene.inner([job_id])) == ["stopping"]
    why = explain(job_id)
    form = r"It was told to stop .* ago \(.*\), and ends as cancelled when its body is through or its lease ends\."
    assert re.fullmatch(form, why.sentence)
    assert (why.state, kinds(why)) == ("active", ["stopping", "running"])
    assert why.estimate is not None
    assert why.estimate.of == "end"


def test_told_to_stop_and_its_worker_is_lost(scene: Scene) -> None:
    [job_id] = scene.add()
    work(scene, lease_ms=1)
    scene.store.cancel(scene.inner([job_id]))
    while (why := explain(job_id)).reasons[0].kind is not Kind.LEASE_OVER:
        pass
    assert "the next call of a scheduler or a worker ends it" in why.sentence
    scene.store.partition_recover()
    assert explain(job_id).sentence.startswith("It was cancelled ")


def test_taken_ahead_and_not_begun(scene: Scene) -> None:
    _, job_id = scene.add(2)
    scene.store.check_and_lease("w.1", next(scene.seqs), want=2, begin=1, lease_ms=30_000)
    why = explain(job_id)
    assert re.match(
        r"It was taken ahead .* ago \(.*\) and has not begun, by the worker w\.1, which last called", why.sentence
    )
    assert why.estimate is not None
    assert why.estimate.basis == "how long its task runs was not learnt in this pool"


def test_a_lease_that_ran_out(scene: Scene) -> None:
    [job_id] = scene.add()
    work(scene, lease_ms=1)
    while (why := explain(job_id)).reasons[0].kind is Kind.RUNNING:
        pass
    assert re.match(r"Its lease ended .* ago \(.*\) without a sign of the worker w\.1: the next call", why.sentence)


@pytest.mark.parametrize(
    ("how", "because"),
    [
        ("error", "because its 1st attempt of 1 failed with builtins.ValueError "),
        ("by_hand", "because it was set aside (looks_wrong) "),
        ("lost", "because its worker was lost while it ran, the 1st time "),
        ("unknown", "because no worker knew its task shop.tasks.pay for as long as the settings allow, until "),
    ],
)
def test_dead(scene: Scene, how: str, because: str) -> None:
    if how == "error":
        [job_id] = scene.kill()
    elif how == "by_hand":
        [job_id] = scene.bury(1, reason="looks_wrong")
    else:
        [job_id] = scene.add(max_crashes=1)
        if how == "lost":
            work(scene, lease_ms=1)
            while not scene.store.partition_recover().dead:
                pass
        else:
            [leased] = scene.lease(1)
            back = Returned(id=leased.id, attempts=1, delay_ms=1, unknown_task=True, grace_ms=0)
            assert scene.store.partition_requeue([back]) == ["dead"]
    why = explain(job_id)
    form = r"It is a dead letter, because .* ago \(.* UTC\); it stays one until it is retried or discarded\."
    assert re.fullmatch(form, why.sentence)
    assert because in why.sentence
    assert (why.state, why.estimate, why.until) == ("dead", None, None)


def test_ended(scene: Scene) -> None:
    [done] = scene.end()
    [cancelled, expired] = scene.add(1) + scene.add(1, expires_after_ms=1)
    scene.store.cancel(scene.inner([cancelled]))
    while not scene.store.promote_due().expired:
        pass
    [discarded] = scene.kill()
    scene.store.discard(scene.inner([discarded]))
    for job_id, outcome, begin in (
        (done, "completed", "It completed "),
        (cancelled, "cancelled", "It was cancelled "),
        (expired, "expired", "Its `expires_after` passed before it started, and it was dropped "),
        (discarded, "discarded", "It was a dead letter and was discarded "),
    ):
        why = explain(job_id)
        assert (why.state, why.outcome, why.estimate) == ("ended", outcome, None)
        assert why.sentence.startswith(begin)


def test_gone_unknown_or_no_id_at_all(scene: Scene, redis_url: str) -> None:
    for public_id in (scene.keys.public_id(new_id()), f"zzzzzz.0.{new_id()}", "x", "", "\0"):
        why = explain(public_id)
        assert (why.state, why.tenant) == ("gone", "")
        assert why.sentence.startswith("The store knows no job of this id: it ended and retention removed it, ")


def test_what_is_no_id_is_not_looked_for_in_any_table(redis_url: str, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        for text in ("x", "", "\0", "a.0.b"):
            assert explain(text).state == "gone"


@pytest.mark.dirty_store
def test_a_row_that_is_not_ours(scene: Scene) -> None:
    [job_id] = scene.add()
    scene.store.client.set(scene.keys.job(*scene.inner([job_id])), "gibberish")
    why = explain(job_id)
    assert (why.state, kinds(why)) == ("unreadable", ["unreadable"])


@pytest.mark.dirty_store
def test_moments_that_no_calendar_has_are_shown_as_such(scene: Scene) -> None:
    [job_id] = scene.add(delay_ms=60_000)
    [inner] = scene.inner([job_id])
    scene.store.client.zadd(scene.keys["scheduled"], {inner: 9e17})
    why = explain(job_id)
    assert why.until is None
    assert "a moment that no calendar has" in why.sentence
    assert as_mapping(why)["reasons"]


# -- not sent yet ----------------------------------------------------------------------------------------------------


def kept(scene: Scene, **values: Any) -> str:
    fields = {
        "job_id": scene.keys.public_id(new_id()),
        "pool": "default",
        "tenant": "acme",
        "task": "shop.tasks.pay",
        "job": {},
        "payload": b"",
        "due": timezone.now() + timedelta(minutes=5),
        "error": "The store at db.internal:6379 is full.",
        **values,
    }
    return OutboxEntry.objects.create(**fields).job_id


def test_kept_in_the_outbox(scene: Scene) -> None:
    job_id = kept(scene, tries=3)
    why = explain(job_id)
    assert why.sentence.startswith(
        "The store did not take it (The store at db.internal:6379 is full): the outbox keeps it, and it is sent again "
    )
    assert (why.state, kinds(why), why.tenant) == ("deferred", ["deferred"], "acme")
    assert why.until is not None
    assert "db.internal" not in explain(job_id, tenants={"acme"}).sentence
    fresh = explain(kept(scene, error="", due=timezone.now())).sentence
    assert (
        fresh
        == "The store has not taken it yet: the outbox keeps it, and it is sent again by the next pass of a scheduler."
    )


def test_refused_for_good(scene: Scene) -> None:
    why = explain(kept(scene, state=OutboxEntry.State.REFUSED, error="The key stands for another job."))
    assert why.sentence == (
        "The store refused it for good (The key stands for another job): it stays in the outbox until somebody removes "
        "it."
    )
    assert why.estimate is None


def test_while_the_store_is_away_the_outbox_still_answers(scene: Scene, away: None) -> None:
    job_id = kept(scene)
    assert explain(job_id).state == "deferred"
    with pytest.raises(StoreUnavailable):
        explain(scene.keys.public_id(new_id()))


def test_the_store_s_word_goes_before_the_outbox_s(scene: Scene) -> None:
    [job_id] = scene.add()
    kept(scene, job_id=job_id)
    assert explain(job_id).state == "pending"


# -- who asks, and what it costs -------------------------------------------------------------------------------------


def test_a_tenant_is_told_nothing_of_the_pool_as_a_whole(scene: Scene) -> None:
    configure(scene, ScopeLimits(tenant="other", max_in_flight=1), max_in_flight=3)
    scene.store.register("worker-of-host-7", {"slots": "1"}, 60_000)
    others = scene.add(9, tenant="other")
    ids = scene.add(4)
    held = work(scene, 3, worker="worker-of-host-7")
    for job_id in ids:
        why = explain(job_id, tenants={"acme"})
        told = repr(as_mapping(why))
        assert "worker-of-host-7" not in told
        assert "last called" not in told
        assert not [other for other in others if other in told]
        assert why.reasons[0].limit is None
    waiting = next(job_id for job_id in ids if job_id not in held)
    assert explain(waiting, tenants={"acme"}).sentence == "The pool default is at its ceiling."
    assert explain(waiting).sentence == "The pool default is at its ceiling: 3 of 3 running."
    configure(scene)
    last = ids[-1]
    for text in (explain(last, tenants={"acme"}).sentence, repr(as_mapping(explain(last, tenants={"acme"})))):
        assert not re.search(r"\d jobs? of the pool|\d tenants|live worker", text), text
    assert re.search(r"\d jobs? of the pool", explain(last).sentence)


def test_the_estimate_rests_on_the_pace_of_the_pool_or_says_why_there_is_none(scene: Scene) -> None:
    scene.store.register("w.1", {}, 60_000)
    ids = scene.add(4)
    why = explain(ids[3])
    assert why.estimate is not None
    assert why.estimate.earliest is None
    assert re.fullmatch(
        r"no job of the pool started in the last .*|the pool's pace is not known yet", why.estimate.basis
    )


def test_round_trips_are_bounded(scene: Scene, round_trips: RoundTrips) -> None:
    for tenant in range(300):
        scene.add(2, tenant=f"t{tenant}")
    [job_id] = scene.add()
    shards.store("reports").register("w.9", {}, 60_000)
    explain(job_id)
    for most in (3, 1):
        round_trips.since_last()
        explain(job_id)
        assert round_trips.since_last() <= most
        scene.store.register("w.1", {}, 60_000)
