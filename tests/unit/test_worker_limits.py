"""Time limits: the warning, the giving up, and what a worker does with a body that does not end."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queueapp import task
from queueapp.codec import encode_arguments
from queueapp.compat import TaskResultStatus, task_finished
from queueapp.errors import SoftTimeLimitExceeded
from queueapp.producer.options import InvalidTaskOption
from queueapp.producer.preparation import prepare
from queueapp.store.records import Completed, Failed, LeasedJob
from queueapp.worker import attempt
from queueapp.worker.faults import Faults
from queueapp.worker.limits import ARRIVES_WITHIN, Limits, Watch, within
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_DONE, EXIT_OVERDUE
from queueapp.worker.slots import Chunk, Held, Outcome, Overdue
from tests.unit.fake_store import FakeStore, leased
from tests.unit.running import Running

pytestmark = pytest.mark.django_db

SOON_S = 0.02
free = threading.Event()
"""What the bodies here wait for."""
seen: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    free.clear()
    seen.clear()
    yield
    free.set()


@task(soft_timeout=SOON_S)
def spins() -> str:
    """Takes many small steps, as most bodies do."""
    while not free.wait(0.001):
        pass
    return "never"


@task(soft_timeout=SOON_S)
def tidies_up() -> str:
    try:
        return spins.func()
    except SoftTimeLimitExceeded:
        return "tidied up"


@task(soft_timeout=SOON_S)
async def waits() -> str:
    await asyncio.sleep(60)
    return "never"


@task(soft_timeout=SOON_S)
async def tidies_up_too() -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "tidied up"
    return "never"


@task(soft_timeout=60, timeout=120)
def quick() -> str:
    return "done"


@task(timeout=SOON_S, backoff=7)
def hangs() -> str:
    free.wait(30)
    seen.append("went on")
    return "too late"


@task(timeout=SOON_S)
async def hangs_waiting() -> str:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("told")
            if free.is_set():
                raise


@task
def plain() -> None:
    """Nothing limits it."""


def held(function: str, options: dict[str, Any] | None = None) -> Held:
    store = FakeStore()
    job = leased(task=f"{__name__}.{function}", payload=encode_arguments((), {}, options))
    store.active[job.id] = job.attempts
    return Held(job, Line("default", store, "me", lease_ms=30_000))


def run(job: Held) -> Outcome:
    limits = Limits(lambda held, overdue: None)
    try:
        return attempt.run_one(job, Faults(), limits=limits)
    finally:
        limits.close()


def result_of(outcome: Outcome) -> object:
    assert isinstance(outcome, Completed)
    return json.loads(outcome.result or b"null")


def class_of(outcome: object) -> str:
    assert isinstance(outcome, Failed)
    return str(json.loads(outcome.error)["class"])


class LateLimits(Limits):
    """A clock that is late: it warns when a body is through, or not by itself."""

    def __init__(self, *, at_the_end: bool = False) -> None:
        super().__init__(lambda held, overdue: None)
        self.at_the_end = at_the_end

    def begin(self, watch: Watch) -> None:
        self.watch = watch

    def end(self, watch: Watch) -> None:
        if self.at_the_end:
            watch.warn()


class TestTheSoftLimit:
    @pytest.mark.parametrize("function", ["spins", "waits"])
    def test_it_is_raised_in_the_body(self, function: str) -> None:
        assert class_of(run(held(function))) == "queueapp.errors.SoftTimeLimitExceeded"

    @pytest.mark.parametrize("function", ["tidies_up", "tidies_up_too"])
    def test_a_body_may_tidy_up_and_return(self, function: str) -> None:
        assert result_of(run(held(function))) == "tidied up"

    def test_a_body_that_ends_in_time_is_left_alone(self) -> None:
        assert result_of(run(held("quick"))) == "done"

    def test_it_comes_within_the_body_or_not_at_all(self) -> None:
        """However close its end is to the limit: nothing is raised in what the slot does after it."""
        outcomes = set()
        limits = Limits(lambda held, overdue: None)
        for number in range(200):
            job = held("plain", {"soft_timeout": number * 0.000_002})
            outcome = attempt.run_one(job, Faults(), limits=limits)
            outcomes.add(type(outcome))
            sum(range(200))  # where an exception that came too late would be raised
        limits.close()
        assert outcomes <= {Completed, Failed}

    def test_a_warning_that_comes_too_late_is_raised_nowhere(self) -> None:
        late = LateLimits()
        assert within(late, held("quick"), quick, lambda: "done") == "done"
        late.watch.warn()
        sum(number for number in range(ARRIVES_WITHIN))  # where it would be raised

    def test_a_warning_that_comes_as_the_body_ends_is_raised_there(self) -> None:
        with pytest.raises(SoftTimeLimitExceeded):
            within(LateLimits(at_the_end=True), held("quick"), quick, lambda: "done")

    def test_one_job_may_have_a_limit_of_its_own(self) -> None:
        payload = prepare(plain.using(timeout=3, soft_timeout=2), [], {}).job.payload
        assert json.loads(payload)["o"] == {"timeout": 3.0, "soft_timeout": 2.0}

    def test_what_the_task_says_does_not_travel(self) -> None:
        """A deploy changes it for waiting jobs, too."""
        assert "o" not in json.loads(prepare(quick, [], {}).job.payload)

    def test_a_warning_after_the_end_is_refused(self) -> None:
        with pytest.raises(InvalidTaskOption, match=r"soft_timeout is 5 and timeout is 5"):
            plain.using(timeout=5, soft_timeout=5)

    @pytest.mark.parametrize("wrong", [0, -1, True, "5", float("nan")])
    def test_a_wrong_limit_is_refused(self, wrong: Any) -> None:
        with pytest.raises(InvalidTaskOption, match="timeout"):
            plain.using(timeout=wrong)


class TestTheClock:
    def test_the_nearest_limit_comes_first_and_ended_bodies_have_none(self) -> None:
        told: list[tuple[str, float]] = []
        both = threading.Semaphore(0)

        def overdue(held: Held, what: Overdue) -> None:
            told.append((held.job.id, what.timeout_s))
            both.release()

        limits = Limits(overdue)
        jobs = [Held(leased(name), held("plain").line) for name in ("later", "sooner", "ended")]
        watches = [
            Watch(job, None, after, lambda: None, lambda: "")
            for job, after in zip(jobs, (0.05, 0.02, 0.03), strict=True)
        ]
        for watch in watches:
            limits.begin(watch)
        limits.end(watches[2])
        assert both.acquire(timeout=10)
        assert both.acquire(timeout=10)
        limits.close()
        assert told == [("sooner", 0.02), ("later", 0.05)]


class Worker(Running):
    """A worker that runs this module's tasks as they are."""

    def __init__(self, store: FakeStore, **options: Any) -> None:
        super().__init__(store, run=_run, **options)


def _run(held: Held, faults: Faults, limits: Limits) -> Outcome:
    if held.overdue is not None:
        return attempt.run_overdue(held)
    return attempt.run_one(held, faults, limits=limits)


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def failed(store: FakeStore) -> Callable[[], bool]:
    return lambda: isinstance(store.outcomes.get("j0"), Failed)


@pytest.mark.django_db(transaction=True)
class TestTheHardLimit:
    @pytest.mark.parametrize(("function", "coroutines"), [("hangs", 0), ("hangs_waiting", 4)])
    def test_a_body_that_hangs_is_given_up_and_others_run_in_its_place(
        self, store: FakeStore, function: str, coroutines: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.add(1, f"{__name__}.{function}")
        finished: list[str] = []
        keep = lambda sender, task_result, **rest: finished.append(task_result.status)  # noqa: E731
        task_finished.connect(keep)
        try:
            running = Worker(store, slots=2, coroutines=coroutines).start()
            with caplog.at_level(logging.ERROR):
                store.wait(failed(store))
            store.add(3, f"{__name__}.plain", prefix="other")
            running.blocking.wake()
            store.wait(lambda: {"other0", "other1", "other2"} <= store.outcomes.keys())
            free.set()
            store.wait(lambda: bool(seen))
            running.worker.stop()
            running.join()
        finally:
            task_finished.disconnect(keep)

        outcome = store.outcomes["j0"]
        assert class_of(outcome) == "queueapp.errors.TimeLimitExceeded"
        assert isinstance(outcome, Failed)
        assert outcome.run_ms == 20, "that long it ran, and that is charged"
        assert "Still running when its time was over" in json.loads(outcome.error)["traceback"]
        assert finished.count(TaskResultStatus.FAILED) == 1
        assert len(finished) == 4, "what the body comes to after all is not told"
        assert any("has not ended within its time limit of 0.02 s" in record.message for record in caplog.records)
        assert store.refused == [], "what the body makes of it later is not reported"

    def test_a_thread_whose_body_returns_after_all_counts_no_more(self, store: FakeStore) -> None:
        store.add(1, f"{__name__}.hangs")
        running = Worker(store, slots=4).start()
        store.wait(failed(store))
        free.set()
        store.wait(lambda: seen == ["went on"])
        running.wait_turn()
        running.worker.stop()
        assert running.join() == EXIT_DONE

    def test_a_process_that_is_replaced_ends_after_one(self, store: FakeStore) -> None:
        store.add(1, f"{__name__}.hangs")
        running = Worker(store, slots=4, replaceable=True).start()
        assert running.join() == EXIT_OVERDUE
        assert class_of(store.outcomes["j0"]) == "queueapp.errors.TimeLimitExceeded"

    def test_a_process_with_as_many_stuck_threads_as_slots_ends(self, store: FakeStore) -> None:
        store.add(2, f"{__name__}.hangs")
        running = Worker(store, slots=2).start()
        assert running.join() == EXIT_OVERDUE
        assert store.outcomes.keys() == {"j0", "j1"}


def test_a_backoff_is_asked_as_after_any_failure() -> None:
    job = leased(task=f"{__name__}.hangs", payload=encode_arguments((), {}), max_attempts=2)
    line = held("hangs").line
    outcome = attempt.run_overdue(Held(job, line, overdue=Overdue(1.5, "it hangs here\n")))
    assert isinstance(outcome, Failed)
    assert outcome.retry_ms == 7_000
    assert json.loads(outcome.error)["traceback"].startswith("it hangs here\n")


def test_a_body_that_ends_just_then_is_not_overdue(store: FakeStore) -> None:
    """The clock's message meets an outcome that is already there: that one counts."""
    running = Running(store)
    job: LeasedJob = leased()
    one = Held(job, running.lines[0], begun=True)
    running.lines[0].held[job.id] = one
    running.worker._abandon(one, Overdue(1.0, ""))
    assert running.lines[0].held[job.id] is one
    assert not one.lost


def test_what_a_body_that_was_given_up_comes_to_is_not_its_outcome(store: FakeStore) -> None:
    """Also where it returns before its stand-in has said that it failed."""
    running = Running(store)
    line = running.lines[0]
    given_up, stand_in = Held(leased(), line), Held(leased(), line, overdue=Overdue(1.0, ""))
    line.held[given_up.job.id] = stand_in
    done = Completed(id=given_up.job.id, attempts=1, run_ms=1)
    running.worker._take_done(Chunk(deque(), 0.0, done=deque([(given_up, done, 1.0)])))
    assert line.held == {given_up.job.id: stand_in}
    assert not line.finished
