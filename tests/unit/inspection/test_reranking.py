"""During a change of policy: what is said of the pool, and of a job that has not moved over; lists miss nobody."""

from __future__ import annotations

import pytest

from queueapp.inspection.collector import StoreCollector
from queueapp.inspection.explain import explain
from queueapp.inspection.jobs import list_jobs
from queueapp.inspection.overview import pool_status
from queueapp.store.configuration import PoolConf
from queueapp.store.views import Change
from tests.unit.inspection.conftest import Scene
from tests.unit.metrics.reading import value
from tests.unit.metrics.test_collector import read

pytestmark = pytest.mark.django_db


def changed(scene: Scene, policy: str = "fifo", version: int = 1) -> None:
    scene.store.configure(version, pool=PoolConf(policy=policy))


def test_sizes_progress_and_words(scene: Scene) -> None:
    scene.add(1_200)
    assert pool_status("default").reranking is None
    changed(scene)
    scene.add(3)
    scene.store.rerank(200)
    status = pool_status("default")
    assert status.reranking == Change(policy="tiered", moved=200, total=1_200)
    assert "Re-ranking: 200 of 1,200 jobs moved from the order of tiered to that of fifo." in status.notes
    assert value(read(StoreCollector()), "ductor_reranking_tasks", pool="default", shard="0") == 1_000
    while scene.store.rerank().more:
        pass
    assert pool_status("default").reranking is None
    assert value(read(StoreCollector()), "ductor_reranking_tasks", pool="default", shard="0") == 0


def test_why_a_job_has_not_moved_yet(scene: Scene) -> None:
    scene.store.register("w.1", {"slots": "1"}, 60_000)
    ids = scene.add(4)
    changed(scene)
    scene.store.rerank(1)
    why = explain(ids[2])
    assert [reason.kind for reason in why.reasons if reason.blocks] == ["reranking"]
    assert why.sentence == (
        "The policy of the pool default has become fifo, and it still stands in the order of tiered, 2nd in its lane: "
        "1 of 4 jobs have moved over."
    )
    assert "of 4" not in explain(ids[2], tenants={"acme"}).sentence
    assert [reason.kind for reason in explain(ids[0]).reasons] != ["reranking"]
    scene.store.configure(2, pool=PoolConf(policy="fifo", paused=True))
    why = explain(ids[2])
    assert [(reason.kind, reason.blocks) for reason in why.reasons] == [("pool_paused", True), ("reranking", False)]


@pytest.mark.parametrize("size", [1, 2, 50])
def test_a_list_of_pending_jobs_has_those_of_both_orders(scene: Scene, size: int) -> None:
    ids = [*scene.add(3), *scene.add(2, lane="x"), *scene.add(2, tier="continue")]
    changed(scene)
    scene.store.rerank(3)
    ids += scene.add(2)
    seen, cursor = [], ""
    for _ in range(30):
        page = list_jobs("default", "pending", tenant="acme", cursor=cursor, count=size)
        seen += [job.id for job in page.jobs]
        assert page.total == 9
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert sorted(seen) == sorted(ids)


def test_a_job_that_moves_over_between_two_pages_is_not_missed(scene: Scene) -> None:
    ids = scene.add(6)
    changed(scene)
    page = list_jobs("default", "pending", tenant="acme", count=2)
    scene.store.rerank(250)
    seen = [job.id for job in page.jobs]
    while page.next_cursor is not None:
        page = list_jobs("default", "pending", tenant="acme", cursor=page.next_cursor, count=2)
        seen += [job.id for job in page.jobs]
    assert set(seen) == set(ids)
