"""Tasks of which one job may stand for another are no steps: a run waits for the end of its own job."""

from __future__ import annotations

from typing import Any

import pytest

from flows import flow, map_step, step
from flows.errors import FlowInvalid
from queueapp import Debounce, Singleton, task


@task(debounce=Debounce("all", period=1))
def debounced(number: int) -> None: ...


@task(singleton=Singleton("all"))
def single(number: int) -> None: ...


@task
def plain(number: int) -> None: ...


@pytest.mark.parametrize(
    ("target", "option"),
    [(debounced, "debounce"), (single, "singleton"), (plain.using(idempotency_key="k"), "idempotency_key")],
)
def test_they_are_refused_where_the_flow_is_declared(target: Any, option: str) -> None:
    def steps() -> None:
        step(target, 1)

    def maps() -> None:
        map_step(target, [1, 2])

    def undoes() -> None:
        step(plain, 1, undo=target)

    for declared in (steps, maps, undoes):
        with pytest.raises(FlowInvalid, match=f"has {option}=..., by which another job may stand"):
            flow(name=f"of_{option}_{declared.__name__}", on_failure="compensate")(declared)
