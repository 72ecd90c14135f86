"""Scheduled dispatch as it is told: why a job waits for a leader, a window or a worker; sizes, notes, lists, REST."""

from __future__ import annotations

from itertools import count

import pytest

from queueapp.inspection.explain import explain
from queueapp.inspection.jobs import list_jobs
from queueapp.inspection.overview import pool_status
from queueapp.store.configuration import PoolConf
from queueapp.store.leader_records import Term
from queueapp.store.reads import Reads
from tests.unit.inspection.asking import kinds
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db
versions = count(1)


def scheduled(scene: Scene, policy: str = "fifo", window: int = 0) -> None:
    scene.store.configure(next(versions), pool=PoolConf(policy=policy, dispatch="scheduled", window=window))


def lead(scene: Scene) -> Term:
    scene.store.register("w.1", {"slots": "2"}, 60_000)
    return scene.store.lead_acquire("me", "nonce", 60_000)


def admit(scene: Scene, term: Term) -> None:
    scene.store.admit(
        term,
        [(entry.entry, entry.id, float(entry.seq)) for entry in scene.store.read_ingress("me")],
        order=Reads(scene.store.client, scene.store.keys).in_force()[1],
    )


def test_without_a_leader_a_job_waits_for_one(scene: Scene) -> None:
    scheduled(scene)
    [job_id, _] = scene.add(2)
    scene.store.register("w.1", {"slots": "2"}, 60_000)
    why = explain(job_id)
    assert (why.state, kinds(why)) == ("ingress", ["no_leader", "ingress"])
    assert why.sentence == (
        "No scheduler leads the pool default, whose dispatch is scheduled: nothing is chosen until one does; besides, "
        "it has come in, and the leader ranks it next: 2 jobs of the pool wait for that."
    )
    assert why.estimate is not None
    assert why.estimate.basis == "nobody can say when a scheduler leads"
    own = explain(job_id, tenants={"acme"})
    assert "2 jobs" not in own.sentence, "a tenant is told nothing of the pool"


def test_with_a_leader_it_is_ranked_next(scene: Scene) -> None:
    scheduled(scene)
    [job_id] = scene.add(1)
    lead(scene)
    why = explain(job_id)
    assert kinds(why) == ["ingress"]
    assert why.sentence == "It has come in, and the leader ranks it next: 1 job of the pool waits for that."


def test_then_it_waits_for_the_window(scene: Scene) -> None:
    scheduled(scene)
    first, second, third = scene.add(3)
    term = lead(scene)
    admit(scene, term)
    assert explain(first).sentence == "It is next: the leader chooses it with its next call."
    scene.store.dispatch(term, 10, 1)
    why = explain(second)
    assert (why.state, kinds(why)) == ("pending", ["window"])
    assert why.sentence.endswith("as many jobs are chosen and not done as the pool's window has room for: 1 of 1.")
    assert (why.reasons[0].used, why.reasons[0].limit) == (1, 1)
    assert explain(second, tenants={"acme"}).reasons[0].limit is None
    assert kinds(explain(third)) == ["turn"]


def test_when_it_is_chosen_a_worker_takes_it_next(scene: Scene) -> None:
    scheduled(scene)
    first, second = scene.add(2)
    term = lead(scene)
    admit(scene, term)
    scene.store.dispatch(term, 10, 10)
    why = explain(first)
    assert (why.state, why.sentence) == ("ready", "The leader has chosen it, and the next worker with room takes it.")
    assert explain(second).sentence.endswith("takes it, after 1 job chosen before it.")
    assert why.estimate is not None
    assert why.estimate.earliest == why.as_of


def test_where_only_the_leader_knows_the_order_nobody_makes_one_up(scene: Scene) -> None:
    scheduled(scene, "drr")
    scene.add(2, tenant="other")
    [_, second] = scene.add(2)
    term = lead(scene)
    admit(scene, term)
    why = explain(second)
    assert why.sentence == "It waits for its turn: it is 2nd in its lane."
    assert why.estimate is not None
    assert "nobody can say" in why.estimate.basis


def test_sizes_and_notes(scene: Scene) -> None:
    direct = pool_status("default")
    assert (direct.dispatch, direct.window, direct.ingress, direct.ready) == ("direct", None, 0, 0)
    assert not any("No leader" in note for note in direct.notes)
    scheduled(scene)
    scene.add(5)
    [note] = [note for note in pool_status("default").notes if note.startswith("No leader: nothing is dispatched.")]
    assert "set the pool's dispatch to direct" in note
    term = lead(scene)
    admit(scene, term)
    scene.add(1)
    scene.store.dispatch(term, 10, 2)
    status = pool_status("default")
    assert (status.dispatch, status.window, status.ingress, status.ready, status.waiting) == ("scheduled", 2, 1, 2, 6)
    assert not any("No leader" in note for note in status.notes)
    scheduled(scene, window=7)
    assert pool_status("default").window == 7


def test_jobs_of_ingress_and_ready_are_listed(scene: Scene) -> None:
    scheduled(scene)
    chosen = scene.add(3)
    term = lead(scene)
    admit(scene, term)
    scene.store.dispatch(term, 10, 3)
    came = [scene.add(1, tenant=("acme", "other")[n % 2])[0] for n in range(5)]
    scene.store.cancel(scene.inner([came[2]]))
    page = list_jobs("default", "ready")
    assert [job.id for job in page.jobs] == chosen
    assert all(job.wait is not None for job in page.jobs)
    found, cursor = [], ""
    for _ in range(9):
        page = list_jobs("default", "ingress", cursor=cursor, count=2)
        found += [job.id for job in page.jobs]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert found == [came[0], came[1], came[3], came[4]], "who was cancelled is not shown"
    assert page.total == 5
    own = list_jobs("default", "ingress", tenant="other")
    assert [job.id for job in own.jobs] == [came[1], came[3]]
    assert list_jobs("default", "ingress", task="none.of.this").jobs == ()
