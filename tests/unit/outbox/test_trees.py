"""A tree of jobs that the store could not take after commit is kept as one row, and goes out whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from queueapp import Tree, enqueue_flow, errors
from queueapp.inspection.erasure import erase, extent
from queueapp.models import OutboxEntry
from queueapp.moments import now_ms
from queueapp.producer import kept_trees, outbox
from queueapp.producer.entries import tree_of
from queueapp.producer.relaying import relay
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import BoundTask
from queueapp.scheduler.duties.families import Families
from queueapp.store import shards, trees
from queueapp.store.store import Store
from tests.families import gather, gather_there, give, give_there
from tests.unit.outbox.away import store_away
from tests.working import work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def two_pools(settings: Any, namespace: str) -> Iterator[None]:
    with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": {"other": {}}}):
        yield


def kept(tree: Tree, **settings: Any) -> DuctorResult:
    """The handle of a tree that found no store after its commit."""
    with store_away(**settings), transaction.atomic():
        return enqueue_flow(tree)


def run_all() -> None:
    for _ in range(4):
        for pool in ("default", "other"):
            Families(pool, shards.store(pool)).run()
        work("default", "other")


def test_a_tree_is_kept_in_one_row_and_sent_whole(
    failures: list[dict[str, Any]], announced: list[DuctorResult]
) -> None:
    result = kept(Tree(gather.bind(), children=[give.bind(1), Tree(gather_there.bind(), children=[give.bind(2)])]))
    assert (result.outbox, result.state, outbox.waiting()) == ("default", "deferred", 1)
    assert [(facts["task_result"], facts["kept"]) for facts in failures] == [(result, True)]

    assert (relay().sent, outbox.waiting()) == (1, 0)
    result.refresh()
    assert (result.state, result.outbox) == ("waiting", "")
    assert len({each.id for each in announced}) == len(announced) == 4
    assert [each.state for each in announced if each.id == result.id] == ["waiting"]
    run_all()
    result.refresh()
    assert result.return_value["results"] == [1, [2]]


def test_a_tree_of_several_pages_that_was_sent_in_part_is_made_whole(
    monkeypatch: pytest.MonkeyPatch, failures: list[dict[str, Any]]
) -> None:
    """The store goes away between two pages: what the relay sends again is known there, and the rest is added."""
    cut = trees.pages
    monkeypatch.setattr(trees, "pages", lambda *given, **options: cut(*given, **{**options, "most": 3}))
    calls: list[Any] = []
    run = Store._run

    def dies(store: Store, call: Any) -> Any:
        calls.append(call)
        if len(calls) == 2:
            raise errors.StoreUnavailable("gone")
        return run(store, call)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "_run", dies)
        with transaction.atomic():
            result = enqueue_flow(Tree(gather.bind(), children=[give.bind(value) for value in range(8)]))
    assert (result.outbox, len(calls)) == ("default", 2)
    outbox.forget()
    assert work() == 2, "children of the first page may run, their parent may not"
    assert relay().sent == 1
    run_all()
    result.refresh()
    assert result.return_value["results"] == list(range(8))
    assert [facts["kept"] for facts in failures] == [True]


def test_what_was_withdrawn_is_never_sent() -> None:
    result = kept(Tree(gather.bind(), children=[give.bind(1)]))
    assert result.cancel()
    assert (relay().found, work()) == (0, 0)


def test_the_setting_log_keeps_none(failures: list[dict[str, Any]]) -> None:
    result = kept(Tree(gather.bind(), children=[give.bind(1)]), ON_COMMIT_FAILURE="log")
    assert (result.outbox, OutboxEntry.objects.count(), failures[0]["kept"]) == ("", 0, False)


def test_one_that_is_too_large_is_told_of(monkeypatch: pytest.MonkeyPatch, failures: list[dict[str, Any]]) -> None:
    monkeypatch.setattr(kept_trees, "MAX_BYTES", 100)
    result = kept(Tree(gather.bind(), children=[give.bind(1)]))
    assert (result.outbox, OutboxEntry.objects.count(), failures[0]["kept"]) == ("", 0, False)


def test_a_conflict_of_the_key_refuses_the_whole() -> None:
    enqueue_flow(Tree(gather.using(idempotency_key="k").bind(), children=[give.bind(1)]))
    kept(Tree(gather.using(idempotency_key="k").bind("else"), children=[give.bind(1)]))
    assert relay().refused == 1
    assert OutboxEntry.objects.get().state == OutboxEntry.State.REFUSED
    assert work() == 2


def test_delays_count_from_the_call_also_in_other_pools() -> None:
    late = give_there.using(delay=100).bind(1)
    kept(Tree(gather.bind(), children=[give.using(delay=100).bind(1), late]))
    entry = OutboxEntry.objects.get()
    entry.job["kept_ms"] = now_ms() - 60_000
    tree = tree_of(entry)
    assert tree is not None
    delays = [node.job.delay_ms for _, node in tree.all_nodes("") if node.parent]
    assert [round(delay, -3) for delay in delays] == [40_000, 40_000]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda job: job.update(tree="eJw="),
        lambda job: job.update(tree="no"),
        lambda job: job.update(version=3),
        lambda job: job["job"].update(id="0" * 22),
    ],
)
def test_what_nobody_wrote_so_is_not_sent(spoil: Any) -> None:
    kept(Tree(gather.bind(), children=[give.bind(1)]))
    entry = OutboxEntry.objects.get()
    spoil(entry.job)
    entry.save()
    assert relay().put_off == 1
    assert "cannot be read" in OutboxEntry.objects.get().error


def test_a_tree_whose_jobs_hang_together_as_none_does_is_not_sent() -> None:
    kept(Tree(gather.bind(), children=[give.bind(1)]))
    entry = OutboxEntry.objects.get()
    tree = kept_trees.KeptTree.of(entry.job)
    for wrong in (
        kept_trees.KeptTree(nodes=[tree.nodes[0], tree.nodes[0]], away=[]),
        kept_trees.KeptTree(nodes=tree.nodes[::-1], away=[]),
    ):
        with pytest.raises(ValueError, match="hangs on"):
            wrong.check()


class TestErasure:
    def test_a_tree_of_the_tenant_goes_with_all_of_it(self) -> None:
        kept(Tree(gather.using(tenant="acme").bind(), children=[give.using(tenant="globex").bind(1)]))
        assert extent("acme").places["outbox default"] == 1
        assert erase("acme").places["outbox default"] == 1
        assert OutboxEntry.objects.count() == 0

    def test_its_jobs_in_somebody_else_s_tree_go_and_who_waits_is_told(self) -> None:
        erased = Tree(give.using(tenant="acme").bind(1), on_failure="continue")
        children: list[Tree | BoundTask] = [erased, give.using(tenant="globex").bind(2)]
        result = kept(Tree(gather.using(tenant="globex").bind(), children=children))
        assert extent("acme").places["outbox default"] == 1
        assert erase("acme").places["pool default"] == 1
        assert OutboxEntry.objects.count() == 0
        run_all()
        result.refresh()
        assert result.return_value == {"results": [2], "failed": [["erased", 0]], "attempt": 1}

    def test_its_jobs_that_are_to_be_made_in_another_pool_go_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("queueapp.producer.flows.families.deliver", lambda pool: None)  # the caller died
            children = [Tree(give_there.using(tenant="acme").bind(1), on_failure="continue")]
            result = enqueue_flow(Tree(gather.using(tenant="globex").bind(), children=children))
        assert extent("acme").places["pool default"] == 1
        assert erase("acme").left == {}
        assert extent("acme").number == 0
        run_all()
        result.refresh()
        assert result.return_value["failed"] == [["erased", 0]]

    def test_what_another_pool_does_not_take_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(pool: str) -> None:
            raise errors.StoreUnavailable("gone")

        monkeypatch.setattr("queueapp.store.families.deliver", away)
        enqueue_flow(Tree(gather.using(tenant="globex").bind(), children=[give_there.using(tenant="acme").bind(1)]))
        [(left, number)] = erase("acme").left.items()
        assert "are to be made in another pool" in left
        assert number == 1
