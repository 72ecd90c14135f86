"""All of a run is one trace: that in which it was started, whoever goes on with it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flows import dispatch, models, runtime, waking
from flows.steps import StepWrapper
from queueapp import telemetry
from queueapp.errors import DuctorError
from queueapp.producer.handover import Order
from tests.flows import host

pytestmark = pytest.mark.django_db
STARTED, LATER = {"traceparent": "00-of-the-start"}, {"traceparent": "00-of-somebody-else"}


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[Order]:
    """Steps that were handed over, in their order; nothing runs. What is at hand is part of the trace of the start."""
    orders: list[Order] = []

    def hand_over(given: Sequence[Order]) -> list[DuctorError | None]:
        orders.extend(order for order in given if not order.system)
        return [None for _ in given]

    for module in (dispatch, waking):
        monkeypatch.setattr(module, "hand_over", hand_over)
    monkeypatch.setattr(telemetry, "carrier", lambda: STARTED)
    host.forget()
    return orders


def end(order: Order, value: object) -> None:
    StepWrapper().around(order.facts, lambda: value)


def test_steps_items_and_sub_runs_belong_to_the_trace_of_the_start(
    handed: list[Order], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = host.outer_fan.start(2)
    monkeypatch.setattr(telemetry, "carrier", lambda: LATER)  # a wake-up, the sweep, a worker after a deploy
    end(handed[0], [1, 2])
    subs = models.Run.objects.filter(parent_run=run.id)
    assert [sub.trace for sub in subs] == [STARTED, STARTED]
    for order in handed[1:3]:
        end(order, 2)
    assert len(handed) == 5
    assert [order.trace for order in handed] == [STARTED] * 5


def test_so_do_those_that_are_handed_over_anew(handed: list[Order], monkeypatch: pytest.MonkeyPatch) -> None:
    run = host.chain.start(1)
    monkeypatch.setattr(telemetry, "carrier", lambda: LATER)
    models.FlowCommand.objects.create(
        run_id=run.id, command={"do": "Enqueue", "step": "add", "attempt": 1, "tier": "start"}, made_ms=1
    )
    runtime.relay(run.id)
    assert [order.trace for order in handed] == [STARTED, STARTED]
