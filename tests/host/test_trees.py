"""Trees of jobs under `recorded()`, `immediate()` and `drain()`: children first, then who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from ductor_project.settings import DUCTOR
from queueapp import Tree, add_children, aenqueue_flow, enqueue_flow, errors
from queueapp.compat import task_finished
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import BoundTask
from queueapp.testing import assert_enqueued, drain, immediate, recorded, throwaway_store
from tests.families import gather, gather_there, give, give_there, refuse, spread, spread_async, spread_nothing
from tests.host.conftest import NOWHERE

pytestmark = [pytest.mark.compat, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def two_pools(namespace: str) -> Iterator[None]:
    with override_settings(DUCTOR={**DUCTOR, "REDIS_URL": NOWHERE, "NAMESPACE": namespace, "POOLS": {"other": {}}}):
        yield


@pytest.fixture
def finished() -> Iterator[list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []

    def receive(task_result: DuctorResult, **_: object) -> None:
        seen.append((task_result.id, str(task_result.status)))

    task_finished.connect(receive, weak=False)
    yield seen
    task_finished.disconnect(receive)


def tree() -> Tree:
    there = Tree(gather_there.bind(), children=[give.bind(2), give_there.bind(3)])
    return Tree(gather.bind(), children=[give.bind(1), there])


class TestImmediate:
    def test_a_tree_runs_from_its_leaves_to_its_root(self) -> None:
        with immediate() as jobs:
            result = enqueue_flow(tree())
            assert result.return_value == {"results": [1, [2, 3]], "failed": [], "attempt": 1}
        assert [job.name.rpartition(".")[2] for job in jobs] == ["gather", "give", "gather_there", "give", "give_there"]

    def test_an_asynchronous_caller_enqueues_one(self) -> None:
        with immediate():
            result = asyncio.run(aenqueue_flow(Tree(gather.bind(), children=[give.bind(1)])))
            assert result.return_value["results"] == [1]

    @pytest.mark.parametrize(("task", "value"), [(spread, 10), (spread_async, 10), (spread_nothing, 2)])
    def test_a_running_job_adds_children_and_runs_again(self, task: Any, value: int) -> None:
        with immediate():
            result = task.enqueue(*([] if task is spread_nothing else [5]))
            assert (result.return_value, result.errors) == (value, [])

    @pytest.mark.parametrize("rule", ["fail_parent", "retry_parent", "continue", "ignore"])
    def test_a_child_fails(self, rule: Any, finished: list[tuple[str, str]]) -> None:
        with immediate():
            children: list[Tree | BoundTask] = [Tree(refuse.bind("no"), on_failure=rule), give.bind(1)]
            result = enqueue_flow(Tree(gather.using(max_attempts=2).bind(), children=children))
            result.refresh()
        if rule == "fail_parent":
            assert (result.state, result.reason) == ("dead", "child_failed")
            assert [error.exception_class_path for error in result.errors] == ["queueapp.errors.ChildFailed"]
            assert [status for job_id, status in finished if job_id == result.id] == ["FAILED"]
            return
        failed = [] if rule == "ignore" else [["dead", 1]]
        assert result.return_value == {"results": [1], "failed": failed, "attempt": 2 if rule == "retry_parent" else 1}

    def test_a_body_enqueues_a_tree_and_waits_for_it(self) -> None:
        with immediate():
            assert enqueue_flow(tree()).wait(timeout=1) is not None

    def test_what_a_child_raised_is_raised_at_the_end(self) -> None:
        with pytest.raises(ValueError, match="no"), immediate(raise_on_failure=True):
            enqueue_flow(Tree(gather.bind(), children=[refuse.bind("no")]))


class TestRecorded:
    def test_a_tree_is_recorded_and_drained(self) -> None:
        with recorded() as jobs:
            result = enqueue_flow(tree())
            assert (len(jobs), result.state) == (5, "waiting")
            assert_enqueued(gather_there, queue_name="other")
            assert drain().succeeded == 5
            result.refresh()
            assert result.return_value["results"] == [1, [2, 3]]

    def test_an_idempotency_key_stands_for_the_whole(self) -> None:
        with recorded() as jobs:
            first, second = (
                enqueue_flow(Tree(gather.using(idempotency_key="k").bind(), children=[give.bind(1)])) for _ in range(2)
            )
            assert (second.id, second.outcome, len(jobs)) == (first.id, "exists", 2)

    def test_children_are_added_to_one_that_waits(self) -> None:
        with recorded():
            result = enqueue_flow(Tree(gather.bind(), children=[give.bind(1)]))
            add_children(result, [give_there.bind(2)])
            drain()
            result.refresh()
            assert result.return_value["results"] in ([1, 2], [2, 1])
            with pytest.raises(errors.NotWaiting):
                add_children(result, [give.bind(3)])

    def test_a_cancelled_parent_cancels_its_children(self) -> None:
        with recorded():
            result = enqueue_flow(tree())
            assert result.cancel()
            assert len(drain()) == 0

    def test_whoever_waits_for_a_tree_that_does_not_run_is_told_so(self) -> None:
        with recorded(), pytest.raises(errors.WaitTimeout, match="does not run while you wait"):
            enqueue_flow(tree()).wait(timeout=1)


class TestRealStore:
    def test_drain_tells_pools_of_each_other_as_a_scheduler_does(self, finished: list[tuple[str, str]]) -> None:
        with throwaway_store():
            result = enqueue_flow(tree())
            failing = enqueue_flow(Tree(gather.bind(), children=[give_there.bind(1), refuse.bind("no")]))
            spreading = spread.enqueue(3)
            drained = drain(raise_on_failure=False)
            for each in (result, spreading, failing):
                each.refresh()
            assert result.return_value["results"] == [1, [2, 3]]
            assert (spreading.return_value, failing.reason) == (3, "child_failed")
            assert drained.failed == 1
        assert [status for job_id, status in finished if job_id == failing.id] == ["FAILED"]
