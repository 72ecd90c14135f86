"""The worker's loop against a store in memory: what is leased, when, and how it ends."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from queueapp.errors import StoreError
from queueapp.store.records import Cycle
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_CUT_SHORT, EXIT_DONE
from queueapp.worker.slots import Held
from tests.unit.fake_store import FakeStore
from tests.unit.running import Running


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


def test_batch_runs_everything_and_ends(store: FakeStore) -> None:
    store.add(1000)
    running = Running(store, slots=4, batch=True).start()
    assert running.join() == EXIT_DONE
    assert len(store.outcomes) == 1000
    assert sorted(running.started) == sorted(store.outcomes)
    assert store.forgotten


def test_tiny_jobs_travel_in_bulk(store: FakeStore) -> None:
    store.add(2000)
    Running(store, slots=4, batch=True).start().join()
    assert len(store.calls) < 200, "one round trip must serve many tiny jobs"


def test_slow_jobs_are_never_leased_ahead(store: FakeStore) -> None:
    store.add(12)
    running = Running(store, slots=2, batch=True)
    most = 0

    def watch(held: Held) -> None:
        nonlocal most
        with store.lock:
            most = max(most, len(store.active))
        time.sleep(0.06)  # a body that is not quick

    running.bodies["tests.noop"] = watch
    running.start().join()
    assert most <= 2
    assert len(store.outcomes) == 12


def test_every_begun_job_is_known_as_begun_before_or_soon_after(store: FakeStore, gate: threading.Event) -> None:
    store.add(1, "slow")
    running = Running(store, slots=2)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: store.begun == {"j0"})
    gate.set()
    running.worker.stop()
    assert running.join() == EXIT_DONE


def slow_one(store: FakeStore, gate: threading.Event, slots: int) -> Running:
    """A worker that has learnt that jobs are tiny, then meets one of the same task that is not, amid 200 that are."""
    begun = threading.Event()

    def body(held: Held) -> None:
        if held.job.id == "long":
            begun.set()
            gate.wait(10)

    store.add(300)
    store.pending.append(("long", "tests.noop"))
    store.add(200, prefix="k")
    running = Running(store, slots=slots)
    running.bodies["tests.noop"] = body
    running.start()
    assert begun.wait(10)
    return running


def test_jobs_behind_a_slow_one_are_given_back_while_it_runs(store: FakeStore, gate: threading.Event) -> None:
    """C068: a worker must not sit on jobs that it cannot start."""
    running = slow_one(store, gate, slots=1)
    store.wait(lambda: store.active.keys() == {"long"})
    assert store.returned
    store.wait(lambda: "long" in store.begun)  # from then on its loss counts as a crash
    returned = len(store.returned)
    running.wait_turn()
    assert len(store.returned) == returned, "a slot that is taken is no room: nothing comes and goes"
    assert (running.lines[0].mean_ms or 0) > 5, "the estimate was too low: it looks less far ahead"
    gate.set()
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_jobs_behind_a_slow_one_move_to_a_free_slot(store: FakeStore, gate: threading.Event) -> None:
    running = slow_one(store, gate, slots=2)
    store.wait(lambda: store.active.keys() == {"long"} and not store.pending)
    assert {job.id for job in store.returned} | store.outcomes.keys() >= {f"k{n}" for n in range(200)}
    gate.set()
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_a_job_leased_before_begins_only_when_the_store_knows(store: FakeStore) -> None:
    """C016: a job that kills its process counts each time, so its later starts are told beforehand."""
    store.add(200)
    store.add(20, prefix="again")
    store.attempts.update({f"again{n}": 1 for n in range(20)})
    untold: list[str] = []

    def check(held: Held) -> None:
        with store.lock:
            if held.job.attempts > 1 and held.job.id not in store.begun:
                untold.append(held.job.id)

    running = Running(store, slots=2, batch=True)
    running.bodies["tests.noop"] = check
    running.start().join()
    assert not untold
    assert len(store.outcomes) == 220


def test_a_lost_reply_is_asked_for_again_under_the_same_number(store: FakeStore) -> None:
    store.add(5)
    store.lose_replies = 3
    running = Running(store, slots=2, batch=True).start()
    assert running.join() == EXIT_DONE
    assert len(store.outcomes) == 5
    assert [call["seq"] for call in store.calls[:4]] == [1, 1, 1, 1]
    assert len(running.started) == 5, "no job ran twice"


def test_outcomes_wait_while_the_store_is_away(store: FakeStore, gate: threading.Event) -> None:
    store.add(2, "slow")
    running = Running(store, slots=2)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: len(running.started) == 2)
    store.away = True
    gate.set()
    store.wait(lambda: running.lines[0].away)
    assert not store.outcomes
    store.away = False
    store.wait(lambda: len(store.outcomes) == 2)
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_an_idle_worker_parks_and_is_woken(store: FakeStore) -> None:
    running = Running(store, slots=2).start()
    running.blocking.wait_parked()
    calls = len(store.calls)
    running.wait_turn()
    assert len(store.calls) == calls, "it must not poll"
    store.add(3)
    running.blocking.wake()
    store.wait(lambda: len(store.outcomes) == 3)
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_a_token_taken_without_a_free_slot_goes_back(store: FakeStore) -> None:
    line = Line("pool", store, "w", lease_ms=30_000)
    line.exchange(1, 1)
    assert not line.wants_call(0, time.monotonic())
    line.took_token()
    assert line.wants_call(0, time.monotonic()), "the call arms the token again"
    line.exchange(0, 0)
    assert store.calls[-1]["want"] == 0
    assert not line.wants_call(0, time.monotonic())


def test_runnable_but_nothing_leased_is_no_hot_loop(store: FakeStore) -> None:
    class Racy(FakeStore):
        """Says that something is runnable, and never has it."""

        def cycle(self, worker, seq, **values):  # type: ignore[no-untyped-def]  # hands on what it gets
            reply = super().cycle(worker, seq, **values)
            return type(reply)(
                jobs=(), runnable=True, next_due_ms=-1, now_ms=1, finished=reply.finished, lost=reply.lost
            )

    now, pauses = 1000.0, []
    line = Line("pool", Racy(), "w", lease_ms=30_000, clock=lambda: now)
    for _ in range(10):
        assert line.wants_call(1, now)
        line.exchange(1, 1)
        pauses.append(line.next_at(1) - now)
        assert not line.wants_call(1, now)
        now += pauses[-1]
    assert pauses == pytest.approx([0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1])


def test_a_call_that_moved_others_out_of_the_way_is_followed_by_the_next_at_once(store: FakeStore) -> None:
    """It leased nothing, and there is more to move: jobs whose concurrency keys are full stand before others."""

    class Crowded(FakeStore):
        def cycle(self, worker, seq, **values):  # type: ignore[no-untyped-def]  # hands on what it gets
            reply = super().cycle(worker, seq, **values)
            more = len(self.calls) < 3
            return replace(reply, jobs=(), runnable=True, more=more)

    line = Line("pool", Crowded(), "w", lease_ms=30_000, clock=lambda: 1000.0)
    asked_at_once = []
    for _ in range(4):
        line.exchange(1, 1)
        asked_at_once.append(line.wants_call(1, 1000.0))
    assert asked_at_once == [True, True, False, False]


def test_pools_take_turns(store: FakeStore) -> None:
    other = FakeStore()
    store.add(40, "slow")
    other.add(40, "slow", prefix="o")
    running = Running(store, other, slots=2, batch=True)
    running.bodies["slow"] = lambda held: time.sleep(0.003)  # bodies that take a while
    running.start().join()
    assert len(store.outcomes) == len(other.outcomes) == 40
    first_half = running.started[:40]
    assert 8 <= sum(name.startswith("o") for name in first_half) <= 32


def test_a_pool_whose_calls_are_refused_takes_no_slot_from_the_others(store: FakeStore) -> None:
    class Spoilt(FakeStore):
        def cycle(self, *args: object, **call: object) -> Cycle:
            raise StoreError("a key of a wrong type")

    running = Running(Spoilt(), store, slots=1)
    running.start()
    running.blocking.wait_parked()
    store.add(20)
    running.blocking.wake()
    store.wait(lambda: len(store.outcomes) == 20)
    running.worker.stop(now=True)
    running.join()


def test_leases_are_extended_and_a_lost_one_is_told(store: FakeStore, gate: threading.Event) -> None:
    bodies: list[Held] = []

    def body(held: Held) -> None:
        bodies.append(held)
        gate.wait(10)

    store.add(1, "slow")
    running = Running(store, slots=1, lease_ms=150)
    running.bodies["slow"] = body
    running.start()
    store.wait(lambda: store.extended.count("j0") >= 2)
    with store.lock:
        del store.active["j0"]  # recovered by somebody else
    store.wait(lambda: any(held.lost for held in bodies))
    gate.set()
    store.wait(lambda: "j0" in store.refused)
    running.worker.stop()
    running.join()


def test_max_tasks(store: FakeStore) -> None:
    store.add(50)
    running = Running(store, slots=4, max_tasks=7).start()
    assert running.join() == EXIT_DONE
    assert len(running.started) == len(store.outcomes) == 7
    assert not store.active
    assert running.worker.spent


def test_the_first_stop_lets_running_jobs_end_and_leases_no_more(store: FakeStore, gate: threading.Event) -> None:
    store.add(3, "slow")
    running = Running(store, slots=2)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: len(running.started) == 2)
    running.worker.stop()
    store.wait(lambda: bool(running.worker.unready))
    assert running.thread.is_alive()
    gate.set()
    assert running.join() == EXIT_DONE
    assert len(store.outcomes) == 2
    assert len(store.pending) == 1
    assert not store.returned, "it was not even leased"
    assert store.forgotten


def test_after_the_grace_running_jobs_are_given_back(store: FakeStore, gate: threading.Event) -> None:
    told: list[bool] = []

    def body(held: Held) -> None:
        gate.wait(10)
        told.append(held.lost)

    store.add(1, "slow")
    running = Running(store, slots=1, grace_ms=100)
    running.bodies["slow"] = body
    running.start()
    store.wait(lambda: len(running.started) == 1)
    running.worker.stop()
    assert running.join() == EXIT_CUT_SHORT
    assert [job.id for job in store.returned] == ["j0"]
    assert not store.active
    gate.set()


@pytest.mark.parametrize("stopped", [False, True])
def test_one_that_retires_leases_no_more_and_has_no_grace_until_it_is_stopped(
    store: FakeStore, gate: threading.Event, stopped: bool
) -> None:
    store.add(2, "slow")
    running = Running(store, slots=1, grace_ms=0)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: len(running.started) == 1)
    for _ in range(2):
        running.worker.retire()
    running.wait_turn()
    assert running.code is None, "whoever retires has the time it takes"
    assert running.worker.unready == "it is stopping"
    if stopped:
        running.worker.stop()
        assert running.join() == EXIT_CUT_SHORT
    else:
        gate.set()
        assert running.join() == EXIT_DONE
    assert len(running.started) == 1


def test_the_second_stop_gives_back_at_once(store: FakeStore, gate: threading.Event) -> None:
    store.add(1, "slow")
    running = Running(store, slots=1, grace_ms=60_000)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: len(running.started) == 1)
    running.worker.stop()
    running.worker.stop()
    assert running.join() == EXIT_CUT_SHORT
    assert [job.id for job in store.returned] == ["j0"]


def test_a_stop_while_the_store_is_away_ends_with_the_grace(store: FakeStore) -> None:
    running = Running(store, slots=1, grace_ms=200)
    store.add(1)
    store.lose_replies = 10**6
    running.start()
    store.wait(lambda: len(store.calls) >= 2)
    running.worker.stop()
    running.join()
    assert running.code in {EXIT_DONE, EXIT_CUT_SHORT}


def test_jobs_of_a_late_reply_are_given_back_by_a_stopping_worker(store: FakeStore) -> None:
    store.add(2)
    store.lose_replies = 2
    running = Running(store, slots=2, grace_ms=5000).start()
    store.wait(lambda: len(store.calls) >= 1)
    running.worker.stop()
    assert running.join() == EXIT_DONE
    assert not store.active
    assert not running.started
    assert {job.id for job in store.returned} == {"j0", "j1"}


def test_an_outcome_that_is_never_reported_leaves_the_slot_free(store: FakeStore) -> None:
    store.add(2, "dropped")
    running = Running(store, slots=1, batch=True, run=lambda held, faults, limits: None).start()
    assert running.join() == EXIT_DONE
    assert not store.outcomes
    assert len(store.active) == 2, "the leases are left to run out"


def test_what_was_given_back_meanwhile_keeps_a_batch_from_ending(store: FakeStore) -> None:
    """The store said that nothing is left while the job was held here; then it went back unrun."""
    store.add(1)
    line = Line("default", store, "w", lease_ms=30_000)
    [held] = line.exchange(4, 0)
    line.exchange(4, 0)
    assert line.empty
    line.give_up(held)
    line.give_back()
    assert not line.empty
