"""Worker and scheduler while their namespace goes to another installation, and when it comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, cast

import pytest

from queueapp.scheduler.loop import Scheduler
from queueapp.sync.installation import Ownership
from queueapp.worker.loop import EXIT_DONE
from tests.unit.fake_store import FakeStore
from tests.unit.running import Running
from tests.unit.scheduler.test_loop import Duties


class Said(Ownership):
    """An ownership that a test decides, looked at every few milliseconds."""

    def __init__(self) -> None:
        super().__init__("ours")
        self.foreign = False
        self.looks = 0
        self.next_at = 0.0

    def look(self) -> None:
        self.barred = self.foreign
        self.looks += 1
        self.next_at = monotonic() + 0.01


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def ownership() -> Said:
    return Said()


def test_a_worker_leases_nothing_while_the_namespace_is_foreign(store: FakeStore, ownership: Said) -> None:
    ownership.foreign = True
    running = Running(store, slots=1, ownership=ownership).start()
    store.add(5)
    looks = ownership.looks
    store.wait(lambda: ownership.looks > looks + 10)
    assert not store.outcomes
    assert len(store.pending) == 5

    ownership.foreign = False
    store.wait(lambda: len(store.outcomes) == 5)
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_what_runs_when_it_is_taken_over_ends_as_usual(
    store: FakeStore, ownership: Said, gate: threading.Event
) -> None:
    store.add(2, "slow")
    running = Running(store, slots=1, ownership=ownership)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: store.begun == {"j0"})
    ownership.foreign = True
    store.wait(lambda: ownership.barred)
    gate.set()
    store.wait(lambda: "j0" in store.outcomes)
    looks = ownership.looks
    store.wait(lambda: ownership.looks > looks + 10)
    assert set(store.outcomes) == {"j0"}
    running.worker.stop()
    assert running.join() == EXIT_DONE


def test_a_batch_ends_when_it_is_taken_over(store: FakeStore, ownership: Said, gate: threading.Event) -> None:
    store.add(2, "slow")
    running = Running(store, slots=1, batch=True, ownership=ownership)
    running.bodies["slow"] = lambda held: gate.wait(10)
    running.start()
    store.wait(lambda: store.begun == {"j0"})
    ownership.foreign = True
    store.wait(lambda: ownership.barred)
    gate.set()
    assert running.join() == EXIT_DONE
    assert set(store.outcomes) == {"j0"}


class Common:
    """A duty that belongs to no pool."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self) -> float:
        self.calls += 1
        return 0.01


def test_a_scheduler_neither_leads_nor_does_its_duties_while_the_namespace_is_foreign(ownership: Said) -> None:
    store, common = Duties(), Common()
    scheduler = Scheduler("me", lambda: ["a"], lambda pool: cast(Any, store), [common], ownership=ownership)
    thread = threading.Thread(target=scheduler.run, daemon=True)
    thread.start()
    store.wait(lambda: store.promoted >= 6 and bool(store.nonce))

    ownership.foreign = True
    with store.changed:
        store.changed.wait_for(lambda: not store.nonce, 5)
    until(lambda: ownership.barred and not store.nonce)
    done = (store.promoted, store.recovered, store.trimmed, common.calls)
    looks = ownership.looks
    until(lambda: ownership.looks > looks + 20)
    assert (store.promoted, store.recovered, store.trimmed, common.calls) == done
    assert not store.nonce, "the lease was given back and not taken again"

    ownership.foreign = False
    store.wait(lambda: store.promoted > done[0] and common.calls > done[3])
    scheduler.stop()
    thread.join(5)
    assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    """Looks again and again, at most ten seconds."""
    deadline, pause = monotonic() + 10, threading.Event()
    while not condition():
        assert monotonic() < deadline
        pause.wait(0.005)
