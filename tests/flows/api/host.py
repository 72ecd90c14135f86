"""A host with both APIs in its URLs, and flows of every kind that matters to them."""

from __future__ import annotations

import json
from typing import Any

from django.core import serializers
from django.urls import include, path

import queueapp
from flows import flow, map_step, models, step, wait_for
from flows.handle import get_run
from tests.flows.host import FAIL, add, double, numbers, undo
from tests.working import work

urlpatterns = [
    path("api/", include("queueapp.api.urls")),
    path("api/", include("flows.api.urls")),
    path("<slug:site>/deep/", include(("flows.api.urls", "ductor_flows"), namespace="inner")),
]


@queueapp.task(sensitive=["card.number"])
def charge(card: dict[str, Any], amount: int) -> dict[str, Any]:
    return {"token": "t-1", "amount": amount}


@queueapp.task(sensitive=True)
def sealed(code: str) -> str:
    return code


@flow(api=True)
def sum_up(number: int, more: int = 1) -> object:
    first = step(add, number, more)
    return step(add, first, 10, name="second")


@flow(api=True)
def take_upload(upload_id: int) -> object:
    return step(add, upload_id, 1)


@flow(api=True)
def hold_on(number: int) -> object:
    told = wait_for("go")
    return step(add, number, told["more"])


@flow(api=True)
def spread_out(count: int) -> object:
    listed = step(numbers, count)
    return map_step(double, listed)


@flow(api=True)
def pay_card(card: dict[str, Any], amount: int) -> object:
    return step(charge, card, amount)


@flow(api=True)
def open_vault(code: str) -> object:
    return step(sealed, code)


@flow(api=True)
def nested(number: int) -> object:
    return step(add, step(sum_up, number), 100)


@flow(api=True, on_failure="compensate")
def careful_sum(number: int) -> object:
    first = step(add, number, 1, undo=undo)
    return step(add, first, 10, name="second")


@flow
def kept_back(number: int) -> object:
    return step(add, number, 1)


@flow
def kept_inside(number: int) -> object:
    return step(add, step(sum_up, number), 1000)


STATES = ("running", "completed", "failed", "cancelled")


def run_in(state: str, tenant: str = "acme", flow: Any = sum_up) -> str:
    """A run in this state; no other can go on."""
    if state == "failed":
        FAIL.add("second")
    try:
        run = flow.using(tenant=tenant).start(5)
        if state == "cancelled":
            run.cancel("secret reason")
        if state in ("completed", "failed"):
            work(slots=2)
    finally:
        FAIL.discard("second")
    assert run.refresh().state == state
    run_id: str = run.id
    return run_id


def state_of(run_id: str) -> str:
    return get_run(run_id).state


def rows() -> str:
    """All that there is of runs, as text; no request that is refused may change it."""
    kinds = (models.Run, models.StepRun, models.ItemRun, models.Event, models.FlowCommand)
    return json.dumps([serializers.serialize("json", kind._default_manager.order_by("pk")) for kind in kinds])
