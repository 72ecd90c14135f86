"""A worker whose jobs are told to stop: how it hears of it, what its bodies see, what it reports."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.dispatch import Signal

from queueapp import task
from queueapp.codec import encode_arguments
from queueapp.compat import TaskResultStatus, task_finished
from queueapp.store.records import Completed, Failed, Returned
from queueapp.worker import attempt
from queueapp.worker.context import JobContext
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_DONE
from queueapp.worker.parker import Parker
from queueapp.worker.placement import Placement
from queueapp.worker.slots import Held, Outcome, ThreadSlots
from tests.unit.fake_store import FakeBlocking, FakeStore, leased
from tests.unit.running import Running

begun: dict[str, threading.Event] = {}
notes: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    notes.clear()
    begun["body"] = threading.Event()


async def until_cancelled() -> None:
    begun["body"].set()
    await asyncio.sleep(60)


@task
async def sleeps() -> None:
    await until_cancelled()


@task(max_attempts=5)
async def tidies_up() -> str:
    try:
        await until_cancelled()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        notes.append("tidied up")
        raise
    return "never"


@task
async def goes_on() -> str:
    try:
        await until_cancelled()
    except asyncio.CancelledError:
        return "a result all the same"
    return "never"


@task
async def cancels_itself() -> None:
    raise asyncio.CancelledError


@task(takes_context=True)
def looks(context: JobContext) -> str:
    context.held.cancel()
    return f"cancelled: {context.is_cancelled}"


@task(takes_context=True, max_attempts=3)
def gives_up(context: JobContext) -> None:
    context.held.cancel()
    raise OSError("stopped on the way")


def held(function: str, **values: Any) -> Held:
    store = FakeStore()
    job = leased(task=f"{__name__}.{function}", payload=encode_arguments((), {}, None), **values)
    store.active[job.id] = job.attempts
    return Held(job, Line("default", store, "me", lease_ms=30_000))


def run(job: Held) -> Outcome:
    return attempt.run_one(job, Faults())


def run_and_cancel(job: Held, times: int = 1) -> Outcome:
    """Runs it in a slot's thread, and tells it to stop from this one once its body has begun."""
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(run(job)))
    thread.start()
    assert begun["body"].wait(10)
    for _ in range(times):
        job.cancel()
    thread.join(10)
    assert not thread.is_alive()
    return found[0]


@pytest.fixture
def finished() -> Iterator[list[Any]]:
    seen: list[Any] = []

    def note(signal: Signal, sender: type, task_result: Any, **kwargs: Any) -> None:
        seen.append(task_result)

    task_finished.connect(note)
    yield seen
    task_finished.disconnect(note)


def class_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Failed)
    return str(json.loads(outcome.error)["class"])


class TestBodies:
    def test_an_async_body_gets_cancelled_error_at_its_await(self, finished: list[Any]) -> None:
        outcome = run_and_cancel(held("sleeps"))
        assert class_of(outcome) == "asyncio.exceptions.CancelledError"
        [result] = finished
        assert result.status is TaskResultStatus.FAILED
        assert [error.exception_class_path for error in result.errors] == ["queueapp.errors.JobCancelled"]

    def test_it_may_tidy_up_and_is_not_disturbed_again(self) -> None:
        job = held("tidies_up", max_attempts=5)
        outcome = run_and_cancel(job, times=3)
        assert notes == ["tidied up"]
        assert isinstance(outcome, Failed)
        assert outcome.retry_ms is None, "no other attempt is asked for"

    def test_it_may_go_on_and_return_which_changes_nothing(self, finished: list[Any]) -> None:
        outcome = run_and_cancel(held("goes_on"))
        assert isinstance(outcome, Completed), "the store ends it as cancelled"
        [result] = finished
        assert result.status is TaskResultStatus.FAILED
        assert [error.exception_class_path for error in result.errors] == ["queueapp.errors.JobCancelled"]

    def test_one_that_was_told_before_it_began_is_cancelled_at_its_first_await(self) -> None:
        job = held("tidies_up")
        job.cancel()
        assert class_of(run(job)) == "asyncio.exceptions.CancelledError"
        assert notes == ["tidied up"]

    def test_telling_one_that_is_through_does_nothing(self) -> None:
        job = held("cancels_itself")
        run(job)
        job.cancel()
        assert job.cancelled

    def test_cancelled_error_of_its_own_is_a_failure_as_any_other(self) -> None:
        job = held("cancels_itself", max_attempts=2)
        outcome = run(job)
        assert class_of(outcome) == "asyncio.exceptions.CancelledError"
        assert isinstance(outcome, Failed)
        assert outcome.retry_ms is not None
        assert not job.cancelled

    def test_a_thread_body_sees_the_flag_and_nothing_else(self) -> None:
        outcome = run(held("looks"))
        assert isinstance(outcome, Completed)
        assert outcome.result == b'"cancelled: True"'

    def test_what_it_raises_then_is_no_reason_to_try_again(self, caplog: pytest.LogCaptureFixture) -> None:
        outcome = run(held("gives_up", max_attempts=3))
        assert class_of(outcome) == "builtins.OSError"
        assert isinstance(outcome, Failed)
        assert outcome.retry_ms is None
        own = [entry.levelname for entry in caplog.records if entry.name.startswith("queueapp")]
        assert {"WARNING", "ERROR"}.isdisjoint(own)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def blocked(running: Running, gate: threading.Event) -> list[Held]:
    """What a worker's bodies of the task `slow` are given; they wait for the test."""
    seen: list[Held] = []

    def body(held: Held) -> None:
        seen.append(held)
        gate.wait(10)

    running.bodies["slow"] = body
    return seen


class TestHearing:
    def test_a_parked_worker_hears_of_it_by_its_own_token(self, store: FakeStore, gate: threading.Event) -> None:
        store.add(1, "slow")
        running = Running(store, slots=2)
        seen = blocked(running, gate)
        running.start()
        store.wait(lambda: bool(seen))
        running.blocking.wait_parked()
        store.stopping.add("j0")
        assert not seen[0].cancelled
        running.blocking.wake()
        store.wait(lambda: seen[0].cancelled)
        assert not seen[0].lost
        gate.set()
        running.worker.stop()
        assert running.join() == EXIT_DONE
        assert store.outcomes.keys() == {"j0"}

    def test_a_worker_whose_slots_are_all_taken_waits_for_its_own_tokens_alone(
        self, store: FakeStore, gate: threading.Event
    ) -> None:
        store.add(1, "slow")
        running = Running(store, slots=1, own=["stop"])
        seen = blocked(running, gate)
        running.start()
        store.wait(lambda: bool(seen))
        store.wait(lambda: any(keys == ["stop"] for keys, _ in running.blocking.calls))
        store.stopping.add("j0")
        running.blocking.wake()
        store.wait(lambda: seen[0].cancelled)
        gate.set()
        running.worker.stop()
        assert running.join() == EXIT_DONE

    def test_once_a_slot_is_free_it_waits_for_work_again_at_once(
        self, store: FakeStore, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("queueapp.worker.parking.block_s", lambda *_: 3600.0)  # no wait ends by itself
        store.add(1, "slow")
        running = Running(store, slots=1, own=["stop"])
        running.bodies["slow"] = lambda held: gate.wait(10)
        running.start()
        store.wait(lambda: any(keys == ["stop"] for keys, _ in running.blocking.calls))
        before = len(running.blocking.calls)
        gate.set()
        store.wait(lambda: any("pool0" in keys for keys, _ in running.blocking.calls[before:]))
        running.worker.stop()
        assert running.join() == EXIT_DONE

    def test_at_the_next_heartbeat_at_the_latest(
        self, store: FakeStore, gate: threading.Event, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "queueapp")
        store.add(1, "slow")
        running = Running(store, slots=1, lease_ms=300)
        seen = blocked(running, gate)
        running.start()
        store.wait(lambda: bool(seen))
        store.stopping.add("j0")
        store.wait(lambda: seen[0].cancelled)
        beats = len(store.extended)
        store.wait(lambda: len(store.extended) >= beats + 2)  # the lease is held as before
        gate.set()
        running.worker.stop()
        assert running.join() == EXIT_DONE
        told = [entry for entry in caplog.records if entry.getMessage().startswith("Told to stop")]
        assert len(told) == 1, "each answer names it, the body is told once"


class TestNotBegun:
    def test_a_job_in_a_chunk_never_begins_and_is_given_back(self) -> None:
        line = Line("default", FakeStore(), "me", lease_ms=30_000)
        ran: list[str] = []
        done = threading.Semaphore(0)

        def body(held: Held) -> None:
            ran.append(held.job.id)

        slots = ThreadSlots(1, body, lambda chunk: done.release())
        jobs = [Held(leased(job_id), line) for job_id in ("one", "two", "three")]
        jobs[1].cancel()
        jobs[2].cancel()
        jobs[2].lost = True
        slots.put(jobs, 0.0)
        chunk = next(iter(slots.outstanding.values()))
        slots.start()
        assert done.acquire(timeout=10)
        assert ran == ["one"]
        assert [outcome for _, outcome, _ in chunk.done][1:] == [Returned(id="two", attempts=1), None]
        slots.through(chunk)
        assert slots.close(10)

    def test_one_that_waits_for_a_slot_is_given_back(self) -> None:
        placement = Placement(ThreadSlots(1, lambda held: None, lambda chunk: None))
        line = Line("default", FakeStore(), "me", lease_ms=30_000)
        jobs = [Held(leased(job_id, attempts=2), line) for job_id in ("one", "two")]
        placement.place(line, jobs, 0.0)
        jobs[0].cancel()
        assert placement.announced(line) == [jobs[1]]
        assert placement.tend(0.001) == [jobs[0]]
        assert placement.waiting == 1

    def test_what_a_repeated_call_brings_after_it_was_cancelled_never_begins(self, store: FakeStore) -> None:
        store.add(1)
        store.stopping.add("j0")
        line = Line("default", store, "me", lease_ms=30_000)
        [job] = line.exchange(1, 0)
        assert job.cancelled
        line.give_up(job)
        line.give_back()
        assert [back.id for back in store.returned] == ["j0"]
        assert line.settled


def test_a_recalled_parker_takes_no_pause_and_counts_no_failure() -> None:
    blocking, posted = FakeBlocking(), threading.Semaphore(0)
    connected: list[FakeBlocking] = []

    def connect() -> FakeBlocking:
        connected.append(FakeBlocking() if connected else blocking)
        return connected[-1]

    parker = Parker(connect, ["wake", "stop"], posted.release, own=["stop"])
    parker.start()
    parker.park(60.0, work=False)
    assert (parker.parked, parker.hears_work) == (True, False)
    blocking.wait_parked()
    assert blocking.calls == [(["stop"], 60.0)]
    parker.recall()
    assert posted.acquire(timeout=10)
    assert (parker.parked, parker._failures) == (False, 0)
    parker.park(60.0)
    assert parker.hears_work
    while len(connected) < 2:
        threading.Event().wait(0.002)
    connected[1].wait_parked()
    connected[1].wake()
    assert posted.acquire(timeout=10)
    parker.close()


def test_a_parker_without_tokens_of_its_own_is_not_sent_to_wait_for_them() -> None:
    parker = Parker(FakeBlocking, ["wake"], lambda: None)
    parker.park(60.0, work=False)
    assert not parker.parked
