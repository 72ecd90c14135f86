"""Asynchronous bodies on one event loop: many at once, each with a thread of its own for what is synchronous."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.dispatch import Signal

from queueapp import task
from queueapp.compat import task_finished, task_started
from queueapp.producer.tenancy import current_tenant
from queueapp.store.records import Completed, Failed
from queueapp.worker import around, berths, coroutines
from queueapp.worker.announce import is_heard
from queueapp.worker.berths import Berth, Berths
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_CUT_SHORT, EXIT_DONE
from queueapp.worker.placement import Placement
from queueapp.worker.room import Room
from queueapp.worker.slots import Chunk, Held, ThreadSlots
from tests.unit.fake_store import FakeStore, leased
from tests.unit.running import Running

pytestmark = pytest.mark.django_db(transaction=True)

running_now: set[str] = set()
noted: list[Any] = []


class Gate:
    """An event for coroutines of another thread's loop."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    async def wait(self) -> None:
        while not self.opened.is_set():
            await asyncio.sleep(0.002)


gate = Gate()
blocked = threading.Event()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    running_now.clear()
    noted.clear()
    gate.opened.clear()
    blocked.clear()
    yield
    gate.opened.set()
    blocked.set()


@task(takes_context=True)
async def waits(context: Any) -> str:
    running_now.add(context.held.job.id)
    await gate.wait()
    return threading.current_thread().name


@task(takes_context=True)
def works(context: Any) -> None:
    running_now.add(context.held.job.id)
    blocked.wait(10)


@task
async def whose_thread() -> tuple[int, int]:
    first = await sync_to_async(threading.get_ident)()
    await asyncio.sleep(0.01)
    return first, await sync_to_async(threading.get_ident)()


@task
async def whose() -> str | None:
    await asyncio.sleep(0.001)
    return current_tenant()


@task
async def breaks() -> None:
    raise ValueError("it broke")


@task
async def blocks_the_loop() -> None:
    noted.append("blocks")
    blocked.wait(10)


@task
def uses_a_cache() -> int:
    return id(caches["default"])


@task
async def uses_a_cache_too() -> int:
    return id(caches["default"])


@task
async def empty() -> None:
    """Nothing."""


def name(function: str) -> str:
    return f"{__name__}.{function}"


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def start(store: FakeStore, **options: Any) -> Running:
    """A worker of two threads and many coroutines that runs this module's tasks as they are."""
    from queueapp.worker import attempt

    return Running(
        store,
        run=lambda held, faults, limits: attempt.run_one(held, faults, limits=limits),
        **{"slots": 2, "coroutines": 50, **options},
    ).start()


def results(store: FakeStore) -> dict[str, Any]:
    return {
        job_id: json.loads(outcome.result or b"null")
        for job_id, outcome in store.outcomes.items()
        if isinstance(outcome, Completed)
    }


def test_many_more_run_at_once_than_there_are_threads(store: FakeStore) -> None:
    store.add(50, name("waits"))
    running = start(store)
    store.wait(lambda: len(running_now) == 50)
    gate.opened.set()
    store.wait(lambda: len(store.outcomes) == 50)
    running.worker.stop()
    assert running.join() == EXIT_DONE
    assert set(results(store).values()) == {"ductor-loop"}


def test_all_of_them_were_known_as_begun(store: FakeStore) -> None:
    """C016: whatever is lost with the process must be counted."""
    store.add(50, name("waits"))
    running = start(store)
    store.wait(lambda: len(running_now) == 50)
    assert store.begun == store.active.keys()
    gate.opened.set()
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_no_more_than_there_is_room_for(store: FakeStore) -> None:
    store.add(20, name("waits"))
    running = start(store, coroutines=7)
    store.wait(lambda: len(running_now) == 7)
    running.wait_turn()
    assert len(store.active) == 7
    gate.opened.set()
    store.wait(lambda: len(store.outcomes) == 20)
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_without_coroutines_they_run_in_slots(store: FakeStore) -> None:
    store.add(3, name("waits"))
    running = start(store, coroutines=0)
    store.wait(lambda: len(running_now) == 2)
    gate.opened.set()
    store.wait(lambda: len(store.outcomes) == 3)
    running.worker.stop()
    assert running.join() == EXIT_DONE
    assert "ductor-loop" not in results(store).values()


def test_under_a_context_of_the_hosts_they_run_in_slots(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sets on a connection is set in one thread; another job's query must not find it there."""
    from contextlib import nullcontext

    monkeypatch.setattr("queueapp.worker.room.settings", type("S", (), {"tenant_context": nullcontext}))
    gate.opened.set()
    store.add(2, name("waits"))
    running = start(store, batch=True)
    assert running.join() == EXIT_DONE
    assert "ductor-loop" not in results(store).values()


def test_each_has_one_thread_for_what_is_synchronous(store: FakeStore) -> None:
    store.add(20, name("whose_thread"))
    running = start(store, batch=True)
    running.join()
    threads = results(store).values()
    assert len(threads) == 20
    assert all(first == second for first, second in threads)


async def whose_berth(berth: Berth) -> int:
    """The thread in which synchronous code of a job in this berth runs."""
    part = sync_to_async(threading.get_ident)()
    return await asyncio.get_running_loop().create_task(part, context=berth.context.copy())


def test_two_that_run_at_once_do_not_share_a_thread() -> None:
    kept = Berths()
    first, second = kept.take(), kept.take()

    async def both() -> tuple[int, int, int]:
        return await whose_berth(first), await whose_berth(second), await whose_berth(first)

    one, two, again = asyncio.run(both())
    assert one == again
    assert one != two
    first.close()
    second.close()


def test_stale_connections_are_closed_in_the_thread_that_used_them(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(berths, "close_stale_connections", lambda: closed.append(threading.get_ident()))
    berth = Berth()

    async def run() -> int:
        await berth.tidy()
        assert closed == [], "nothing was used: no thread is started for it"
        found = await whose_berth(berth)
        await berth.tidy()
        await berth.tidy()
        return found

    assert asyncio.run(run()) in closed
    assert len(closed) == 1
    berth.close()


def test_an_idle_berth_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()
    monkeypatch.setattr(berths, "close_connections", closed.set)
    monkeypatch.setattr(berths, "IDLE_S", 0.0)
    kept = Berths()

    async def run() -> None:
        berth = kept.take()
        await asyncio.get_running_loop().create_task(sync_to_async(threading.get_ident)(), context=berth.context.copy())
        await berth.tidy()
        kept.leave(berth)
        while not closed.is_set():
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(run(), 10))
    kept.close()


def test_the_tenant_is_that_of_the_job_and_failures_are_failures(store: FakeStore) -> None:
    store.add(5, name("whose"))
    store.add(1, name("breaks"), prefix="broken")
    running = start(store, batch=True)
    running.join()
    assert {value for job, value in results(store).items()} == {"acme"}
    assert isinstance(store.outcomes["broken0"], Failed)


def test_receivers_of_the_hosts_do_not_run_on_the_loop(store: FakeStore) -> None:
    assert not is_heard(task_finished), "Django's own log only"

    def note(signal: Signal, sender: type, task_result: Any, **kwargs: Any) -> None:
        noted.append(threading.current_thread().name)

    for signal in (task_started, task_finished):
        signal.connect(note)
    try:
        assert is_heard(task_finished)
        store.add(3, name("empty"))
        start(store, batch=True).join()
    finally:
        for signal in (task_started, task_finished):
            signal.disconnect(note)
    assert len(noted) == 6
    assert all(thread.startswith("ductor-berth") for thread in noted)


def test_a_body_that_blocks_the_loop_keeps_nothing_that_others_could_run(store: FakeStore) -> None:
    store.add(1, name("blocks_the_loop"))
    running = start(store)
    store.wait(lambda: noted == ["blocks"])
    store.add(3, name("empty"), prefix="other")
    running.blocking.wake()
    store.wait(lambda: bool(store.returned))
    blocked.set()
    store.wait(lambda: len(store.outcomes) == 4)
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_a_stop_waits_for_them_and_a_second_one_cancels_them(store: FakeStore) -> None:
    store.add(5, name("waits"))
    running = start(store)
    store.wait(lambda: len(running_now) == 5)
    running.worker.stop()
    running.wait_turn()
    assert running.thread.is_alive()
    running.worker.stop()
    assert running.join() == EXIT_CUT_SHORT
    assert {returned.id for returned in store.returned[-5:]} == {f"j{number}" for number in range(5)}
    assert store.outcomes == {}


def test_a_cancelled_job_stops_at_its_await(store: FakeStore) -> None:
    store.add(2, name("waits"))
    running = start(store)
    store.wait(lambda: len(running_now) == 2)
    store.stopping.add("j0")
    running.lines[0].owes = True  # any call brings it
    running.worker.look()
    store.wait(lambda: "j0" in store.outcomes)
    assert "j1" in store.active
    gate.opened.set()
    running.worker.stop()
    running.join()


class TestRoom:
    """How many jobs are asked for, where threads and coroutines have room of their own."""

    def room(self, threads: int = 4, loop: int = 100, lines: int = 1) -> tuple[Room, list[Line]]:
        pools = [Line(f"pool{number}", FakeStore(), "w", lease_ms=30_000) for number in range(lines)]
        slots = ThreadSlots(threads, lambda held: None, lambda chunk: None)
        loops = coroutines.LoopSlots(loop, lambda held: asyncio.sleep(0), lambda chunk: None)
        # Handed over, and never begun.
        loops.put = lambda jobs, now: loops.outstanding.update(  # type: ignore[method-assign]  # no thread is wanted here
            (id(job), Chunk(deque((job,)), now)) for job in jobs
        )
        return Room(Placement(slots), Placement(loops), pools), pools

    def jobs(self, line: Line, function: str, count: int) -> list[Held]:
        return [Held(leased(f"{function}{n}", task=name(function)), line, begun=True) for n in range(count)]

    def test_before_the_first_job_as_many_as_there_are_threads(self) -> None:
        room, [line] = self.room()
        assert room.of(line, 0.0) == 4

    def test_as_many_as_coroutines_where_all_jobs_are(self) -> None:
        room, [line] = self.room()
        room.place(line, self.jobs(line, "waits", 4), 0.0)
        assert room.of(line, 0.0) == 96
        assert room.begins(line) == 96

    def test_as_many_as_threads_where_none_is(self) -> None:
        room, [line] = self.room()
        room.place(line, self.jobs(line, "works", 1), 0.0)
        assert room.of(line, 0.0) == 3
        assert room.begins(line) == 3

    def test_a_mixture_asks_for_what_fits_both(self) -> None:
        room, [line] = self.room(threads=8)
        room.place(line, [*self.jobs(line, "works", 1), *self.jobs(line, "waits", 3)], 0.0)
        assert room.of(line, 0.0) == 28, "7 threads for a quarter of them"
        assert room.begins(line) == 7
        room.place(line, self.jobs(line, "works", 7), 0.0)
        assert room.of(line, 0.0) == 0, "with threads full the next job may be one that must go back"

    def test_pools_are_told_apart(self) -> None:
        room, [first, second] = self.room(lines=2)
        room.place(first, self.jobs(first, "waits", 4), 0.0)
        room.place(second, self.jobs(second, "works", 4), 0.0)
        assert room.of(first, 0.0) == 96
        assert room.of(second, 0.0) == 0

    def test_what_had_to_go_back_bars_its_pool_until_it_would_fit(self) -> None:
        room, [line] = self.room()
        room.place(line, self.jobs(line, "waits", 90), 0.0)
        full = self.jobs(line, "works", 4)
        room.threads.place(line, full, 0.0)
        room.missed(Held(leased("late", task=name("works")), line))
        assert room.of(line, 0.0) == 0
        room.threads.slots.outstanding.popitem()
        assert room.of(line, 0.0) > 0


@pytest.mark.parametrize("function", ["uses_a_cache", "uses_a_cache_too"])
def test_caches_outlive_a_body(store: FakeStore, function: str) -> None:
    """Django keeps them in the context, of which each body has a copy: their connections would be left each time."""
    store.add(6, name(function))
    running = Running(store, run=around.run, slots=1, coroutines=1, batch=True).start()
    assert running.join() == EXIT_DONE
    assert len(set(results(store).values())) == 1
