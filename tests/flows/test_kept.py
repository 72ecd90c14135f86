"""What a process has written of a run goes with the body that begins in it at once, and spares both the reading.

It is believed under the run's lock alone, and not of what changes without the lock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from flows import RunHandle, dispatch, flow, get_run, map_step, models, reports, runtime, step, steps, wait_for, waking
from flows.reports import End
from flows.rows import KEPT_BYTES, OUTPUT_BYTES, News, Seen
from flows.steps import StepWrapper
from queueapp.errors import DuctorError
from queueapp.producer.handover import Order
from tests.flows import host, lossy_queue
from tests.flows.lossy_queue import Queue

pytestmark = pytest.mark.django_db
wrapper = StepWrapper()


@pytest.fixture(autouse=True)
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """Steps that were handed over, in their order; nothing runs."""
    orders: list[Order] = []

    def hand_over(given: Sequence[Order]) -> list[DuctorError | None]:
        orders.extend(order for order in given if not order.system)
        return [None for _ in given]

    for module in (dispatch, waking):
        monkeypatch.setattr(module, "hand_over", hand_over)
    monkeypatch.setattr(steps, "NEWS_S", math.inf)
    host.forget()
    return orders


@flow
def works_then_waits(number: int) -> object:
    first = step(host.same, number)
    return step(host.same, wait_for("go", after=first), name="last")


@flow
def maps_beside(number: int) -> object:
    listed = step(host.numbers, number)
    return [map_step(host.double, listed), step(host.same, number, after=listed, name="beside")]


@flow
def passes_on(given: str) -> object:
    return step(host.same, step(host.same, given, name="first"), name="last")


@flow
def abreast(number: int) -> object:
    return [step(host.same, number, name="left"), step(host.same, number, name="right")]


@flow
def returns_all(number: int) -> object:
    first = step(host.same, number)
    return [first, step(host.same, number, after=first, name="last")]


def at_once(order: Order, value: Any) -> None:
    """The body begins where it was handed over."""
    wrapper.around(order.facts, lambda: value, order.local)


def later(order: Order, value: Any) -> None:
    """The body begins elsewhere."""
    wrapper.around(order.facts, lambda: value, None)


def words(queries: CaptureQueriesContext) -> list[str]:
    return [query["sql"].split()[0] for query in queries]


def test_neither_the_body_nor_what_follows_its_end_reads_the_run(handed: list[Order]) -> None:
    run = host.chain.start(1)
    with CaptureQueriesContext(connection) as queries:
        at_once(handed.pop(0), 2)
    assert "SELECT" not in words(queries), words(queries)
    assert handed[0].job.args == [2, 10]
    with CaptureQueriesContext(connection) as queries:
        later(handed[0], 12)
    assert words(queries)[:3] == ["SELECT"] * 3, "is it wanted, the run, its steps"
    assert get_run(run.id).output == 12


def test_it_is_what_would_be_read() -> None:
    """`lossy_queue.Queue._compare` looks each time."""
    queue = Queue(lambda run, step, index, attempt: ("completed", attempt), seed=3)
    with lossy_queue.around(queue):
        for _ in range(20):
            assert queue.finish(host.outer.start(1).id).state == "completed"
    assert queue.kept > 10


def test_what_somebody_did_meanwhile_stands(handed: list[Order]) -> None:
    run = host.chain.start(1)
    [order] = handed
    assert get_run(run.id).cancel()
    at_once(order, 2)
    assert get_run(run.id).state == "cancelled"
    row = models.StepRun.objects.get(run_id=run.id, step="add")
    assert (row.state, row.report_ending, row.output) == ("cancelled", "completed", 2)
    assert handed == [order]


def test_an_end_that_was_told_by_others_is_not_told_again(handed: list[Order]) -> None:
    """Without the lock, as one who asked the store does: the run is as it was, its step is not."""
    run = host.chain.start(1)
    [order] = handed
    lost = End(run_id=run.id, step="add", attempt=1, ending="failed", error="gone")
    reports.write(lost)
    assert not runtime.report_and_advance(replace(lost, ending="completed", output=2), order.local.seen)
    assert models.StepRun.objects.get(run_id=run.id, step="add").report_ending == "failed"
    assert models.Run.objects.get(pk=run.id).lock == order.local.seen.snapshot.run.version, "nothing else was written"


def test_an_end_that_nobody_waits_for_any_more_is_not_told(
    handed: list[Order], caplog: pytest.LogCaptureFixture
) -> None:
    run = host.chain.start(1)
    end = End(run_id=run.id, step="add", attempt=1, ending="completed", output=2)
    assert runtime.report_and_advance(end)
    assert not runtime.report_and_advance(end)
    assert not runtime.report_and_advance(replace(end, attempt=2))
    assert not runtime.report_and_advance(replace(end, step="nobody"))
    assert not caplog.records
    assert models.StepRun.objects.get(run_id=run.id, step="add").output == 2


def test_no_body_begins_after_a_cancel_of_one_that_was_handed_over_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first of a decision begins unasked."""
    ran: list[str] = []

    def hand_over(given: Sequence[Order]) -> list[DuctorError | None]:
        for order in given:
            if not order.system:
                wrapper.around(order.facts, partial(cancels, order), order.local)
        return [None for _ in given]

    def cancels(order: Order) -> None:
        ran.append(order.facts[1])
        get_run(order.facts[0]).cancel()

    monkeypatch.setattr(dispatch, "hand_over", hand_over)
    monkeypatch.setattr(dispatch, "withdraw", lambda pool, jobs, running: [False for _ in jobs])
    assert get_run(abreast.start(1).id).state == "cancelled"
    assert ran == ["left"]


def test_what_a_run_returns_is_read_before_its_transaction(handed: list[Order]) -> None:
    run = returns_all.start(1)
    at_once(handed.pop(0), "x" * OUTPUT_BYTES)
    with CaptureQueriesContext(connection) as queries:
        at_once(handed.pop(0), 2)
    asked = words(queries)
    assert asked[: asked.index("SAVEPOINT") + 2] == ["SELECT", "SAVEPOINT", "UPDATE"]
    assert get_run(run.id).output == ["x" * OUTPUT_BYTES, 2]


def test_a_run_that_shows_much_is_not_kept_while_a_body_runs(handed: list[Order]) -> None:
    small, large = host.chain.start(1), passes_on.start("x" * KEPT_BYTES)
    assert [order.local is None for order in handed] == [False, True]
    at_once(handed[0], "y" * (OUTPUT_BYTES - 10))
    assert handed[2].local.seen.shown_bytes == runtime._read(small.id).shown_bytes > OUTPUT_BYTES - 10
    later(handed[1], 1)
    assert handed[3].local is None
    assert large.refresh().state == "running"


def test_transactions_that_a_database_keeps_wholly_apart_fail_for_nobody(
    handed: list[Order], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = host.chain.start(1)
    whole = Seen.write

    def write(seen: Seen, *given: Any) -> Seen | None:
        monkeypatch.setattr(Seen, "write", whole)
        raise OperationalError("could not serialize access due to concurrent update")

    monkeypatch.setattr(Seen, "write", write)
    at_once(handed.pop(0), 2)
    assert models.Run.objects.get(pk=run.id).ends == 1
    assert not caplog.records


def test_a_database_that_fell_back_is_read(handed: list[Order]) -> None:
    """A failover may lose commits. Whoever goes on from there gives the run a lock that it never had: nobody who saw
    what was lost takes the one for the other."""
    run = host.chain.start(1)
    before = models.Run.objects.filter(pk=run.id).values().get(), models.StepRun.objects.filter(run_id=run.id).values()
    rows = [*before[1]]
    at_once(handed.pop(0), 2)
    [lost] = handed  # the step after it, which is about to be lost
    models.FlowCommand.objects.all().delete()
    models.StepRun.objects.filter(run_id=run.id).delete()
    models.StepRun.objects.bulk_create(models.StepRun(**row) for row in rows)
    models.Run.objects.filter(pk=run.id).update(**before[0])
    other = End(run_id=run.id, step="add", attempt=1, ending="completed", output=5)
    assert runtime.report_and_advance(other)
    assert handed[-1].job.args == [5, 10]
    ends = models.Run.objects.get(pk=run.id).ends
    at_once(lost, 12)  # of the second step of a run that never was: it is the same try of the same step
    assert (ends, get_run(run.id).output) == (1, 12)
    assert models.StepRun.objects.get(run_id=run.id, step="add").output == 5


def test_an_event_that_comes_meanwhile_is_not_missed(handed: list[Order]) -> None:
    run = works_then_waits.start(1)
    [order] = handed
    get_run(run.id).send_event("go", 7)
    at_once(order, 1)
    assert handed[-1].job.args == [7]


def test_items_that_end_meanwhile_are_counted(handed: list[Order]) -> None:
    run = maps_beside.start(2)
    at_once(handed.pop(0), [1, 2])
    beside, one, two = handed
    assert (beside.local, one.local, two.local) == (None, None, None)
    later(one, 2)
    later(two, 4)
    at_once(beside, 0)
    assert get_run(run.id).output == [[2, 4], 0]


def test_what_was_written_is_believed_unread_for_a_moment_only(
    handed: list[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process was frozen between the commit and the body: another one has run the step, and the run went on."""
    run = host.chain.start(1)
    [order] = handed
    later(order, 2)
    monkeypatch.setattr(steps, "NEWS_S", 0.0)
    wrapper.around(order.facts, lambda: pytest.fail("it has completed"), order.local)
    assert models.Run.objects.get(pk=run.id).ends == 1


def test_what_waits_in_line_brings_nothing_along(handed: list[Order]) -> None:
    """Who does it anew says nothing of what is there now (`Order.queued`)."""
    run = host.chain.start(1)
    [order] = handed
    assert isinstance(order.local, News)
    assert not order.queued
    models.FlowCommand.objects.create(
        run_id=run.id, command={"do": "Enqueue", "step": "add", "attempt": 1, "tier": "start"}, made_ms=1
    )
    runtime.relay(run.id)
    assert handed[-1].queued


def test_of_what_is_large_only_that_it_is_there_goes_along(handed: list[Order]) -> None:
    run = host.chain.start(1)
    at_once(handed.pop(0), "x" * OUTPUT_BYTES)
    [order] = handed
    assert order.job.args == ["x" * OUTPUT_BYTES, 10], "read when it was asked for"
    kept = order.local.seen.snapshot.steps["add"]
    read = runtime._read(run.id).snapshot.steps["add"]
    assert (kept.output, kept.report) == (read.output, read.report)
    assert kept.output != "x" * OUTPUT_BYTES


def test_a_large_end_that_came_after_a_cancel_is_taken_in_by_a_resume(handed: list[Order]) -> None:
    run: RunHandle = host.chain.start(1)
    [order] = handed
    get_run(run.id).cancel()
    at_once(order, "x" * OUTPUT_BYTES)
    get_run(run.id).resume()
    assert handed[-1].job.args == ["x" * OUTPUT_BYTES, 10]
    assert models.StepRun.objects.get(run_id=run.id, step="add").state == "completed"


def test_the_end_of_an_item_begins_by_taking_the_run(handed: list[Order]) -> None:
    """Who reads first may find, when it comes to writing, that somebody else wrote: SQLite refuses it then."""
    run = maps_beside.start(2)
    at_once(handed.pop(0), [1, 2])
    _, one, two = handed
    for order in (one, two):
        end = End(run_id=run.id, step="double", attempt=1, index=order.facts[3], ending="completed", output=2)
        with CaptureQueriesContext(connection) as queries:
            assert runtime.report_and_advance(end)
        locks = connection.features.has_select_for_update
        assert words(queries)[:2] == ["SAVEPOINT", "SELECT" if locks else "UPDATE"]
        assert not locks or "FOR UPDATE" in queries[1]["sql"]
