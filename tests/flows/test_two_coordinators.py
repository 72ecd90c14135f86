"""Two coordinators on one run: one of them writes, the other sees it and goes on from there. On every database.

Threads here, each with turns of its own, as processes have: so nothing but the run's lock stands between them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest
from django.db import connection, connections, transaction

from flows import dispatch, get_run, models, reports, runtime, waking
from flows.errors import RunBusy
from flows.reports import End
from flows.subflows import SubFlows
from flows.values import Json
from queueapp.errors import DuctorError
from queueapp.producer.handover import Order
from tests.flows import host

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 25


class Alone:
    """The turns of a process in which nobody else is."""

    def take(self, run_id: str) -> bool:
        return True

    def again(self, run_id: str, more: bool) -> bool:
        return more

    def leave(self, run_id: str) -> None:
        pass


@pytest.fixture(autouse=True)
def handed_over(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Key of each order → how often it was handed over. Nothing runs."""
    keys: Counter[str] = Counter()
    lock = threading.Lock()

    def take(orders: Sequence[Order]) -> list[DuctorError | None]:
        with lock:
            keys.update(order.key for order in orders)
        return [None for _ in orders]

    for module in (dispatch, waking):
        monkeypatch.setattr(module, "hand_over", take)
    monkeypatch.setattr(runtime, "_turns", Alone())
    return keys


@pytest.fixture
def together() -> Iterator[Callable[..., list[BaseException | None]]]:
    """Calls all of these at the same moment, each in a thread; what each raised."""
    with ThreadPoolExecutor(16) as threads:

        def call(*acts: Callable[[], object]) -> list[BaseException | None]:
            barrier = threading.Barrier(len(acts))

            def one(act: Callable[[], object]) -> None:
                barrier.wait(30)
                try:
                    act()
                finally:
                    connections.close_all()

            return [done.exception(60) for done in [threads.submit(one, act) for act in acts]]

        yield call


def end(run_id: str, step: str, index: int = -1, output: Json = 1) -> End:
    return End(run_id=run_id, step=step, attempt=1, index=index, ending="completed", output=output)


def told(run_id: str, step: str, index: int = -1) -> Callable[[], object]:
    return lambda: runtime.report_and_advance(end(run_id, step, index))


Together = Callable[..., list[BaseException | None]]


def test_two_ends_at_once_begin_what_follows_once(handed_over: Counter[str], together: Together) -> None:
    for _ in range(ROUNDS):
        run = host.joined.start()
        assert together(told(run.id, "left"), told(run.id, "right")) == [None, None]
        assert handed_over[f"{run.id}/both@1"] == 1
        assert models.StepRun.objects.get(run_id=run.id, step="both").attempt == 1
        assert not models.FlowCommand.objects.filter(run_id=run.id).exists()


def test_an_end_that_two_tell_at_once_is_recorded_once(together: Together) -> None:
    for _ in range(ROUNDS):
        run = host.joined.start()
        heard: list[bool] = []

        def tell(run_id: str = run.id, heard: list[bool] = heard) -> None:
            heard.append(runtime.report_and_advance(end(run_id, "left")))

        assert together(tell, tell) == [None, None]
        assert sorted(heard) == [False, True]
        assert models.Run.objects.get(pk=run.id).ends == 1


def test_items_that_end_at_once_are_counted_once_each(together: Together) -> None:
    run = host.wide.start(12)
    runtime.report_and_advance(end(run.id, "numbers", output=[*range(12)]))
    assert models.ItemRun.objects.filter(state="issued").count() == 12
    twice = [told(run.id, "double", index % 12) for index in range(16)]
    assert together(*twice) == [None] * 16
    runtime.advance(run.id)
    for index in range(12):
        told(run.id, "double", index)()
    assert get_run(run.id).output == {"total": 12, "completed": 12, "failed": 0}


def test_an_items_end_is_compared_with_what_is_there_when_it_is_written(together: Together) -> None:
    """Of two who tell it the second waits for the first one's commit, and is refused then."""
    if not connection.features.has_select_for_update:
        pytest.skip("here one transaction writes at a time")
    run = host.wide.start(1)
    runtime.report_and_advance(end(run.id, "numbers", output=[7]))
    written = threading.Event()
    heard: dict[str, bool] = {}

    def first() -> None:
        with transaction.atomic():
            heard["first"] = reports.write(end(run.id, "double", 0))
            written.set()
            threading.Event().wait(0.5)  # the other one is on its way

    def second() -> None:
        assert written.wait(10)
        heard["second"] = reports.write(replace(end(run.id, "double", 0), ending="failed", error="late"))

    assert together(first, second) == [None, None]
    assert heard == {"first": True, "second": False}
    assert models.ItemRun.objects.get(step_run__run_id=run.id).ending == "completed"


def test_a_cancel_and_an_end_at_once_come_to_one_of_both(together: Together) -> None:
    for _ in range(ROUNDS):
        run = host.joined.start()
        other = get_run(run.id)
        raised = together(told(run.id, "left"), other.cancel, told(run.id, "right"))
        assert all(error is None or isinstance(error, RunBusy) for error in raised), raised
        if raised[1] is not None:
            assert get_run(run.id).cancel()
        states = set(models.StepRun.objects.filter(run_id=run.id).values_list("state", flat=True))
        assert get_run(run.id).state == "cancelled"
        assert states <= {"completed", "cancelled"}


def test_two_cancels_at_once_are_one(together: Together) -> None:
    for _ in range(ROUNDS):
        run = host.joined.start()
        done: list[bool] = []
        handles = [get_run(run.id), get_run(run.id)]
        assert together(*[lambda handle=handle, done=done: done.append(handle.cancel()) for handle in handles]) == [
            None,
            None,
        ]
        assert sorted(done) == [False, True]


def test_who_reports_takes_the_run_first_and_nobody_waits_in_a_circle(
    together: Together, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has told an end and would write the run; the other has written the run and would write that step."""
    if not connection.features.has_select_for_update:
        pytest.skip("here one transaction writes at a time")
    run = host.joined.start()
    told_, written = threading.Event(), threading.Event()

    write = reports.write

    def tell(left: End) -> bool:
        first = write(left)
        told_.set()
        written.wait(0.5)  # never, if this one was there first
        return first

    def cancel() -> None:
        assert told_.wait(10)
        get_run(run.id).cancel()
        written.set()

    monkeypatch.setattr(runtime, "_at_once", lambda *_: None)  # as when somebody wrote first
    monkeypatch.setattr(reports, "write", tell)
    raised = together(told(run.id, "left"), cancel)
    assert raised == [None, None]
    assert not caplog.records, "no tick was given up"
    assert get_run(run.id).state == "cancelled"
    assert models.StepRun.objects.get(run_id=run.id, step="left").state == "completed"


def test_a_sub_run_is_not_begun_beside_a_cancel(together: Together) -> None:
    """Either it is there, and cancelled with its parent; or it never was."""
    for _ in range(ROUNDS):
        with patch.object(SubFlows, "begin") as begin:
            run = host.outer.start(1)
        begins = partial(runtime._subflows.begin, *begin.call_args.args)
        raised = together(begins, get_run(run.id).cancel)
        assert raised == [None, None]
        assert not models.Run.objects.filter(parent_run=run.id, state="running").exists()
