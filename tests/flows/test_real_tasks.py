"""Flows over the queue's own tasks: what an option may be is the queue's rule, said with the step's path."""

from __future__ import annotations

from typing import Any

import pytest

from flows import declaring, flow, map_step, step
from flows.errors import FlowInvalid
from queueapp import task


@task
def read(number: int) -> int:
    return number


@task(takes_context=True)
def told(context: Any, number: int) -> int:
    return number


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declaring, "registry", {})


def test_options_are_kept_as_the_queue_reads_them() -> None:
    @flow(priority=7)
    def real(number: int) -> object:
        first = step(read, number, tenant=3, retries=0, timeout=1.5, cost=2, pool="default")
        return map_step(told, [1, 2], after=first, name="many")

    first, many = real.definition.steps
    assert first.target == f"{__name__}.read"
    assert (first.tenant, first.retries, first.timeout_ms, first.cost, first.priority) == ("3", 0, 1500, 2, 7)
    assert (first.pool, many.pool, many.priority) == ("default", None, 7)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pool": "nowhere!"}, "flow faulty, step read: queue_name 'nowhere!'"),
        ({"priority": 500}, "flow faulty, step read: .*priority"),
        ({"cost": 0}, "flow faulty, step read: cost is 0: it must be a number from 1"),
        ({"timeout": -1}, "flow faulty, step read: timeout is -1"),
        ({"tenant": "a b"}, "flow faulty, step read: .*'a b'"),
    ],
)
def test_what_the_queue_refuses_is_refused_at_import(options: dict[str, Any], said: str) -> None:
    with pytest.raises(FlowInvalid, match=said):
        flow(name="faulty")(lambda: step(read, 1, **options))


def test_the_context_is_no_argument() -> None:
    with pytest.raises(FlowInvalid, match=r"step told: task told takes \(number: .*missing"):
        flow(name="faulty")(lambda: step(told))
