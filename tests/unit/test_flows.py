"""Trees of jobs through the public names, run by a real worker: who waits for whom, in one pool and in two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings

from ductor_project.settings import DUCTOR
from queueapp import Tree, add_children, aenqueue_flow, enqueue_flow, errors
from queueapp.compat import task_enqueued
from queueapp.inspection.explain import explain
from queueapp.producer.results import DuctorResult
from queueapp.scheduler.duties.families import Families
from queueapp.store import families, shards
from queueapp.store.ids import made_ms, new_child_id, new_id
from queueapp.store.store import Store
from tests.families import (
    gather,
    gather_there,
    give,
    give_there,
    refuse,
    spread,
    spread_async,
    spread_nothing,
)
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def two_pools(settings: Any, namespace: str) -> Iterator[None]:
    with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": {"other": {}}}):
        yield


def relay(*pools: str) -> None:
    """As a scheduler does, until nothing is left to say."""
    for _ in range(10):
        for pool in pools or ("default", "other"):
            Families(pool, shards.store(pool)).run()


def ended(result: DuctorResult) -> Any:
    result.refresh()
    assert result.state == "ended", (result.state, result.errors)
    return result.return_value


def test_a_parent_runs_last_with_the_results_of_its_children_in_order() -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[give.bind(value) for value in ("a", None, [1, {"b": 2}])]))
    assert (result.state, result.status) == ("waiting", "READY")
    assert work() == 4
    assert ended(result) == {"results": ["a", None, [1, {"b": 2}]], "failed": [], "attempt": 1}


def test_a_bound_task_alone_is_a_tree() -> None:
    result = enqueue_flow(give.bind(7))
    work()
    assert ended(result) == 7


def test_a_parent_reads_how_its_children_failed() -> None:
    children: list[Any] = [
        Tree(refuse.bind("no"), on_failure="continue"),
        Tree(refuse.bind("never mind"), on_failure="ignore"),
        give.bind(1),
    ]
    result = enqueue_flow(Tree(gather.bind(), children=children))
    work()
    assert ended(result) == {"results": [1], "failed": [["dead", 1]], "attempt": 1}


def test_by_default_a_failed_child_fails_its_parent_which_names_it() -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[refuse.bind("no"), give.bind(1)]))
    work()
    result.refresh()
    assert (result.state, result.reason) == ("dead", "child_failed")
    assert [error.exception_class_path for error in result.errors] == ["queueapp.errors.ChildFailed"]
    assert "its child" in explain(result.id).sentence


def test_why_says_for_whom_a_parent_waits() -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[give.bind(1), give.bind(2)]))
    [reason] = explain(result.id).reasons
    assert "it waits for 2 of its 2 children to end" in reason.text
    assert len(reason.held_by) == 2
    assert reason.blocks


def test_retry_parent_runs_it_again_after_its_children() -> None:
    tree = Tree(gather.using(max_attempts=2).bind(), children=[Tree(refuse.bind("no"), on_failure="retry_parent")])
    result = enqueue_flow(tree)
    work()
    assert ended(result)["attempt"] == 2


def test_a_running_job_adds_children_and_runs_again() -> None:
    result = spread.enqueue(5)
    work()
    assert ended(result) == 10
    assert result.errors == []


def test_what_it_returns_although_it_waits_is_not_kept() -> None:
    result = spread.enqueue(3, swallows=True)
    work()
    assert ended(result) == 3


def test_a_coroutine_adds_children() -> None:
    result = spread_async.enqueue(4)
    work()
    assert ended(result) == 6


def test_an_empty_group_releases_at_once() -> None:
    result = spread_nothing.enqueue()
    work()
    assert ended(result) == 2


def test_children_are_added_to_a_job_that_waits() -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[give.bind(1)]))
    [more] = add_children(result, [give.bind(2)])
    work()
    assert ended(more) == 2
    assert ended(result)["results"] in ([1, 2], [2, 1])
    with pytest.raises(errors.NotWaiting):
        add_children(result, [give.bind(3)])


def test_an_asynchronous_caller_enqueues_a_tree() -> None:
    result = async_to_sync(aenqueue_flow)(Tree(gather.bind(), children=[give.bind(1), give_there.bind(2)]))
    work("default", "other")
    relay()
    work("default")
    assert ended(result)["results"] == [1, 2]


def test_every_job_of_a_tree_is_announced_once_it_is_accepted() -> None:
    seen: list[str] = []

    def receive(task_result: DuctorResult, **_: object) -> None:
        seen.append(task_result.id)

    task_enqueued.connect(receive)
    try:
        enqueue_flow(Tree(gather.bind(), children=[give.bind(1), give_there.bind(2)]))
    finally:
        task_enqueued.disconnect(receive)
    assert len(set(seen)) == len(seen) == 3


# -- transactions ------------------------------------------------------------------------------------------------------


def test_inside_a_transaction_a_tree_goes_out_after_commit() -> None:
    with transaction.atomic():
        result = enqueue_flow(Tree(gather.bind(), children=[give.bind(1)]))
        assert result.state == "deferred"
        assert work() == 0
    assert result.state == "waiting"
    work()
    assert ended(result)["results"] == [1]


def test_a_rollback_takes_the_tree_along() -> None:
    with transaction.atomic():
        enqueue_flow(Tree(gather.bind(), children=[give.bind(1)]))
        transaction.set_rollback(True)
    assert work() == 0


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (lambda: Tree(give.bind(1), children=[give.using(idempotency_key="k").bind(2)]), "idempotency_key"),
        (lambda: Tree(give.bind(1), on_failure="never"), "on_failure"),  # type: ignore[arg-type]
        (lambda: Tree(give.bind(1), children=[7]), "bound tasks"),  # type: ignore[list-item]
        (lambda: give, "bound tasks"),
        (lambda: nested(40), "levels"),
    ],
)
def test_what_no_tree_can_be_is_refused_before_anything_is_sent(tree: Any, message: str) -> None:
    with pytest.raises(errors.InvalidOption, match=message):
        enqueue_flow(tree())
    assert work() == 0


def nested(levels: int) -> Tree:
    tree = Tree(give.bind(0))
    for level in range(levels):
        tree = Tree(give.bind(level), children=[tree])
    return tree


def test_an_idempotency_key_of_the_root_stands_for_the_whole_tree() -> None:
    def send() -> DuctorResult:
        return enqueue_flow(Tree(gather.using(idempotency_key="k").bind(), children=[give.bind(1)]))

    first, second = send(), send()
    assert (second.id, second.outcome) == (first.id, "exists")
    assert work() == 2


# -- other pools -------------------------------------------------------------------------------------------------------


def test_children_in_another_pool_are_made_at_once_and_their_ends_relayed() -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[give_there.bind("there"), give.bind("here")]))
    assert work("default", "other") == 2
    result.refresh()
    assert result.state == "waiting"
    relay("other")
    work()
    assert ended(result)["results"] == ["there", "here"]


def test_a_tree_goes_to_and_fro_between_pools() -> None:
    tree = Tree(gather.bind(), children=[Tree(gather_there.bind(), children=[give.bind(1), give_there.bind(2)])])
    result = enqueue_flow(tree)
    for _ in range(4):
        work("default", "other")
        relay()
    assert ended(result)["results"] == [[1, 2]]


def test_what_the_caller_could_not_make_elsewhere_a_scheduler_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(families, "deliver", lambda pool: None)  # the caller died
        result = enqueue_flow(Tree(gather.bind(), children=[give_there.bind(1)]))
    assert work("other") == 0
    relay()
    work("other")
    relay()
    work()
    assert ended(result)["results"] == [1]


@pytest.mark.parametrize("lost", ["enqueue_flow", "child_done", "relayed"])
def test_each_note_may_be_told_twice(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """Whoever relays dies after a step, and the next one says everything once more."""
    told: list[str] = []
    done = getattr(Store, lost)

    def dies(store: Store, *args: Any, **options: Any) -> Any:
        if lost != "relayed":
            done(store, *args, **options)
        if not told:
            told.append(lost)
            raise errors.StoreUnavailable("gone")
        return done(store, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(families, "deliver", lambda pool: None)
        result = enqueue_flow(Tree(gather.bind(), children=[give_there.bind(1), give_there.bind(2)]))
    monkeypatch.setattr(Store, lost, dies)
    for _ in range(6):
        for pool in ("default", "other"):
            try:
                Families(pool, shards.store(pool)).run()
            except errors.StoreUnavailable:
                assert told
        work("default", "other")
    assert told
    assert ended(result)["results"] == [1, 2]
    assert shards.store("default").outbox() == shards.store("other").outbox() == []


def test_a_cancelled_parent_cancels_its_children_in_other_pools() -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[give_there.bind(1)]))
    assert result.cancel()
    relay()
    assert work("other") == 0


def test_one_that_was_cancelled_before_its_child_was_made_elsewhere_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(families, "deliver", lambda pool: None)
        result = enqueue_flow(Tree(gather.bind(), children=[give_there.bind(1)]))
    assert result.cancel()
    relay()
    assert work("other") == 0


def test_a_child_for_a_pool_above_its_rate_waits_there_for_its_moment() -> None:
    from queueapp.store.configuration import Rate, ScopeLimits

    limit = ScopeLimits(tenant="default", rate=Rate(rate=1, period_ms=50))
    shards.store("other").configure(1, scopes=[limit])
    result = enqueue_flow(Tree(gather.bind(), children=[give_there.bind(value) for value in range(3)]))
    states = [job.state.value for job in shards.reads("other").jobs(_ids("other")) if job is not None]
    assert sorted(states) == ["backlog", "backlog", "pending"]
    assert result.state == "waiting"


def _ids(pool: str) -> list[str]:
    store = shards.store(pool)
    found: Any = store.client.keys(f"{store.keys.prefix}job:*")
    return [key.decode().rpartition(":")[2] for key in found]


def test_a_pool_that_nobody_knows_keeps_its_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue_flow(Tree(gather.bind(), children=[give.bind(1)]))
    store = shards.store("default")
    store.client.xadd(store.keys["outbox"], {"k": "cancel", "to": f"nobody.0.{new_id()}"})
    relay()
    assert len(store.outbox()) == 1
    store.client.delete(store.keys["outbox"])


def test_ids_of_children_tell_so_and_are_ids_like_any() -> None:
    child, other = new_child_id(), new_id()
    assert child[8] in "VWXY"
    assert other[8] in "RSTU"
    assert abs(made_ms(child) - made_ms(other)) < 1_000
    assert DUCTOR["NAMESPACE"]
