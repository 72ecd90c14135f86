"""`context.set_cost()` from the body to what the job shows, wherever a body runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from queueapp import backoff, task
from queueapp.errors import InvalidOption
from queueapp.inspection.facts import as_mapping
from queueapp.inspection.jobs import JobView, find_job
from queueapp.producer.results import DuctorResult
from queueapp.store.configuration import PoolConf
from queueapp.store.store import Store
from queueapp.testing import drain, immediate, recorded
from queueapp.worker.context import JobContext
from tests.working import work

seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


@task(takes_context=True, max_attempts=2, backoff=backoff.fixed(0))
def pages(context: JobContext, costs: Sequence[float], failures: int = 0) -> None:
    for cost in costs:
        context.set_cost(cost)
    if context.attempt <= failures:
        raise ValueError


@task(takes_context=True, max_attempts=2, backoff=backoff.fixed(3600))
def forgetful(context: JobContext) -> None:
    if context.attempt == 1:
        context.set_cost(120)
        raise ValueError


@task(takes_context=True)
async def pages_async(context: JobContext, costs: Sequence[float], failures: int = 0) -> None:
    for cost in costs:
        await asyncio.sleep(0)
        context.set_cost(cost)
    if failures:
        raise ValueError


@task(takes_context=True)
def refused(context: JobContext, costs: Sequence[Any]) -> None:
    for cost in costs:
        with pytest.raises(InvalidOption, match="set_cost"):
            context.set_cost(cost)
        seen.append(cost)


@task
def plain() -> None: ...


def shown(result: DuctorResult) -> JobView:
    view = find_job(result.id)
    assert view is not None
    assert as_mapping(view, payload=False)["charged"] == view.charged
    return view


@pytest.mark.parametrize("body", [pages, pages_async], ids=["sync", "async"])
@pytest.mark.parametrize(("failures", "state"), [(0, "completed"), (2, "dead")])
@pytest.mark.parametrize("unit", ["ms", "pages"])
@pytest.mark.parametrize("policy", ["tiered", "fifo"])
def test_a_worker_reports_what_the_body_set(
    store: Store, body: Any, failures: int, state: str, unit: str, policy: str
) -> None:
    """The last call counts, whether the body returns or raises, in any unit and under any policy."""
    store.configure(1, pool=PoolConf(policy=policy, cost_unit=unit))
    result = body.using(max_attempts=1).enqueue([5, 700.5, 120], failures)
    assert shown(result).charged is None, "it has not been leased"
    work()
    assert (shown(result).state, shown(result).charged) == (state, 120)


def test_each_attempt_is_charged_for_itself(store: Store) -> None:
    """What an earlier one set does not stand for the next."""
    result = forgetful.using(cost=10).enqueue()
    work()
    assert (shown(result).state, shown(result).charged) == ("scheduled", 120)
    drain(include_scheduled=True)
    assert (shown(result).state, shown(result).charged) == ("completed", 10)


@pytest.mark.parametrize("cost", [None, 30])
def test_in_drain_and_in_memory(cost: float | None, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queueapp.worker.attempt.monotonic", lambda: 7.0)  # bodies take no time
    options: Any = {} if cost is None else {"cost": cost}
    for way in (_drained, _recorded, _immediate):
        with_set, without = way(pages.using(**options), plain.using(**options))
        assert with_set == 120
        assert without == (cost or 1), "a run time below one unit counts as one"


def _drained(setting: Any, quiet: Any) -> tuple[float | None, float | None]:
    results = setting.enqueue([7, 120]), quiet.enqueue()
    drain()
    return shown(results[0]).charged, shown(results[1]).charged


def _recorded(setting: Any, quiet: Any) -> tuple[float | None, float | None]:
    with recorded():
        results = setting.enqueue([7, 120]), quiet.enqueue()
        assert shown(results[0]).charged is None
        drain()
        return shown(results[0]).charged, shown(results[1]).charged


def _immediate(setting: Any, quiet: Any) -> tuple[float | None, float | None]:
    with immediate():
        results = setting.enqueue([7, 120]), quiet.enqueue()
        return shown(results[0]).charged, shown(results[1]).charged


@pytest.mark.parametrize(("failures", "state"), [(1, "completed"), (2, "dead")])
def test_a_body_that_fails_in_memory_shows_what_it_set(failures: int, state: str) -> None:
    with immediate():
        result = pages.enqueue([120], failures)
        assert (shown(result).state, shown(result).charged) == (state, 120)


def test_what_is_no_cost_is_refused_by_name(store: Store) -> None:
    wrong = [0, 0.5, -3, "7", True, 1e10, None]
    result = refused.enqueue(wrong)
    work()
    assert seen == wrong
    assert shown(result).state == "completed"
