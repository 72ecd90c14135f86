"""Jobs that code of the worker's own process enqueues: begun at once, recorded by the store, reported as any other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from queueapp.errors import StoreUnavailable
from queueapp.producer import matching
from queueapp.producer.task import DuctorTask
from queueapp.store.records import LeasedJob, NewJob
from queueapp.worker.clearance import AT_ONCE, Clearance
from queueapp.worker.context import save
from queueapp.worker.coroutines import LoopSlots
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_CUT_SHORT, EXIT_DONE
from queueapp.worker.match import Match
from queueapp.worker.slots import Chunk, Held, Outcome, Overdue, Slots, ThreadSlots
from tests.producing import add, add_async
from tests.unit.fake_store import FakeStore, leased
from tests.unit.running import Running

POOL = "pool0"


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What bodies wait for; opened at the end whatever happens."""
    opened = threading.Event()
    yield opened
    opened.set()


def job(number: int = 0, **options: Any) -> NewJob:
    fields: dict[str, Any] = {"task": "tests.noop", "tenant": "acme", "payload": b"{}", "fingerprint": "f"}
    return NewJob(id=f"m{number}", **{**fields, **options})


def offer(number: int = 0, task: DuctorTask = add, **options: Any) -> Match | str:
    """As `matching.send` does before it asks the store."""
    channel = matching._channels.get(POOL)
    found = channel.begin(task, job(number, **options), None) if channel is not None else "miss_no_channel"
    assert isinstance(found, (Match, str))
    return found


def begun(number: int = 0, task: DuctorTask = add) -> Match:
    match = offer(number, task)
    assert isinstance(match, Match), match
    return match


def record(store: FakeStore, match: Match) -> LeasedJob:
    """The store has heard of it."""
    with store.lock:
        name = match.held.job.id
        store.active[name], store.tasks[name] = 1, match.held.job.task
    lease = leased(match.held.job.id, submitted_ms=7)
    match.recorded(lease)
    return lease


def at_rest(store: FakeStore, running: Running) -> Running:
    """Idle, and it knows what is asked about the tenant `acme`."""
    running.start()
    line = running.lines[0]
    store.wait(lambda: line.quiet)
    line.clearance.holds("acme", "main")
    running.worker.look()
    store.wait(lambda: line.clearance.holds("acme", "main") is True)
    running.blocking.wait_parked()
    return running


def end(running: Running, code: int = EXIT_DONE) -> None:
    running.worker.stop()
    assert running.join() == code


def test_its_body_begins_at_once_and_its_outcome_is_reported_when_the_store_knows_of_it(store: FakeStore) -> None:
    running = at_rest(store, Running(store))
    match = begun()
    store.wait(lambda: running.started == ["m0"] and bool(match.chunk.done))
    running.wait_turn()
    assert not store.outcomes, "nobody has recorded the job"
    record(store, match)
    store.wait(lambda: "m0" in store.outcomes)
    assert running.worker.ran == 1
    end(running)


def test_what_the_store_refuses_is_dropped_and_its_body_told(store: FakeStore, gate: threading.Event) -> None:
    running = Running(store)
    told = threading.Event()

    def body(held: Held) -> None:
        gate.wait(10)
        if held.lost:
            told.set()

    running.bodies["tests.noop"] = body
    at_rest(store, running)
    match = begun()
    store.wait(lambda: running.started == ["m0"])
    match.refused()
    store.wait(lambda: match.held.lost)
    gate.set()
    assert told.wait(10)
    end(running)
    assert (store.outcomes, store.refused, store.returned) == ({}, [], [])


def test_a_body_that_ended_before_the_refusal_is_dropped_too(store: FakeStore) -> None:
    running = at_rest(store, Running(store))
    match = begun()
    store.wait(lambda: bool(match.chunk.done))
    match.refused()
    end(running)
    assert (store.outcomes, store.refused) == ({}, [])


def test_its_lease_is_extended_from_the_record_on(store: FakeStore, gate: threading.Event) -> None:
    running = Running(store, lease_ms=90)
    running.bodies["tests.noop"] = lambda held: gate.wait(10)
    at_rest(store, running)
    match = begun()
    running.wait_turn()
    assert store.extended == [], "the store would say that the lease is lost"
    record(store, match)
    store.wait(lambda: "m0" in store.extended)
    gate.set()
    store.wait(lambda: "m0" in store.outcomes)
    end(running)


def test_every_slot_is_given_once(store: FakeStore, gate: threading.Event) -> None:
    running = Running(store, slots=2)
    running.bodies["tests.noop"] = lambda held: gate.wait(10)
    at_rest(store, running)
    first, second = begun(1), begun(2)
    assert offer(3) == "miss_buffer_full"
    for match in (first, second):
        record(store, match)
    running.wait_turn()
    assert offer(4) == "miss_buffer_full"
    gate.set()
    store.wait(lambda: {"m1", "m2"} <= store.outcomes.keys())
    store.wait(lambda: running.worker._slots[0].idle == 2)
    running.wait_turn()
    record(store, begun(5))
    store.wait(lambda: "m5" in store.outcomes)
    end(running)


def test_nobody_who_waits_is_overtaken(store: FakeStore, gate: threading.Event) -> None:
    """While the store says that something is runnable, a job that comes goes behind it."""
    store.add(3, "slow")
    running = Running(store, slots=2)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: len(running.started) == 2)
    line = running.lines[0]
    line.clearance.holds("acme", "main")
    running.worker.look()
    store.wait(lambda: line.clearance.holds("acme", "main") is True)
    assert offer() == "miss_limited"
    gate.set()
    store.wait(lambda: len(store.outcomes) == 3)
    store.wait(lambda: line.quiet)
    end(running)


def test_a_token_that_was_taken_ends_the_quiet(store: FakeStore) -> None:
    line = at_rest(store, running := Running(store)).lines[0]
    line.took_token()
    assert offer() == "miss_limited"
    end(running)


def test_a_store_that_is_away_ends_it_too(store: FakeStore) -> None:
    running = at_rest(store, Running(store))
    store.away = True
    running.blocking.wake()
    store.wait(lambda: running.lines[0].away)
    assert offer() == "miss_limited"
    store.away = False
    end(running)


def test_what_is_configured_is_looked_up_once_for_each_version(store: FakeStore) -> None:
    store.limited.add("shut")
    running = at_rest(store, Running(store))
    line = running.lines[0]
    assert offer(tenant="shut") == "miss_limited"
    store.wait(lambda: line.clearance.holds("shut", "main") is False)
    assert offer(tenant="shut") == "miss_limited"
    store.limited.add("acme")
    store.version = 2
    running.blocking.wake()
    store.wait(lambda: line.clearance._version == 2)
    assert offer() == "miss_limited", "another version: what was known is not any more"
    store.wait(lambda: line.clearance.holds("acme", "main") is False)
    end(running)


def test_beside_a_suspect_nothing_begins(store: FakeStore, gate: threading.Event) -> None:
    """A job that twice crashed its worker is leased alone, so that it is the only one to be blamed."""
    running = Running(store)
    running.bodies["bad"] = lambda held: gate.wait(10)
    at_rest(store, running)
    with store.lock:
        store.pending.append(("suspect", "bad"))
        store.crashes["suspect"] = 2
    running.blocking.wake()
    store.wait(lambda: running.started == ["suspect"])
    running.wait_turn()
    assert offer() == "miss_buffer_full"
    gate.set()
    store.wait(lambda: "suspect" in store.outcomes)
    running.wait_turn()
    record(store, begun(1))
    end(running)


def test_no_more_begin_than_max_tasks_allows(store: FakeStore, gate: threading.Event) -> None:
    running = Running(store, slots=4, max_tasks=2)
    running.bodies["tests.noop"] = lambda held: gate.wait(10)
    at_rest(store, running)
    first = begun(1)
    refused = begun(2)
    assert offer(3) == "miss_buffer_full"
    refused.refused()
    store.wait(lambda: refused.held.lost)
    running.wait_turn()
    second = begun(4)
    for match in (first, second):
        record(store, match)
    gate.set()
    assert running.join() == EXIT_DONE
    assert store.outcomes.keys() == {"m1", "m4"}


def test_a_worker_that_stops_takes_no_more(store: FakeStore, gate: threading.Event) -> None:
    running = Running(store)
    running.bodies["tests.noop"] = lambda held: gate.wait(10)
    at_rest(store, running)
    match = begun()
    store.wait(lambda: match.chunk.current is not None)
    record(store, match)
    running.worker.stop()
    store.wait(lambda: POOL not in matching._channels)
    assert offer(1) == "miss_no_channel"
    assert match.chunk.current is not None, "not only when all has ended"
    gate.set()
    assert running.join() == EXIT_DONE


def test_it_waits_for_the_answer_about_a_body_that_has_ended(store: FakeStore) -> None:
    running = at_rest(store, Running(store))
    match = begun()
    store.wait(lambda: bool(match.chunk.done))
    running.worker.stop()
    store.wait(lambda: POOL not in matching._channels)
    assert running.thread.is_alive()
    record(store, match)
    assert running.join() == EXIT_DONE
    assert store.outcomes.keys() == {"m0"}


def test_a_worker_that_leaves_gives_back_what_was_recorded_and_tells_what_was_not(
    store: FakeStore, gate: threading.Event
) -> None:
    running = Running(store, grace_ms=0)
    running.bodies["tests.noop"] = lambda held: gate.wait(10)
    at_rest(store, running)
    known, unknown = begun(1), begun(2)
    record(store, known)
    store.wait(lambda: "m1" in running.lines[0].held)
    end(running, EXIT_CUT_SHORT)
    assert [one.id for one in store.returned] == ["m1"]
    assert known.held.lost
    assert unknown.held.lost


def test_its_time_limit_counts_from_its_start_and_is_told_when_the_store_knows(
    store: FakeStore, gate: threading.Event
) -> None:
    running = Running(store, slots=1)
    running.bodies["tests.noop"] = lambda held: held.overdue or gate.wait(10)
    at_rest(store, running)
    match = begun()
    running.worker._mail.put((match.held, Overdue(0.1, "")))
    running.wait_turn()
    assert not match.chunk.abandoned
    record(store, match)
    store.wait(lambda: "m0" in store.outcomes)  # reported by its stand-in, in another thread
    store.wait(lambda: match.chunk.abandoned)
    gate.set()
    running.worker.stop()
    running.join()


def test_a_refused_body_that_hangs_leaves_its_slot_to_others(store: FakeStore, gate: threading.Event) -> None:
    running = Running(store, slots=2)
    running.bodies["tests.noop"] = lambda held: gate.wait(10)
    at_rest(store, running)
    match = begun()
    store.wait(lambda: running.started == ["m0"])
    match.refused()
    store.wait(lambda: match.held.lost)
    running.worker._mail.put((match.held, Overdue(0.1, "")))
    store.wait(lambda: match.chunk.abandoned)
    assert running.lines[0].held == {}, "nothing is reported of it"
    gate.set()
    running.worker.stop()
    running.join()


def test_what_it_saves_waits_for_the_record(store: FakeStore) -> None:
    running = Running(store)
    saved: list[bool] = []
    running.bodies["tests.noop"] = lambda held: saved.append(save(held, "progress", b"1"))
    at_rest(store, running)
    match = begun()
    store.wait(lambda: running.started == ["m0"])
    assert not saved
    record(store, match)
    store.wait(lambda: saved == [True])
    end(running)


def test_a_coroutine_begins_on_the_loop(store: FakeStore) -> None:
    running = at_rest(store, Running(store, coroutines=2))
    match = begun(task=add_async)
    assert match.placement.slots is running.worker._slots[1]
    match.refused()
    end(running)


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_what_waits_for_the_store_s_answer_is_not_taken_back(kind: str) -> None:
    """It would be given back as unrun, and might begin nevertheless."""
    chunk = Chunk(deque([Held(leased(), Line(POOL, FakeStore(), "w", lease_ms=1))]), 0.0, unrecorded=True)
    slots: Slots
    if kind == "threads":
        slots = ThreadSlots(1, lambda held: None, lambda chunk: None)
        slots.begin(chunk)
    else:
        slots = loop = LoopSlots(1, never, lambda chunk: None)
        loop._inbox.append(chunk)  # a loop that a body blocks
    slots.count_in(chunk)
    assert slots.idle == 0
    assert slots.take_unbegun() == []
    chunk.unrecorded = False
    assert len(slots.take_unbegun()) == 1


async def never(held: Held) -> Outcome:
    raise AssertionError


class TestClearance:
    def test_it_asks_a_share_at_a_time_and_each_once(self) -> None:
        clearance, asked = Clearance(), []
        for number in range(AT_ONCE + 20):
            assert clearance.holds("acme", f"lane{number % (AT_ONCE + 10)}") is None

        def unlimited(scopes: Any) -> tuple[int, list[bool]]:
            asked.append(len(scopes))
            return 1, [True] * len(scopes)

        while clearance.wanted:
            clearance.look_up(unlimited)
        assert sum(asked) == AT_ONCE + 20
        assert clearance.holds("acme", "lane7") is True

    def test_a_question_that_fails_is_asked_anew_by_the_next_who_wants_to_know(self) -> None:
        clearance = Clearance()
        clearance.holds("acme", "main")

        def away(scopes: Any) -> tuple[int, list[bool]]:
            raise StoreUnavailable("away")

        with pytest.raises(StoreUnavailable):
            clearance.look_up(away)
        assert not clearance.wanted
        assert clearance.holds("acme", "main") is None
        assert clearance.wanted
