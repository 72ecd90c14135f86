"""What went wrong with parents and children elsewhere (cases of the kind FLOW), and who is told when a parent dies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from queueapp import Tree, backoff, enqueue_flow, metrics
from queueapp.cli.status import status as status_of
from queueapp.compat import task_finished
from queueapp.errors import ChildFailed
from queueapp.inspection.collector import GAUGES
from queueapp.inspection.erasure import erase
from queueapp.inspection.explain import explain
from queueapp.inspection.overview import pool_status
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import BoundTask
from queueapp.producer.tenancy import current_tenant
from queueapp.scheduler.duties.families import Families
from queueapp.store import shards
from queueapp.store.family_records import ChildEnd, OnFailure
from queueapp.store.ids import LENGTH
from queueapp.store.store import Store
from tests.families import gather, gather_there, give, give_there, give_up, refuse, refuse_there
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)

RULES: list[OnFailure] = ["fail_parent", "retry_parent", "continue", "ignore"]
Told = tuple[str, str, str, type[BaseException] | None, str | None]


@pytest.fixture(autouse=True)
def two_pools(settings: Any, namespace: str) -> Iterator[None]:
    with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": {"other": {}}}):
        yield


@pytest.fixture
def finished() -> Iterator[list[Told]]:
    """Of each `task_finished`: id, status, class of the last error, what was being handled, whose it is."""
    seen: list[Told] = []

    def receive(task_result: DuctorResult, **_: object) -> None:
        last = task_result.errors[-1].exception_class_path if task_result.errors else ""
        seen.append((task_result.id, str(task_result.status), last, sys.exc_info()[0], current_tenant()))

    task_finished.connect(receive, weak=False)
    yield seen
    task_finished.disconnect(receive)


def relay(*pools: str) -> None:
    """As two schedulers do, one after the other."""
    for pool in pools or ("default", "other"):
        for duty in [Families(pool, shards.store(pool)) for _ in range(2)]:
            duty.run()


# -- C109 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("way", ["retries", "gives_up", "cancelled", "discarded", "erased"])
def test_c109_a_parent_ends_whatever_becomes_of_a_child(rule: OnFailure, way: str) -> None:
    """C109: a child fails for good and the parent waits for ever with no error."""
    doomed = {"retries": refuse.using(max_attempts=2, backoff=backoff.fixed(0)), "gives_up": give_up}.get(way, give)
    children: list[Tree | BoundTask] = [
        give.bind(1),
        Tree(doomed.using(tenant="acme").bind("no"), on_failure=rule),
        give.bind(3),
    ]
    result = enqueue_flow(Tree(gather.using(max_attempts=2).bind(), children=children))
    store = shards.store("default")
    [child] = [record.id for record in shards.reads("default").jobs(_ids()) if record and record.tenant == "acme"]
    if way == "cancelled":
        assert store.cancel([child]) == ["cancelled"]
    elif way == "discarded":  # an admin sets it aside, then throws it away
        assert store.move_to_dlq([child], "operator") == ["moved"]
        assert store.discard([child]) == ["discarded"]
    elif way == "erased":
        erase("acme")
    for _ in range(3):
        work()
    result.refresh()
    if rule == "fail_parent":
        assert (result.state, result.reason) == ("dead", "child_failed")
        assert child in explain(result.id).sentence
        return
    assert result.state == "ended"
    how = {"retries": "dead", "gives_up": "dead"}.get(way, way)
    failed = [] if rule == "ignore" else [how]
    assert [outcome for outcome, _ in result.return_value["failed"]] == failed
    assert result.return_value["attempt"] == (2 if rule == "retry_parent" else 1)
    assert result.return_value["results"] == [1, 3]


def _ids() -> list[str]:
    store = shards.store("default")
    found: Any = store.client.keys(f"{store.keys.prefix}job:*")
    return [key.decode().rpartition(":")[2] for key in found]


# -- C112 --------------------------------------------------------------------------------------------------------------


def test_c112_a_failure_early_in_a_branch_ends_the_whole_and_whoever_waits_is_answered() -> None:
    """C112: the caller hangs, because the failure of a chain inside a group is handled by nobody."""
    good = Tree(gather.bind(), children=[Tree(gather.bind(), children=[give.bind(1)])])
    bad = Tree(gather.bind(), children=[Tree(gather.bind(), children=[refuse.bind("no")])])
    result = enqueue_flow(Tree(gather.bind(), children=[good, bad]))
    assert work() == 4, "the good branch, and the first step of the bad one"
    result.wait(timeout=5)
    assert (result.state, result.reason) == ("dead", "child_failed")
    assert work() == 0


# -- C115 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("child", [refuse, refuse_there])
def test_c115_a_parent_that_its_child_failed_gives_one_signal(finished: list[Told], child: Any) -> None:
    """C115: a parent failed by its child gives no failure event or metric."""
    counter = metrics.PARENTS_FAILED.labels("default")
    before, dead = counter._value.get(), pool_status("default").stats.get("dead", 0)
    tree = Tree(gather.using(tenant="acme").bind(), children=[child.bind("no"), child.bind("never"), give.bind(1)])
    result = enqueue_flow(tree)
    for _ in range(3):
        work("default", "other")
        relay()
    mine = [told for told in finished if told[0] == result.id]
    assert mine == [(result.id, "FAILED", "queueapp.errors.ChildFailed", ChildFailed, "acme")]
    assert len(finished) == 4
    assert counter._value.get() - before == 1
    result.refresh()
    assert result.state == "dead"
    dead_here = pool_status("default").stats["dead"] - dead
    assert dead_here == (1 if child is refuse_there else 3), "the parent, and its children where they are of this pool"


def test_each_parent_above_gives_one_too(finished: list[Told]) -> None:
    tree: Tree | BoundTask = refuse.bind("no")
    for above in (gather, gather_there, gather):
        tree = Tree(above.bind(), children=[tree])
    enqueue_flow(tree)
    for _ in range(4):
        work("default", "other")
        relay()
    failed = [told for told in finished if told[2] == "queueapp.errors.ChildFailed"]
    assert len(failed) == len({told[0] for told in failed}) == 3


def test_one_that_dies_again_is_told_of_again(finished: list[Told]) -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[refuse.bind("no")]))
    for _ in range(2):
        work()
        relay()
        [child] = shards.store("default").children(result.id[-LENGTH:])
        assert shards.store("default").retry_from_dlq([child.child, result.id[-LENGTH:]]) == ["retried"] * 2
    assert [told[0] for told in finished if told[2] == "queueapp.errors.ChildFailed"] == [result.id] * 2


def test_two_schedulers_that_read_of_the_same_death_tell_of_it_once(
    finished: list[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue_flow(Tree(gather.bind(), children=[refuse.bind("no")]))
    work()
    store = shards.store("default")
    read = store.outbox()
    monkeypatch.setattr(Store, "outbox", lambda *_: read)
    for _ in range(2):
        Families("default", store).run()
    assert len([told for told in finished if told[2] == "queueapp.errors.ChildFailed"]) == 1


def test_whoever_made_a_tree_leaves_the_telling_to_schedulers(finished: list[Told]) -> None:
    """`deliver` runs in a site's process, where nobody has configured receivers for it."""
    enqueue_flow(Tree(gather.bind(), children=[refuse.bind("no")]))
    work()
    enqueue_flow(Tree(gather.bind(), children=[give_there.bind(1)]))
    assert [told for told in finished if told[2] == "queueapp.errors.ChildFailed"] == []
    relay()
    assert len([told for told in finished if told[2] == "queueapp.errors.ChildFailed"]) == 1


# -- a dead child of another pool is redriven --------------------------------------------------------------------------


def test_a_redriven_child_in_another_pool_is_waited_for_again() -> None:
    result = enqueue_flow(Tree(gather.bind(), children=[refuse_there.bind("no")]))
    work("other")
    relay()
    result.refresh()
    assert result.state == "dead"
    [child] = [child.child for child in shards.store("default").children(result.id[-LENGTH:])]
    assert shards.store("other").retry_from_dlq([child[-LENGTH:]]) == ["retried"]
    relay()
    assert shards.store("default").children(result.id[-LENGTH:]) == []
    assert shards.store("default").retry_from_dlq([result.id[-LENGTH:]]) == ["retried"]
    result.refresh()
    assert result.state == "waiting"
    work("other")
    relay()
    result.refresh()
    assert (result.state, result.reason) == ("dead", "child_failed")


def test_nothing_older_is_heard_of_a_child_than_what_was() -> None:
    """Notes may come twice, and late: an old `reopened` must not leave a parent waiting for what has ended."""
    result = enqueue_flow(
        Tree(gather.bind(), children=[Tree(refuse_there.bind("no"), on_failure="continue"), give.bind(1)])
    )
    store, parent = shards.store("default"), result.id[-LENGTH:]
    work("other")
    [dead] = [note.end for note in shards.store("other").outbox() if note.end is not None]
    relay("other")
    shards.store("other").retry_from_dlq([dead.child[-LENGTH:]])
    [again] = [note.end for note in shards.store("other").outbox() if note.end is not None]
    assert (again.outcome, again.child) == ("reopened", dead.child)

    def open_children() -> int:
        return int(store.client.scard(store.keys[f"open:{parent}"]))

    def ended(entry: str) -> ChildEnd:
        return ChildEnd(parent=parent, child=dead.child, on_failure="continue", position=0, outcome="dead", entry=entry)

    assert open_children() == 1
    store.child_done([again])
    store.child_done([dead])
    assert open_children() == 2, "the end of its first life came late"
    store.child_done([ended("9999999999999-0")])
    store.child_done([again, dead])
    assert open_children() == 1, "it has ended, and its redrive is heard of late"
    work()
    result.refresh()
    assert result.return_value["failed"] == [["dead", 1]]
    shards.store("other").relayed([again.entry])


# -- how many wait -----------------------------------------------------------------------------------------------------


def test_how_many_wait_for_children_is_told() -> None:
    assert pool_status("default").parents == 0
    enqueue_flow(Tree(gather.bind(), children=[Tree(gather.bind(), children=[give.bind(1)])]))
    status = pool_status("default")
    assert (status.parents, status.waiting) == (2, 1)
    assert "default: 2 jobs wait for children" in status_of(["default"], json=False)[0]
    assert GAUGES["ductor_parent_tasks"][1](status) == 2
    work()
    assert pool_status("default").parents == 0
