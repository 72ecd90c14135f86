"""From `enqueue` to the result, on a real store: single, bulk, from tasks, waiting in threads and coroutines."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.test.utils import override_settings

from queueapp import aenqueue_many, enqueue_many, tenant
from queueapp.compat import TaskResult, TaskResultStatus, task_enqueued
from queueapp.errors import (
    IdempotencyConflict,
    InvalidOption,
    StoreMisconfigured,
    StoreUnavailable,
    UnserialisableArgument,
    WaitTimeout,
)
from queueapp.producer import sending, waiting
from queueapp.producer.results import DuctorResult
from queueapp.states import State
from queueapp.store import connection, shards
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from tests.producing import add, add_async, attempt, fail, nested, run_waiting

pytestmark = pytest.mark.compat


@pytest.fixture
def later(store: Store) -> Iterator[Callable[[float], None]]:
    """Runs what waits, `delay` seconds from now, in another thread."""
    threads: list[threading.Thread] = []

    def work(delay_s: float) -> None:
        time.sleep(delay_s)
        run_waiting(store)

    def start(delay_s: float) -> None:
        threads.append(threading.Thread(target=work, args=(delay_s,)))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def listening() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ductor-waiter"]


@pytest.fixture(autouse=True)
def _nobody_listens_between_tests() -> Iterator[None]:
    settle()
    yield
    settle()


def settle() -> None:
    """Until no thread of this process waits for results."""
    deadline = time.monotonic() + 5
    while listening() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert listening() == []


class TestOneJob:
    def test_from_enqueue_to_the_result(self, store: Store) -> None:
        result = add.using(tenant="acme").enqueue(1, b=2)
        assert run_waiting(store) == 1

        result.refresh()
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
        assert (result.state, result.outcome) == ("ended", "completed")
        assert result.attempts == 1
        assert result.started_at is not None
        assert result.finished_at is not None
        assert result.enqueued_at is not None
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert (result.args, result.kwargs) == ([1], {"b": 2})

    def test_an_asynchronous_task_and_a_bare_result(self, store: Store) -> None:
        one, two = add_async.enqueue(1, 2), attempt
        assert run_waiting(store) == 1
        assert one.wait(1).return_value == 3
        assert two.takes_context

    def test_a_failure_says_which(self, store: Store) -> None:
        result = fail.enqueue("no such luck")
        run_waiting(store)

        result.refresh()
        assert (result.status, result.state, result.reason) == (TaskResultStatus.FAILED, "dead", "error")
        [error] = result.errors
        assert error.exception_class is ValueError
        assert "no such luck" in error.traceback
        with pytest.raises(ValueError, match="failed"):
            _ = result.return_value

    def test_a_cancelled_job(self, store: Store) -> None:
        result = add.enqueue(1)
        store.cancel([result.id[-22:]])

        result.refresh()
        assert (result.status, result.outcome) == (TaskResultStatus.FAILED, "cancelled")
        assert [error.exception_class.__name__ for error in result.errors] == ["JobCancelled"]

    def test_jobs_stay_with_the_current_tenant_also_when_nested(self, store: Store) -> None:
        with tenant("acme"):
            result = nested.enqueue()
            own = add.using(tenant="other").enqueue(1)
        run_waiting(store)
        result.refresh()

        reads = shards.reads("default")
        ids = [result.id, own.id, result.return_value]
        assert [record.tenant for record in reads.jobs([job_id[-22:] for job_id in ids]) if record] == [
            "acme",
            "other",
            "acme",
        ]


@pytest.mark.django_db
class TestMany:
    def test_one_outcome_each_in_order_and_none_raises(self, store: Store) -> None:
        keyed = add.using(idempotency_key="k")
        first = keyed.enqueue(1)
        outcomes = enqueue_many(
            [
                add.using(tenant="a").bind(1, b=2),
                add.bind({1}),
                keyed.bind(1),
                keyed.bind(2),
                "no task",  # type: ignore[list-item]  # wrong on purpose
                add.using(queue_name="second").bind(5),
                add.bind(6),
            ]
        )
        words = [outcome.word for outcome in outcomes]
        errors = [type(outcome.error) for outcome in outcomes]

        assert words == [
            "enqueued",
            "unserialisable",
            "exists",
            "conflict",
            "invalid_option",
            "unknown_pool",
            "enqueued",
        ]
        assert errors[1] is UnserialisableArgument
        assert errors[3] is IdempotencyConflict
        assert issubclass(errors[4], InvalidOption)
        assert outcomes[2].id == first.id
        assert [outcome.ok for outcome in outcomes] == [True, False, True, False, False, False, True]
        assert store.verify() == []
        assert run_waiting(store) == 3

    def test_several_pools_in_one_call(self, store: Store, settings: Any) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": {"second": {}}}):
            outcomes = enqueue_many([add.using(queue_name=pool).bind(1) for pool in ("default", "second", "default")])
            pools = [shards.locate(outcome.id or "") for outcome in outcomes]

        assert [pool[0] for pool in pools if pool] == ["default", "second", "default"]

    def test_a_thousand(self, store: Store) -> None:
        seen: list[str] = []

        def receive(task_result: Any, **_: Any) -> None:
            seen.append(task_result.id)

        task_enqueued.connect(receive)
        try:
            outcomes = enqueue_many(add.bind(number) for number in range(1_000))
        finally:
            task_enqueued.disconnect(receive)

        assert {outcome.word for outcome in outcomes} == {"enqueued"}
        assert seen == [outcome.id for outcome in outcomes]
        assert shards.reads("default").overview().waiting == 1_000

    def test_asynchronously(self, store: Store) -> None:
        keyed = add.using(idempotency_key="k")
        outcomes = asyncio.run(aenqueue_many([add.bind(1), add.bind(set()), keyed.bind(1), keyed.bind(1)]))

        assert [outcome.word for outcome in outcomes] == ["enqueued", "unserialisable", "enqueued", "exists"]
        assert outcomes[2].id == outcomes[3].id
        assert run_waiting(store) == 2

    def test_an_empty_call(self) -> None:
        assert enqueue_many([]) == []
        assert asyncio.run(aenqueue_many([])) == []

    def test_a_store_that_is_away_stands_in_each_outcome(self, settings: Any) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": "redis://localhost:1/0"}):
            outcomes = enqueue_many([add.bind(1), add.bind(2)])
            late = asyncio.run(aenqueue_many([add.bind(1)]))

        assert [type(outcome.error) for outcome in [*outcomes, *late]] == [StoreUnavailable] * 3
        assert {outcome.word for outcome in outcomes} == {"store_unavailable"}

    def test_a_call_that_was_done_in_part_tells_what_was_accepted(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Store.enqueue

        def full_after_250(self: Store, jobs: list[NewJob]) -> Any:
            accepted = real(self, jobs[:250]) if len(jobs) > 250 or jobs[0].payload == b'{"a":[0]}' else []
            if len(accepted) < len(jobs):
                raise StoreMisconfigured("The store is full.")
            return accepted

        monkeypatch.setattr(Store, "enqueue", full_after_250)
        outcomes = enqueue_many([add.bind(number) for number in range(600)])

        assert [outcome.ok for outcome in outcomes] == [True] * 250 + [False] * 350
        assert shards.reads("default").overview().waiting == 250

    def test_tasks_of_other_backends_go_through_their_own_enqueue(self) -> None:
        dummy = TaskResult.__module__.rpartition(".")[0] + ".backends.dummy.DummyBackend"
        with override_settings(TASKS={"default": {"BACKEND": dummy}}):
            [outcome] = enqueue_many([add.bind(1)])

        assert outcome.ok
        assert not isinstance(outcome.result, DuctorResult)


class TestWaiting:
    def test_it_returns_when_the_job_has_ended(self, later: Callable[[float], None]) -> None:
        result = add.enqueue(1, 2)
        later(0.1)

        started = time.monotonic()
        assert result.wait(timeout=20).return_value == 3
        assert time.monotonic() - started < waiting.RECHECK_S - 1

    def test_it_returns_at_once_when_it_ended_before(self, store: Store) -> None:
        result = add.enqueue(1)
        run_waiting(store)

        assert result.wait(timeout=0).return_value == 1
        assert result.wait(timeout=0) is result
        assert listening() == []

    def test_a_dead_letter_has_ended_for_a_waiter(self, later: Callable[[float], None]) -> None:
        result = fail.enqueue("x")
        later(0.1)

        assert result.wait(timeout=timedelta(seconds=20)).state == State.DEAD

    def test_it_gives_up_after_the_timeout(self, store: Store) -> None:
        result = add.enqueue(1)
        started = time.monotonic()
        with pytest.raises(WaitTimeout, match=r"has not ended within 0\.2 s"):
            result.wait(timeout=0.2)
        assert 0.15 < time.monotonic() - started < 2
        with pytest.raises(TimeoutError):
            asyncio.run(result.await_(timeout=0.1))

    @pytest.mark.parametrize("wrong", [-1, "5", float("nan"), True])
    def test_a_wrong_timeout_is_refused(self, wrong: Any, store: Store) -> None:
        with pytest.raises(InvalidOption, match="timeout is"):
            add.enqueue(1).wait(timeout=wrong)

    def test_many_threads_wait_on_one_connection(
        self, store: Store, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[redis.Redis] = []
        real = connection.blocking

        def blocking() -> redis.Redis:
            opened.append(real())
            return opened[-1]

        monkeypatch.setattr(connection, "blocking", blocking)
        results = [add.enqueue(number) for number in range(20)]
        values: list[int] = []
        threads = [
            threading.Thread(target=lambda result=result: values.append(result.wait(20).return_value))
            for result in results
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        later(0)
        for thread in threads:
            thread.join()

        assert sorted(values) == list(range(20))
        assert len(opened) == 1

    def test_several_callers_wait_for_one_job(self, later: Callable[[float], None]) -> None:
        result = add.enqueue(1)
        again = [add.get_result(result.id) for _ in range(3)]
        later(0.2)

        async def all_of_them() -> list[DuctorResult]:
            return await asyncio.gather(*(handle.await_(20) for handle in again))

        assert [handle.return_value for handle in asyncio.run(all_of_them())] == [1, 1, 1]

    def test_a_coroutine_does_not_hold_its_loop(self, later: Callable[[float], None]) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        async def main() -> Any:
            ticking = asyncio.create_task(tick())
            result = await add.aenqueue(1, 2)
            later(0.3)
            value = (await result.await_(timeout=20)).return_value
            ticking.cancel()
            return value

        assert asyncio.run(main()) == 3
        assert ticks > 5

    def test_a_second_pool_is_listened_to_at_once(self, settings: Any, store: Store) -> None:
        with override_settings(DUCTOR={**settings.DUCTOR, "POOLS": {"second": {}}}):
            first, second = add.enqueue(1), add.using(queue_name="second").enqueue(2)
            values: list[tuple[int, float]] = []

            def wait(result: DuctorResult) -> None:
                value = result.wait(20).return_value
                values.append((value, time.monotonic()))

            threads = [threading.Thread(target=wait, args=(result,)) for result in (first, second)]
            threads[0].start()
            time.sleep(0.2)  # it blocks on the first pool alone by now
            threads[1].start()
            time.sleep(0.2)
            ended = time.monotonic()
            run_waiting(shards.store("second"))
            threads[1].join()
            run_waiting(store)
            threads[0].join()

        assert [value for value, _ in values] == [2, 1]
        assert values[0][1] - ended < waiting.BLOCK_S / 2

    def test_a_lost_token_costs_one_recheck(
        self, later: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(waiting, "RECHECK_S", 0.3)
        monkeypatch.setattr(waiting.Waiter, "_wake", lambda *_: None)
        result = add.enqueue(1)
        later(0.1)

        assert result.wait(timeout=10).return_value == 1

    def test_a_store_that_is_away_at_the_beginning_is_said(self, store: Store, settings: Any) -> None:
        result = add.enqueue(1)
        with (
            override_settings(DUCTOR={**settings.DUCTOR, "REDIS_URL": "redis://localhost:1/0"}),
            pytest.raises(StoreUnavailable),
        ):
            result.wait(timeout=5)


def test_slices_are_no_larger_than_one_script_takes() -> None:
    from queueapp.store.calls import MAX_JOBS_PER_CALL

    assert sending.SLICE_JOBS <= MAX_JOBS_PER_CALL
