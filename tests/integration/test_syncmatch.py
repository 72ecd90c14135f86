"""Jobs that begin in the process that enqueues them, with a real worker and a real store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from django.db import transaction

from queueapp import task
from queueapp.errors import StoreUnavailable
from queueapp.states import Outcome, State
from queueapp.store import connection, shards
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import Matched, NewJob
from queueapp.store.store import Store
from queueapp.worker.line import Line
from queueapp.worker.loop import Worker, WorkerOptions
from queueapp.worker.parker import Parker
from tests.integration import jobs
from tests.integration.conftest import Manage, record, until
from tests.integration.test_metrics import ANYWHERE, scrape
from tests.unit.metrics.reading import here, value

RUN: list[tuple[int, bool]] = []
"""(attempt by its fence, was told to stop) of each run of `note`."""
GATE = threading.Event()


@task(takes_context=True, max_attempts=1, max_crashes=1)
def note(context: Any) -> int:
    """Notes its fence when the test lets it end."""
    GATE.wait(10)
    RUN.append((int(context.fence), context.is_cancelled))
    return int(context.fence)


@task(takes_context=True)
async def anote(context: Any) -> int:
    await context.aset_progress(1, 1)
    return int(context.fence)


@pytest.fixture(autouse=True)
def _nothing_has_run() -> Iterator[None]:
    RUN.clear()
    GATE.clear()
    yield
    GATE.set()


def hits() -> float:
    return here("ductor_syncmatch_total", pool="default", outcome="hit")


@contextmanager
def working(slots: int = 2, coroutines: int = 2) -> Iterator[Line]:
    """A worker in this process that is idle and knows that nothing holds the tenant `acme` back."""
    line = Line("default", shards.store("default"), f"test-{new_id()}", lease_ms=30_000)
    worker = Worker(
        [line],
        WorkerOptions(slots=slots, coroutines=coroutines),
        lambda post: Parker(connection.blocking, [line.wake_key, line.stop_key], post, own=[line.stop_key]),
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        ready(line, worker)
        yield line
    finally:
        GATE.set()
        worker.stop()
        thread.join(20)
        assert not thread.is_alive()


def ready(line: Line, worker: Worker) -> None:
    until(lambda: line.quiet)
    if line.clearance.holds("acme", "main") is None:
        worker.look()
    until(lambda: line.clearance.holds("acme", "main") is not None)


Meanwhile = Callable[[Callable[[], object]], AbstractContextManager[None]]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """What happens between the start of a body and the call that records it."""

    @contextmanager
    def happens(act: Callable[[], object]) -> Iterator[None]:
        match = Store.match

        def late(self: Store, *arguments: Any) -> Matched:
            act()
            return match(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Store, "match", late)
            yield

    return happens


def test_a_body_that_enqueues_has_the_next_begun_beside_it(worker: Manage, store: Store, reads: Reads) -> None:
    running = worker(*ANYWHERE, "--slots", "2")
    parent = jobs.spawn.using(tenant="acme").enqueue(5)
    ids = parent.wait(timeout=60).return_value
    for one in ids:
        found = record(reads, one)
        assert (found.outcome, found.attempts, found.crashes) == (Outcome.COMPLETED, 1, 0)
    counted = scrape(running)
    assert value(counted, "ductor_syncmatch_total", pool="default", outcome="hit") == 5
    assert value(counted, "ductor_syncmatch_total", pool="default", outcome="miss_limited") >= 1, "the first: not known"
    assert running.stop() == 0


def test_its_handle_comes_when_job_and_lease_are_recorded(store: Store, reads: Reads) -> None:
    with working() as line:
        before = hits()
        result = note.using(tenant="acme").enqueue()
        assert hits() == before + 1
        found = record(reads, result.id)
        assert (found.state, found.attempts, found.worker) == (State.ACTIVE, 1, line.worker)
        GATE.set()
        assert result.wait(timeout=10).return_value == 1
    assert RUN == [(1, False)]


def test_asynchronous_code_does_the_same(store: Store) -> None:
    async def main() -> Any:
        return await anote.using(tenant="acme").aenqueue()

    with working():
        before = hits()
        result = asyncio.run(main())
        assert hits() == before + 1
        assert result.wait(timeout=10).return_value == 1


def test_a_pause_that_came_meanwhile_is_kept_and_the_job_runs_when_it_is_over(
    store: Store, reads: Reads, meanwhile: Meanwhile
) -> None:
    with working():

        def pause() -> None:
            store.configure(1, scopes=[ScopeLimits(tenant="acme", paused=True)])

        with meanwhile(pause):
            result = note.using(tenant="acme").enqueue()
        found = record(reads, result.id)
        assert (found.state, found.attempts) == (State.PENDING, 1)
        GATE.set()
        until(lambda: len(RUN) == 1)
        assert record(reads, result.id).state is State.PENDING
        store.configure(2, scopes=[ScopeLimits(tenant="acme", clear=True)])
        assert result.wait(timeout=20).return_value == 2
    assert [fence for fence, _ in RUN] == [1, 2], "it ran twice, under two fences"
    found = record(reads, result.id)
    assert (found.attempts, found.crashes, found.error_count) == (2, 0, 0)


def test_what_waits_by_then_does_not_keep_it_from_its_lease(store: Store, reads: Reads, meanwhile: Meanwhile) -> None:
    """A body that runs already would only run twice."""
    with working(slots=1):
        GATE.set()
        with meanwhile(lambda: jobs.noop.using(tenant="acme", expires_after=600).enqueue()):
            result = note.using(tenant="acme").enqueue()
        assert result.wait(timeout=10).return_value == 1
    assert RUN == [(1, False)]


def test_while_the_store_is_away_the_caller_hears_so_and_the_body_counts_for_nothing(
    store: Store, meanwhile: Meanwhile
) -> None:
    def away() -> None:
        raise StoreUnavailable("away")

    with working() as line:
        with meanwhile(away), pytest.raises(StoreUnavailable, match="away"):
            note.using(tenant="acme").enqueue()
        GATE.set()
        until(lambda: len(RUN) <= 1 and line.settled)
    assert store.peek() == []


def test_where_the_answer_was_lost_the_job_is_there_and_runs_again_at_once(
    store: Store, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    match, ids = Store.match, []

    def lost(self: Store, job: NewJob, *arguments: Any) -> Matched:
        assert match(self, job, *arguments).job is not None
        ids.append(job.id)
        raise StoreUnavailable("the answer was lost")

    GATE.set()
    with working():
        with monkeypatch.context() as patch:
            patch.setattr(Store, "match", lost)
            with pytest.raises(StoreUnavailable):
                note.using(tenant="acme").enqueue()
        until(lambda: (found := reads.job(ids[0])) is not None and found.state is State.ENDED)
    found = reads.job(ids[0])
    assert found is not None
    assert (found.outcome, found.attempts, found.crashes) == (Outcome.COMPLETED, 2, 0)


@pytest.mark.parametrize(
    "limits",
    [
        {"pool": PoolConf(max_in_flight=5)},
        {"pool": PoolConf(dispatch="scheduled")},
        {"scopes": [ScopeLimits(tenant="acme", max_in_flight=5)]},
        {"scopes": [ScopeLimits(tenant="acme", lane="main", paused=True)]},
    ],
)
def test_what_something_configured_holds_back_goes_the_usual_way(store: Store, limits: dict[str, Any]) -> None:
    store.configure(1, **limits)
    with working():
        hit, limited = hits(), here("ductor_syncmatch_total", pool="default", outcome="miss_limited")
        note.using(tenant="acme").enqueue()
        assert hits() == hit
        assert here("ductor_syncmatch_total", pool="default", outcome="miss_limited") == limited + 1


@pytest.mark.django_db(transaction=True)
def test_nothing_begins_while_a_transaction_is_open(store: Store) -> None:
    """What its body would look for may not be committed yet, and may never be."""
    with working():
        before = hits()
        with transaction.atomic():
            note.using(tenant="acme", on_commit=False).enqueue()
            jobs.noop.using(tenant="acme").enqueue()
        assert hits() == before
        GATE.set()
