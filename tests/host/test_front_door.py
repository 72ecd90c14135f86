"""Debounce, singletons and rates under `recorded()` and `immediate()`, where no server is."""

from __future__ import annotations

import pytest

from queueapp import Debounce, Singleton
from queueapp.testing import drain, immediate, recorded
from tests.host.shop import send_invoice

pytestmark = pytest.mark.compat


def test_a_debounced_task_runs_once_with_the_newest_arguments_when_it_is_drained() -> None:
    task = send_invoice.using(debounce=Debounce("k", 60))
    for mode in (recorded, immediate):
        with mode() as jobs:
            first, second = task.enqueue(1), task.enqueue(2)
            assert (first.outcome, first.state, second.outcome) == ("enqueued", "scheduled", "debounced")
            assert second.id == first.id
            assert len(jobs) == 1
            drain(include_scheduled=True)
            first.refresh()
            assert first.return_value == {"order": 2, "copies": None}


def test_a_singleton_holds_until_its_job_has_ended() -> None:
    task = send_invoice.using(singleton=Singleton("k"))
    with recorded() as jobs:
        first, second = task.enqueue(1), task.enqueue(2)
        assert (second.outcome, second.id) == ("skipped", first.id)
        drain()
        assert task.enqueue(3).outcome == "enqueued"
        assert len(jobs) == 2
    with immediate():
        assert [task.enqueue(number).outcome for number in (1, 2)] == ["completed", "completed"]


def test_replace_ends_the_job_that_waits() -> None:
    task = send_invoice.using(singleton=Singleton("k", mode="replace"))
    with recorded():
        first, second = task.enqueue(1), task.enqueue(2)
        first.refresh()
        assert (first.outcome, second.outcome) == ("replaced", "enqueued")


def test_nothing_is_throttled() -> None:
    with recorded() as jobs:
        for number in range(20):
            send_invoice.using(on_throttle="park").enqueue(number)
        assert {job.result.outcome for job in jobs} == {"enqueued"}
