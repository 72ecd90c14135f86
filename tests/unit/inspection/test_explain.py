"""Why a job does not run: each sentence from a real store, and the first reason is the one that holds the job."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from django.utils import timezone

from queueapp.errors import StoreUnavailable
from queueapp.inspection import explain as module
from queueapp.inspection.estimates import in_words
from queueapp.inspection.explain import Why, as_mapping, explain
from queueapp.inspection.reasons import Kind
from queueapp.models import OutboxEntry
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.records import Completed, Failed, KeyUse, PoolConf, Returned, ScopeLimits
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db
versions = count(1)


def configure(scene: Scene, *scopes: ScopeLimits, **pool: Any) -> None:
    scene.store.configure(next(versions), pool=PoolConf(**pool), scopes=scopes)


def free(scene: Scene) -> None:
    """No pauses and no ceilings."""
    configure(scene, ScopeLimits(tenant="acme", clear=True), ScopeLimits(tenant="acme", lane="main", clear=True))


def work(scene: Scene, number: int = 1, *, lease_ms: int = 30_000, worker: str = "w.1") -> list[str]:
    """Leases so many; their public ids."""
    leases = scene.store.check_and_lease(worker, next(scene.seqs), want=number, begin=number, lease_ms=lease_ms)
    return [scene.keys.public_id(job.id) for job in leases.jobs]


def end(scene: Scene, *ids: str) -> None:
    """These running jobs complete."""
    done = [Completed(id=job_id, attempts=_attempts(scene, job_id), run_ms=1) for job_id in scene.inner(ids)]
    assert set(scene.store.complete(done)) == {"done"}


def _attempts(scene: Scene, job_id: str) -> int:
    return int(scene.store.client.hget(scene.keys.run(job_id), "a"))  # type: ignore[arg-type]


def lose_twice(scene: Scene, job_id: str) -> None:
    """Its worker dies twice while it runs."""
    for worker in ("dying.1", "dying.2"):
        assert work(scene, lease_ms=1, worker=worker) == [job_id]
        while not scene.store.partition_recover().pending:
            pass


def kinds(why: Why) -> list[str]:
    return [reason.kind.value for reason in why.reasons]


# -- waiting: what holds it ------------------------------------------------------------------------------------------


def _paused_pool(scene: Scene) -> str:
    configure(scene, paused=True)
    return scene.add()[0]


def _paused_tenant(scene: Scene) -> str:
    configure(scene, ScopeLimits(tenant="acme", paused=True))
    return scene.add()[0]


def _paused_lane(scene: Scene) -> str:
    configure(scene, ScopeLimits(tenant="acme", lane="main", paused=True))
    return scene.add()[0]


def _closed_pool(scene: Scene) -> str:
    configure(scene, max_in_flight=0)
    return scene.add()[0]


HELD: dict[str, tuple[Callable[[Scene], str], str]] = {
    "pool_paused": (_paused_pool, "The pool default is paused."),
    "tenant_paused": (_paused_tenant, "Its tenant acme is paused in the pool default."),
    "lane_paused": (_paused_lane, "Its lane main of the tenant acme is paused."),
    "pool_full": (_closed_pool, "The pool default is at its ceiling, which is 0: it is closed."),
}


@pytest.mark.parametrize("kind", HELD)
def test_what_somebody_set_holds_it_until_it_is_taken_back(scene: Scene, kind: str) -> None:
    arrange, sentence = HELD[kind]
    job_id = arrange(scene)
    assert work(scene) == []
    why = explain(job_id)
    assert (why.state, why.pool, why.tenant, why.task) == ("pending", "default", "acme", "shop.tasks.pay")
    assert why.sentence == sentence
    assert [reason.kind.value for reason in why.reasons if reason.blocks] == [kind]
    assert why.estimate is not None
    assert (why.estimate.earliest, why.estimate.latest) == (None, None)
    free(scene)
    assert explain(job_id).reasons[0].kind is Kind.NEXT
    assert work(scene) == [job_id]


@pytest.mark.parametrize(
    ("kind", "lane", "name"),
    [
        ("pool_full", None, "The pool default is at its ceiling: 2 of 2 running"),
        ("tenant_full", "", "Its tenant acme is at its ceiling: 2 of 2 running, held by {0}, {1}"),
        ("lane_full", "main", "Its lane main of the tenant acme is at its ceiling: 2 of 2 running, held by {0}, {1}"),
    ],
)
def test_a_ceiling_holds_it_until_one_of_its_jobs_ends(scene: Scene, kind: str, lane: str | None, name: str) -> None:
    if lane is None:
        configure(scene, max_in_flight=2)
    else:
        configure(scene, ScopeLimits(tenant="acme", lane=lane, max_in_flight=2))
    first, second, job_id = scene.add(3)
    assert work(scene, 3) == [first, second]
    why = explain(job_id)
    assert why.sentence == name.format(first, second) + "."
    assert kinds(why) == [kind, "turn"]
    assert (why.reasons[0].used, why.reasons[0].limit) == (2, 2)
    assert why.reasons[0].held_by == (() if lane is None else (first, second))
    assert (why.reasons[1].text, why.reasons[1].blocks) == ("it is 1st in its lane", False)
    end(scene, first)
    assert work(scene) == [job_id]


def test_a_sentence_names_a_few_who_hold_its_place_and_how_many_more(scene: Scene) -> None:
    configure(scene, ScopeLimits(tenant="acme", max_in_flight=20))
    ids = scene.add(21)
    held = work(scene, 20)
    why = explain(ids[-1])
    assert why.sentence.endswith(f"held by {', '.join(held[:3])} and 17 more.")
    assert why.reasons[0].held_by == tuple(held[:8])


def test_no_worker_holds_it_until_one_comes(scene: Scene) -> None:
    [job_id] = scene.add()
    assert explain(job_id).sentence == "No live worker serves the pool default, nor any other."
    assert explain(job_id, tenants={"acme"}).sentence == "No live worker serves the pool default."
    shards.store("reports").register("w.9", {}, 60_000)
    why = explain(job_id)
    assert why.sentence == "No live worker serves the pool default (those that are alive serve reports)."
    assert kinds(why) == ["no_worker", "turn"]
    assert why.estimate is not None
    assert in_words(why.estimate) == "When it starts is unknown: nobody can say when a worker starts"
    assert work(scene) == [job_id]


def test_what_holds_it_besides_is_said_too_in_the_order_in_which_it_helps(scene: Scene) -> None:
    configure(
        scene,
        ScopeLimits(tenant="acme", paused=True, max_in_flight=0),
        ScopeLimits(tenant="acme", lane="main", paused=True),
        paused=True,
        max_in_flight=0,
    )
    [job_id] = scene.add()
    why = explain(job_id)
    expected = ["pool_paused", "tenant_paused", "lane_paused", "no_worker", "pool_full", "tenant_full"]
    assert [reason.kind.value for reason in why.reasons if reason.blocks] == expected
    assert why.sentence.startswith(
        "The pool default is paused; besides, its tenant acme is paused in the pool default; its lane main of"
    )
    free(scene)
    assert work(scene) == [job_id]


def test_a_suspect_runs_alone_and_holds_those_behind_it(scene: Scene) -> None:
    [suspect] = scene.add(max_crashes=9)
    lose_twice(scene, suspect)
    [behind] = scene.add()
    [other] = scene.add(tenant="other")
    configure(scene, ScopeLimits(tenant="acme", paused=True))
    assert work(scene) == [other]
    free(scene)
    assert work(scene) == []  # w.1 holds a job, so it passes the suspect over
    why = explain(suspect)
    assert re.match(
        r"Its worker died twice while it ran, so it is leased alone, by a worker that holds nothing else; "
        r"it was first passed over \S+ ms ago \(",
        why.sentence,
    ), why.sentence
    assert kinds(why)[0] == "suspect"
    held = explain(behind)
    assert held.sentence == (
        f"The job at the head of its line, {suspect}, twice lost its worker and must be leased alone before it."
    )
    assert (held.reasons[0].held_by, held.reasons[1].text) == ((suspect,), "it is 2nd in its lane")
    assert work(scene, worker="w.2") == [suspect]
    assert work(scene, worker="w.3") == [behind]


def test_a_full_key_holds_it_until_one_of_its_jobs_ends(scene: Scene) -> None:
    use = KeyUse(digest="d1", text="customer:42", limit=1, pattern="p1")
    [theirs] = scene.add(tenant="globex", keys=(use,))
    assert work(scene) == [theirs]
    job_id, behind = scene.add(2, keys=(use,))
    assert work(scene) == []
    why = explain(behind, contents=True)
    assert why.sentence == f"Its concurrency key 'customer:42' is full: 1 of 1 running, held by {theirs}."
    assert kinds(why) == ["key_full", "turn"]
    assert why.reasons[1].text == "it is 2nd of those in its lane that have the same keys"
    told = explain(behind, tenants={"acme"})
    assert told.sentence == "One of its concurrency keys is full: 1 of 1 running."
    assert (told.reasons[0].used, told.reasons[0].held_by) == (1, ())
    assert explain(behind, tenants={"acme", "globex"}).reasons[0].held_by == (theirs,)
    end(scene, theirs)
    assert work(scene) == [job_id]
    assert explain(behind, tenants={"acme"}).reasons[0].held_by == (job_id,)


# -- waiting: its turn -----------------------------------------------------------------------------------------------


def test_its_turn_under_an_order(scene: Scene) -> None:
    configure(scene, policy="fifo")
    others = scene.add(12, tenant="other")
    first, job_id = scene.add(2)
    assert work(scene) == others[:1]
    why = explain(job_id)
    assert why.sentence == (
        "It waits for its turn: it is 2nd in its lane, and 12 jobs of the pool start before it under the policy fifo."
    )
    assert why.reasons[0].blocks
    assert work(scene, 12) == [*others[1:], first]
    assert explain(job_id).sentence == "It is next: the next worker that asks for work takes it."


def test_its_turn_among_tenants_that_take_turns(scene: Scene) -> None:
    before, *others = scene.add(12, tenant="a-first")
    first, job_id = scene.add(2)
    scene.store.register("w.1", {}, 60_000)
    assert explain(job_id).sentence == (
        "It waits for its turn: it is 2nd in its lane, and 3 jobs of the pool start before it under the policy tiered; "
        "1 of 2 tenants has its turn before its own."
    )
    assert work(scene, 3) == [before, first, others[0]]
    assert explain(job_id).reasons[0].kind is Kind.NEXT
    assert work(scene) == [job_id]


def test_beyond_the_bound_it_says_at_least(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WALKED", 5)
    for tenant in range(9):
        scene.add(2, tenant=f"t{tenant}")
    ids = scene.add(2)
    scene.store.register("w.1", {}, 60_000)
    why = explain(ids[1])
    assert why.sentence == (
        "It waits for its turn: it is 2nd in its lane, and at least 5 jobs of the pool start before it under the "
        "policy tiered."
    )


def test_fresh_and_continued_work_of_a_lane(scene: Scene) -> None:
    scene.store.register("w.1", {}, 60_000)
    fresh = scene.add(2)
    continued = scene.add(1, tier="continue")
    assert "it is 2nd among the fresh work of its lane, beside 1 continued job" in explain(fresh[1]).sentence
    configure(scene, ScopeLimits(tenant="acme", paused=True))
    text = explain(continued[0]).reasons[1].text
    assert text == "it is 1st among the continued work of its lane, beside 2 fresh jobs"


def test_next_but_the_workers_have_no_room(scene: Scene) -> None:
    scene.store.register("w.1", {"slots": "1"}, 60_000)
    running, job_id = scene.add(2)
    assert work(scene) == [running]
    why = explain(job_id)
    assert why.sentence == "It is next, and the pool's 1 live worker has no room: 1 leased for 1 slot."
    assert kinds(why) == ["busy"]
    end(scene, running)
    assert explain(job_id).reasons[0].kind is Kind.NEXT


def test_what_expires_says_when(scene: Scene) -> None:
    scene.store.register("w.1", {}, 60_000)
    [job_id] = scene.add(expires_after_ms=3_600_000)
    reason = explain(job_id).reasons[1]
    assert (reason.kind, reason.blocks) == (Kind.EXPIRES, False)
    assert reason.until is not None
    assert reason.until > datetime.now(UTC) + timedelta(minutes=59)


# -- waiting for a moment --------------------------------------------------------------------------------------------


def test_scheduled_until_it_is_due(scene: Scene) -> None:
    scene.store.register("w.1", {}, 60_000)
    [job_id] = scene.add(delay_ms=3_600_000)
    why = explain(job_id)
    assert re.fullmatch(r"It is due in (59 min \d+ s|1 h) \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)\.", why.sentence)
    assert (why.state, kinds(why)) == ("scheduled", ["due"])
    assert why.until is not None
    assert timedelta(minutes=59) < why.until - why.as_of <= timedelta(hours=1)
    assert why.estimate is not None
    assert (why.estimate.earliest, why.estimate.latest) == (why.until, None)


def test_scheduled_in_a_paused_pool_says_both(scene: Scene) -> None:
    configure(scene, paused=True)
    [job_id] = scene.add(delay_ms=3_600_000)
    why = explain(job_id)
    assert kinds(why) == ["due", "pool_paused", "no_worker"]
    assert "; besides, the pool default is paused; no live worker" in why.sentence
    assert why.estimate is not None
    assert why.estimate.basis == "its due time, if by then what else holds it is gone"


def test_backoff_after_an_error_names_its_class_and_nothing_it_said(scene: Scene) -> None:
    [job_id] = scene.add(max_attempts=3)
    [leased] = scene.lease(1)
    error = b'{"class": "shop.Refused", "message": "no card 4111", "traceback": "card 4111"}'
    scene.store.fail([Failed(id=leased.id, attempts=1, run_ms=1, error=error, retry_ms=60_000)])
    why = explain(job_id, contents=True)
    assert why.sentence.startswith("Its 1st attempt failed with shop.Refused; the next one is due in ")
    assert kinds(why) == ["backoff"]
    assert "4111" not in repr(why)


def test_a_task_that_no_worker_knows(scene: Scene) -> None:
    [job_id] = scene.add()
    [leased] = scene.lease(1)
    back = Returned(id=leased.id, attempts=1, delay_ms=60_000, unknown_task=True, grace_ms=900_000)
    scene.store.partition_requeue([back])
    why = explain(job_id)
    assert re.match(
        r"No worker that took it knows its task shop\.tasks\.pay: first given back .* ago \(.*\), tried again in .*, "
        r"a dead letter when none knows it by .* UTC\.",
        why.sentence,
    )
    assert kinds(why) == ["unknown_task"]


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
