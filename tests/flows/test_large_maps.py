"""A map of any size costs each tick the same: so many queries, so many rows, found by an index.

`ten` and `ten thousand` items here; a million are counted in `docs/benchmarks.md`.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from flows import coordinator, models, runtime
from flows.definition import Definition
from flows.rows import Seen
from flows.snapshot import ITEMS_PER_PAGE, ITEMS_PER_TICK, Decision, Enqueue, IssueItems, ListItems, Snapshot
from tests.flows import host, lossy_queue
from tests.flows.lossy_queue import Queue

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh() -> None:
    host.forget()


def going(count: int) -> tuple[Queue, str]:
    """A run in the middle of a map over so many items, all of which are listed; those with the queue have ended."""
    queue = Queue(lambda run, step, index, attempt: ("completed", list(range(count))))
    with lossy_queue.around(queue):
        run_id = host.wide.start(count).id
        assert queue.step()
    step = models.StepRun.objects.get(run_id=run_id, step="double")
    rows = range(step.listed, count)
    models.ItemRun.objects.bulk_create(models.ItemRun(step_run=step, index=index) for index in rows)
    models.StepRun.objects.filter(pk=step.pk).update(listed=count, total=count, asked=count)
    models.ItemRun.objects.filter(step_run=step, state="issued").update(state="ended", ending="completed")
    return queue, run_id


def one_tick(queue: Queue, run_id: str) -> tuple[list[str], Seen, Decision]:
    """The queries of one tick with its commands, what it had read and what it decided."""
    made: list[tuple[Seen, Decision]] = []

    def decide(definition: Definition, snapshot: Snapshot, now_ms: int, gone: frozenset[str]) -> Decision:
        return coordinator.tick(definition, snapshot, now_ms, gone)

    with lossy_queue.around(queue), CaptureQueriesContext(connection) as queries:
        written = runtime._decide(run_id, decide)
        made.append((written.seen, written.decision))
        runtime._carry_out(written)
    return [query["sql"] for query in queries], *made[0]


def test_a_tick_costs_as_many_queries_for_ten_thousand_items_as_for_a_hundred() -> None:
    numbers = {}
    for count in (100, 10_000):
        queue, run_id = going(count)
        queries, seen, decision = one_tick(queue, run_id)
        numbers[count] = len(queries)
        assert sum(map(len, seen.snapshot.items.values())) <= ITEMS_PER_TICK
        assert not [command for command in decision.commands if isinstance(command, Enqueue)]
    assert numbers[10_000] <= numbers[100] + 12, numbers  # it counts and issues; a hundred were issued at once
    assert numbers[10_000] < 40


def test_a_page_at_a_time_is_listed_and_handed_over() -> None:
    queue = Queue(lambda run, step, index, attempt: ("completed", list(range(5_000))))
    handed: list[int] = []
    with lossy_queue.around(queue):
        whole = queue.hand_over

        def counted(orders: Any) -> Any:
            handed.append(len(orders))
            return whole(orders)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flows.dispatch.hand_over", counted)
            run_id = host.wide.start(5_000).id
            assert queue.step()
    assert max(handed) <= ITEMS_PER_PAGE
    rows = models.StepRun.objects.get(run_id=run_id, step="double")
    assert rows.issued == 1_000, "as many as may be with the queue at once"
    assert rows.listed == 2_000, "and no more rows than the next ones need"


def test_what_a_tick_asks_of_the_items_is_found_by_an_index() -> None:
    """In the words of the database itself: no query of a tick goes through all items of a map, nor sorts them."""
    queue, run_id = going(3_000)
    queries, _, _ = one_tick(queue, run_id)
    asked = [query for query in queries if "ductor_flows_itemrun" in query and query.startswith("SELECT")]
    assert asked
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL plans by the numbers of rows: a small table it reads whole")
    with connection.cursor() as cursor:
        for query in asked:
            cursor.execute(f"EXPLAIN QUERY PLAN {query}")
            plan = [row[3] for row in cursor.fetchall()]
            assert any("ductor_flows_items (step_run_id=? AND state=?" in line for line in plan), (query, plan)
            assert not any("SCAN" in line for line in plan), (query, plan)


def test_the_memory_of_a_tick_does_not_grow_with_the_map() -> None:
    peaks = {}
    for count in (2_000, 20_000):
        queue, run_id = going(count)
        models.ItemRun.objects.filter(step_run__run_id=run_id).update(state="ended", ending="completed")
        with lossy_queue.around(queue):
            tracemalloc.start()
            runtime._read(run_id)
            peaks[count] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert peaks[20_000] < 1.5 * peaks[2_000], peaks


def test_commands_say_what_to_do_and_never_for_which_items() -> None:
    queue, run_id = going(10_000)
    _, _, decision = one_tick(queue, run_id)
    assert {type(command) for command in decision.commands} <= {IssueItems, ListItems, type(decision.commands[-1])}
    assert len(decision.commands) <= 3
