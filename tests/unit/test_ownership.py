"""Worker and scheduler while their namespace goes to another installation, and when it comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from time import monotonic

import pytest

from queueapp.scheduler.loop import Scheduler
from queueapp.store.records import Completed
from queueapp.sync.installation import Ownership
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.loop import EXIT_DONE, Worker, WorkerOptions
from queueapp.worker.parker import Parker
from queueapp.worker.slots import Held, Outcome
from tests.unit.fake_store import FakeBlocking, FakeStore
from tests.unit.test_scheduler import Duties


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


class Worked:
    """A worker in a thread; its bodies wait for `gate`."""

    def __init__(self, store: FakeStore, ownership: Said, gate: threading.Event, **options: object) -> None:
        self.gate = gate
        blocking = FakeBlocking()
        self.worker = Worker(
            [Line("pool", store, "w", lease_ms=30_000)],
            WorkerOptions(slots=1, **options),  # type: ignore[arg-type]
            lambda post: Parker(lambda: blocking, ["pool"], post),
            ownership=ownership,
            run=self._run,
        )
        self.code: int | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _run(self, held: Held, faults: Faults) -> Outcome:
        self.gate.wait(10)
        return Completed(id=held.job.id, attempts=held.job.attempts, run_ms=0)

    def _work(self) -> None:
        self.code = self.worker.run()

    def join(self) -> int | None:
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self.code


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def ownership() -> Said:
    return Said()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_worker_leases_nothing_while_the_namespace_is_foreign(
    store: FakeStore, ownership: Said, gate: threading.Event
) -> None:
    gate.set()
    ownership.foreign = True
    worked = Worked(store, ownership, gate)
    store.add(5)
    looks = ownership.looks
    store.wait(lambda: ownership.looks > looks + 10)
    assert not store.outcomes
    assert len(store.pending) == 5

    ownership.foreign = False
    store.wait(lambda: len(store.outcomes) == 5)
    worked.worker.stop()
    assert worked.join() == EXIT_DONE


def test_what_runs_when_it_is_taken_over_ends_as_usual(
    store: FakeStore, ownership: Said, gate: threading.Event
) -> None:
    store.add(2, "slow")
    worked = Worked(store, ownership, gate)
    store.wait(lambda: store.begun == {"j0"})
    ownership.foreign = True
    store.wait(lambda: ownership.barred)
    gate.set()
    store.wait(lambda: "j0" in store.outcomes)
    looks = ownership.looks
    store.wait(lambda: ownership.looks > looks + 10)
    assert set(store.outcomes) == {"j0"}
    worked.worker.stop()
    assert worked.join() == EXIT_DONE


def test_a_batch_ends_when_it_is_taken_over(store: FakeStore, ownership: Said, gate: threading.Event) -> None:
    store.add(2, "slow")
    worked = Worked(store, ownership, gate, batch=True)
    store.wait(lambda: store.begun == {"j0"})
    ownership.foreign = True
    store.wait(lambda: ownership.barred)
    gate.set()
    assert worked.join() == EXIT_DONE
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
    scheduler = Scheduler("me", lambda: ["a"], lambda pool: store, [common], ownership=ownership)
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


def until(condition: object) -> None:
    """Looks again and again, at most ten seconds."""
    assert callable(condition)
    deadline, pause = monotonic() + 10, threading.Event()
    while not condition():
        assert monotonic() < deadline
        pause.wait(0.005)
