"""Bodies of jobs that a package handed over: what surrounds them, and what it is told of their end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import override_settings

from queueapp import extensions, task
from queueapp.codec import encode_arguments
from queueapp.compat import task_finished
from queueapp.errors import UnknownWrapper, WaitsForChildren
from queueapp.names import SYSTEM_TENANT
from queueapp.producer.tenancy import current_tenant
from queueapp.store.records import Completed, Failed, Returned
from queueapp.worker import attempt
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.slots import Held, Outcome, Overdue
from tests.unit.fake_store import FakeStore, leased

pytestmark = pytest.mark.django_db

SAID: list[str] = []
ENTERED: list[str] = []


class Spy:
    """Says what happens. Facts: `skip` = the body is not called; `deaf` = it raises when told of the end."""

    def around(self, facts: Any, body: Callable[[], Any], local: Any) -> Any:
        SAID.append(f"around for {current_tenant()}")
        if facts == "skip":
            return "skipped"
        value = body()
        SAID.append("body returned")
        return value

    async def aaround(self, facts: Any, body: Callable[[], Any], local: Any) -> Any:
        SAID.append(f"aaround for {current_tenant()}")
        value = await body()
        SAID.append("body returned")
        return value

    def ended(self, facts: Any, ending: extensions.Ending, error: str) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        SAID.append(f"{ending}: {error.strip().splitlines()[-1] if error else ''}")
        if facts == "deaf":
            raise OSError("nobody at home")
        if facts == "slow":
            hears()


@pytest.fixture(autouse=True)
def _spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_wrappers", {"spy": Spy()})
    SAID.clear()
    ENTERED.clear()


TELLING, HEARD = threading.Event(), threading.Event()


def hears(**_: object) -> None:
    """Takes its time."""
    TELLING.set()
    assert HEARD.wait(10)


@task
def works(given: int = 1) -> int:
    SAID.append("body")
    return given


@task
async def aworks(given: int = 1) -> int:
    SAID.append("body")
    return given


@task
def breaks() -> None:
    raise ValueError("it broke")


@task
async def abreaks() -> None:
    raise ValueError("it broke")


@task
def waits() -> None:
    raise WaitsForChildren


@task
async def awaits() -> None:
    raise WaitsForChildren


@task
def too_large() -> str:
    return "x" * 100_000


def held(function: str, facts: Any = None, *, wrapper: str = "spy", **values: Any) -> Held:
    payload = encode_arguments((), {}, {extensions.OPTION: [wrapper, facts]})
    job = leased(task=f"{__name__}.{function}", payload=payload, **values)
    return Held(job, Line("default", FakeStore(), "me", lease_ms=30_000))


def run(one: Held, *, looped: bool = False) -> Outcome:
    if looped:
        return asyncio.run(attempt.arun_one(one, Faults()))
    return attempt.run_one(one, Faults())


WAYS = [("works", False), ("aworks", False), ("aworks", True)]
"""A function, a coroutine in its own loop in a slot's thread, and one among others on the worker's loop."""
BROKEN = [("breaks", False), ("abreaks", False), ("abreaks", True)]


@pytest.mark.parametrize(("function", "looped"), WAYS)
def test_it_surrounds_the_body_within_the_tenant_and_is_told_of_no_good_end(function: str, looped: bool) -> None:
    outcome = run(held(function, tenant="shop-7"), looped=looped)
    assert isinstance(outcome, Completed)
    assert outcome.result == b"1"
    surrounding, *rest = SAID
    assert surrounding == ("around" if function == "works" else "aaround") + " for shop-7"
    assert rest == ["body", "body returned"]


def test_it_may_leave_the_body_out() -> None:
    outcome = run(held("works", "skip"))
    assert isinstance(outcome, Completed)
    assert (outcome.result, SAID) == (b'"skipped"', ["around for acme"])


@pytest.mark.parametrize(("function", "looped"), BROKEN)
def test_a_failure_for_good_is_told_with_its_text(function: str, looped: bool) -> None:
    assert isinstance(run(held(function), looped=looped), Failed)
    assert SAID[1:] == ["failed: ValueError: it broke"]


@pytest.mark.parametrize(("function", "looped"), BROKEN)
def test_one_that_is_tried_again_is_not_told(function: str, looped: bool) -> None:
    outcome = run(held(function, max_attempts=2), looped=looped)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms is not None
    assert len(SAID) == 1


@pytest.mark.parametrize(("function", "looped"), [*WAYS, *BROKEN])
def test_a_job_that_was_cancelled_meanwhile_was_cancelled_however_its_body_ended(function: str, looped: bool) -> None:
    one = held(function, max_attempts=2)
    one.cancelled = True
    run(one, looped=looped)
    assert SAID[-1] == "cancelled: "


@pytest.mark.parametrize(("function", "looped"), [*WAYS, *BROKEN])
def test_of_a_job_that_runs_elsewhere_by_now_nothing_is_told(function: str, looped: bool) -> None:
    one = held(function)
    one.lost = True
    run(one, looped=looped)
    assert not [said for said in SAID if said.startswith(("failed", "cancelled"))]


@pytest.mark.parametrize("function", ["aworks", "abreaks"])
@pytest.mark.parametrize("slow", ["a receiver", "the package"])
def test_a_cancel_that_comes_while_the_end_is_told_changes_nothing(function: str, slow: str) -> None:
    """On the loop, where a cancel is an exception that may be raised anywhere."""
    TELLING.clear()
    HEARD.clear()
    one = held(function, "slow" if slow == "the package" else None)
    one.cancelled = slow == "the package"  # else it is told of no good end; the exception comes at the first wait

    async def scene() -> Outcome:
        running = asyncio.ensure_future(attempt.arun_one(one, Faults()))
        assert await asyncio.to_thread(TELLING.wait, 10)
        for _ in range(2):  # the second one is that of a worker that ends
            running.cancel()
            await asyncio.sleep(0)
        HEARD.set()
        return await running

    if slow == "a receiver":
        task_finished.connect(hears)
    try:
        outcome = asyncio.run(scene())
    finally:
        task_finished.disconnect(hears)
    assert isinstance(outcome, Completed if function == "aworks" else Failed)
    if isinstance(outcome, Failed):
        assert b"ValueError" in outcome.error


@pytest.mark.parametrize(("function", "looped"), [("waits", False), ("awaits", False), ("awaits", True)])
def test_a_body_that_waits_for_its_children_has_not_ended(function: str, looped: bool) -> None:
    assert run(held(function), looped=looped) is None
    assert len(SAID) == 1


def test_what_comes_of_a_good_body_may_still_fail_the_job() -> None:
    assert isinstance(run(held("too_large")), Failed)
    assert SAID[-1].startswith("failed: queueapp.errors.ResultTooLarge")


def test_one_that_passed_its_time_limit_has_failed() -> None:
    one = held("works")
    one.overdue = Overdue(3.0, "asleep\n")
    assert isinstance(attempt.run_overdue(one), Failed)
    [said] = SAID
    assert said.startswith("failed: queueapp.errors.TimeLimitExceeded")


@pytest.mark.parametrize(("function", "looped"), BROKEN)
def test_a_package_that_cannot_be_told_costs_nobody_the_outcome(
    function: str, looped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = run(held(function, "deaf"), looped=looped)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms is None
    assert "could not be told to the package" in caplog.text


@pytest.mark.parametrize(("function", "looped"), [*WAYS, *BROKEN])
def test_a_job_of_a_package_that_is_not_installed_here_goes_back_unrun(
    function: str, looped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker may have it: to fail would spend the budget of a job that is in order."""
    caplog.set_level(logging.DEBUG, logger="queueapp")
    outcome = run(held(function, wrapper="elsewhere"), looped=looped)
    assert isinstance(outcome, Returned)
    assert (outcome.unknown_task, outcome.delay_ms > 0, SAID) == (True, True, [])
    assert "'elsewhere', of which this process knows nothing: add it to INSTALLED_APPS" in caplog.text


def test_a_wrapper_is_known_by_its_name() -> None:
    other = Spy()
    extensions.wrap("spy", other)
    assert extensions.wrapper_of("spy") is other
    with pytest.raises(UnknownWrapper, match="nobody"):
        extensions.wrapper_of("nobody")


@contextmanager
def schema(name: str) -> Iterator[None]:
    ENTERED.append(name)
    yield


def test_the_hosts_context_is_entered_around_what_is_a_tenants_and_around_nothing_else() -> None:
    """The host has no schema for wake-ups."""
    with override_settings(DUCTOR={"TENANT_CONTEXT": schema}):
        run(held("works", tenant="shop-7"))
        run(held("works", tenant=SYSTEM_TENANT))
    assert ENTERED == ["shop-7"]
    assert [said for said in SAID if said.startswith("around")] == ["around for shop-7", f"around for {SYSTEM_TENANT}"]
