"""`run_one`: what a worker reports for each way in which a body can end."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.dispatch import Signal

from queueapp import task, tenant
from queueapp.codec import encode_arguments
from queueapp.compat import TaskResultStatus, task_finished, task_started
from queueapp.errors import InvalidOption
from queueapp.producer.backoff import Retry, fixed
from queueapp.producer.tenancy import current_tenant
from queueapp.store.records import Completed, Failed, Returned
from queueapp.worker import attempt, tidying
from queueapp.worker.context import JobContext
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.outcome import TRACEBACK_BYTES
from queueapp.worker.slots import Held, Outcome
from tests.unit.fake_store import FakeStore, leased

pytestmark = pytest.mark.django_db

contexts: list[JobContext] = []


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


@task
def whose() -> str | None:
    return current_tenant()


@task
def broken(password: str = "hunter2") -> None:
    secret_local = password  # noqa: F841  (what a traceback would show)
    raise ValueError("it broke")


@task(backoff=fixed(7), max_attempts=3)
def flaky() -> None:
    raise OSError("again, please")


@task(backoff=lambda exception, errors: None, max_attempts=3)
def hopeless() -> None:
    raise OSError("never again")


@task(backoff=lambda exception, errors: 1 / 0, max_attempts=3)
def broken_backoff() -> None:
    raise OSError("with a broken backoff")


@task(max_attempts=3)
def asks_again() -> None:
    raise Retry(delay=42)


@task
def exits() -> None:
    sys.exit(3)


@task
def recurses() -> None:
    recurses.func()


@task
def huge_message() -> None:
    raise ValueError("x" * 100_000)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@task
def mute() -> None:
    raise Mute


@task
def unwritable() -> object:
    return object()


@task
def too_large() -> str:
    return "x" * 100_000


@task
async def asynchronous(value: int) -> int:
    return value + 1


@task
async def whose_thread() -> int:
    return await sync_to_async(threading.get_ident)()


@task
async def exits_later() -> None:
    sys.exit(3)


@task(takes_context=True)
def with_context(context: JobContext, *args: int) -> list[Any]:
    contexts.append(context)
    context.set_cost(12)
    return [context.attempt, context.fence, context.tenant, context.lane, context.is_cancelled, list(args)]


def held(function: str, *args: Any, options: dict[str, Any] | None = None, **values: Any) -> Held:
    """A leased job of a task of this module."""
    store = FakeStore()
    job = leased(task=f"{__name__}.{function}", payload=encode_arguments(args, {}, options), **values)
    store.active[job.id] = job.attempts
    return Held(job, Line("default", store, "me", lease_ms=30_000))


def run(function: str, *args: Any, faults: Faults | None = None, **values: Any) -> Outcome:
    return attempt.run_one(held(function, *args, **values), faults or Faults())


def error_of(outcome: Outcome) -> dict[str, str]:
    assert isinstance(outcome, Failed)
    record: dict[str, str] = json.loads(outcome.error)
    return record


@pytest.fixture
def signals() -> Iterator[list[tuple[str, Any, bool]]]:
    """(signal, task result, whether an exception was being handled), as they come."""
    seen: list[tuple[str, Any, bool]] = []

    def note(name: str, signal: Signal) -> Any:
        def receive(sender: type, task_result: Any, **kwargs: Any) -> None:
            seen.append((name, task_result, sys.exc_info()[0] is not None))

        signal.connect(receive, weak=False)
        return lambda: signal.disconnect(receive)

    undo = [note("started", task_started), note("finished", task_finished)]
    yield seen
    for disconnect in undo:
        disconnect()


def test_a_body_that_returns_is_completed() -> None:
    outcome = run("echo", 1, "two", None)
    assert isinstance(outcome, Completed)
    assert json.loads(outcome.result or b"") == [[1, "two", None], {}]
    assert outcome.attempts == 1


def test_none_is_no_result() -> None:
    outcome = attempt.run_one(Held(leased(task=f"{__name__}.whose"), held("whose").line), Faults())
    assert isinstance(outcome, Completed)


def test_the_tenant_is_the_current_one_during_the_body_and_not_after() -> None:
    outcome = run("whose", tenant="shop-7")
    assert isinstance(outcome, Completed)
    assert outcome.result == b'"shop-7"'
    assert current_tenant() is None
    with tenant("outer"):
        run("whose")
        assert current_tenant() == "outer"


def test_a_body_that_raises_has_failed_for_good_without_a_budget() -> None:
    outcome = run("broken")
    error = error_of(outcome)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms is None
    assert error["class"] == "builtins.ValueError"
    assert error["message"] == "it broke"
    assert "in broken" in error["traceback"]


def test_tracebacks_hold_no_locals() -> None:
    assert "s3cr3t" not in error_of(run("broken", "s3cr3t"))["traceback"]


@pytest.mark.parametrize(("errors", "again"), [(0, True), (1, True), (2, False)])
def test_a_budget_is_spent_error_by_error(errors: int, again: bool) -> None:
    outcome = run("flaky", errors=errors, max_attempts=3)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms == (7000 if again else None)


def test_a_backoff_that_asks_for_no_other_attempt() -> None:
    outcome = run("hopeless", max_attempts=3)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms is None


def test_a_broken_backoff_costs_no_attempt() -> None:
    outcome = run("broken_backoff", max_attempts=3)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms == 5000


def test_retry_says_when() -> None:
    outcome = run("asks_again", max_attempts=3)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms == 42_000


def test_a_backoff_given_by_using_travels_with_the_job() -> None:
    outcome = run("flaky", options={"backoff": {"delay": 2.5}}, max_attempts=3)
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms == 2500


def test_system_exit_is_a_failure() -> None:
    assert error_of(run("exits"))["class"] == "builtins.SystemExit"


def test_endless_recursion_and_huge_messages_are_bounded() -> None:
    for function in ("recurses", "huge_message"):
        outcome = run(function)
        error = error_of(outcome)
        assert len(error["traceback"].encode()) <= TRACEBACK_BYTES
        assert isinstance(outcome, Failed)
        assert len(outcome.error) < 40_000


def test_an_exception_without_words() -> None:
    assert error_of(run("mute"))["class"].endswith(".Mute")


def test_a_result_that_cannot_be_written_or_is_too_large_is_a_failure() -> None:
    assert error_of(run("unwritable"))["class"] == "queueapp.errors.UnserialisableArgument"
    assert error_of(run("too_large"))["class"] == "queueapp.errors.ResultTooLarge"


def test_arguments_that_do_not_fit_are_a_failure() -> None:
    assert error_of(run("broken", 1, 2, 3))["class"] == "builtins.TypeError"


def test_a_payload_that_cannot_be_read_is_a_failure() -> None:
    job = leased(task=f"{__name__}.echo", payload=b"\xff{")
    outcome = attempt.run_one(Held(job, held("echo").line), Faults())
    assert isinstance(outcome, Failed)


def test_async_def() -> None:
    outcome = run("asynchronous", 41)
    assert isinstance(outcome, Completed)
    assert outcome.result == b"42"


def test_what_a_coroutine_does_on_the_database_comes_back_to_the_slots_thread() -> None:
    """Whose connections are looked after; a thread that all slots share would keep a broken one for good."""
    outcome = run("whose_thread")
    assert isinstance(outcome, Completed)
    assert json.loads(outcome.result or b"") == threading.get_ident()


def test_a_coroutine_that_exits_has_failed() -> None:
    outcome = run("exits_later")
    assert isinstance(outcome, Failed)
    assert json.loads(outcome.error)["class"] == "builtins.SystemExit"


def test_context() -> None:
    outcome = run("with_context", 5, attempts=4, errors=1, crashes=1, lane="slow")
    assert isinstance(outcome, Completed)
    assert json.loads(outcome.result or b"") == [3, 4, "acme", "slow", False, [5]]
    assert outcome.cost == 12


def test_context_tells_a_lost_lease_and_saves_nothing_then() -> None:
    job = held("with_context")
    attempt.run_one(job, Faults())
    context = contexts[-1]
    assert context.set_progress(1, 10, "on the way")
    assert context.save_metadata({"rows": 3})
    job.lost = True
    assert context.is_cancelled
    job.line.store.active.clear()  # type: ignore[attr-defined]  # the narrower type is known here alone
    assert not context.set_progress(2, 10)
    job.line.store.away = True  # type: ignore[attr-defined]  # the narrower type is known here alone
    assert not context.save_metadata({}), "a store that is away fails no body"
    with pytest.raises(InvalidOption):
        context.set_cost(0)


def test_an_unknown_task_goes_back_unrun_each_time_for_longer() -> None:
    delays = []
    for attempts in (1, 2, 3, 20):
        outcome = run("nowhere", attempts=attempts)
        assert isinstance(outcome, Returned)
        assert outcome.unknown_task
        assert outcome.grace_ms == 15 * 60_000
        delays.append(outcome.delay_ms)
    assert delays == sorted(delays)
    assert 750 <= delays[0] <= 1000
    assert delays[-1] <= 60_000


def test_an_importable_function_that_is_no_task_is_not_run() -> None:
    job = leased(task="os.getcwd")
    assert isinstance(attempt.run_one(Held(job, held("echo").line), Faults()), Returned)


def test_signals_of_success(signals: list[tuple[str, Any, bool]]) -> None:
    run("echo", 1)
    assert [(name, handled) for name, _, handled in signals] == [("started", False), ("finished", False)]
    result = signals[-1][1]
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == [[1], {}]
    assert result.attempts == 1


def test_signals_of_failure_are_sent_while_it_is_handled(signals: list[tuple[str, Any, bool]]) -> None:
    run("broken")
    assert [(name, handled) for name, _, handled in signals] == [("started", False), ("finished", True)]
    assert signals[-1][1].status == TaskResultStatus.FAILED
    assert signals[-1][1].errors[0].exception_class is ValueError


def test_a_failure_that_is_tried_again_has_not_finished(signals: list[tuple[str, Any, bool]]) -> None:
    run("flaky", max_attempts=3)
    assert [name for name, _, _ in signals] == ["started"]
    assert signals[0][1].status == TaskResultStatus.READY


def test_a_receiver_that_raises_costs_nobody_the_job() -> None:
    def receive(**kwargs: Any) -> None:
        raise RuntimeError("a broken monitor")

    task_started.connect(receive)
    task_finished.connect(receive)
    try:
        assert isinstance(run("echo"), Completed)
    finally:
        task_started.disconnect(receive)
        task_finished.disconnect(receive)


def test_a_connection_that_cannot_be_closed_costs_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("the database is gone")

    monkeypatch.setattr(tidying, "close_old_connections", fail)
    assert isinstance(run("echo"), Completed)


def test_faults_on_order() -> None:
    assert error_of(run("echo", faults=Faults(fail_rate=1.0)))["class"].endswith(".InjectedFault")
    assert run("echo", faults=Faults(before_ack_rate=1.0)) is None
    seeded = [Faults(fail_rate=0.5, seed=7) for _ in range(2)]
    outcomes = [[type(run("echo", faults=faults)) for _ in range(20)] for faults in seeded]
    assert outcomes[0] == outcomes[1]
    assert {Completed, Failed} == set(outcomes[0])
