"""Why a job waits: each sentence from a real store, and the first reason is the one that holds the job."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from queueapp.inspection import explain as module
from queueapp.inspection.estimates import in_words
from queueapp.inspection.explain import explain
from queueapp.inspection.reason import Kind
from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.store.records import Failed, KeyUse, Returned
from tests.unit.inspection.asking import configure, end, free, kinds, lose_twice, work
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db


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
    assert told.sentence == "One of its concurrency keys is full."
    assert (told.reasons[0].used, told.reasons[0].limit, told.reasons[0].held_by) == (None, None, ())
    assert explain(behind, tenants={"acme", "globex"}).reasons[0].held_by == (theirs,)
    end(scene, theirs)
    assert work(scene) == [job_id]
    told = explain(behind, tenants={"acme"})
    assert told.sentence == f"One of its concurrency keys is full: 1 of 1 running, held by {job_id}."
    assert (told.reasons[0].used, told.reasons[0].limit, told.reasons[0].held_by) == (1, 1, (job_id,))


@pytest.mark.parametrize(("own", "others"), [(2, 1), (9, 1)])
def test_how_many_others_hold_a_key_is_told_to_who_sees_them_all(scene: Scene, own: int, others: int) -> None:
    """From the number and its own a tenant would know the others'. Beyond those that are named nobody can tell."""
    use = KeyUse(digest="d1", text="customer:42", limit=own + others, pattern="p1")
    mine = scene.add(own, keys=(use,))
    scene.add(others, tenant="globex", keys=(use,))
    assert len(work(scene, own + others)) == own + others
    [waiting] = scene.add(keys=(use,))
    [reason, *_] = explain(waiting, tenants={"acme"}).reasons
    assert (reason.used, reason.limit) == (None, None)
    assert set(reason.held_by) <= set(mine)
    assert not re.search(rf"\b{own + others}\b", reason.text)
    assert ", held among others by " in reason.text
    assert explain(waiting).reasons[0].limit == own + others


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
