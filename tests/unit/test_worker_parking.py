"""Parking: for which pools a worker waits while some of them have no room."""

from __future__ import annotations

import threading

from queueapp.worker.line import Line
from queueapp.worker.parker import Parker
from queueapp.worker.parking import Parking
from tests.unit.fake_store import FakeBlocking, FakeStore

NOW = 100.0


class Parked:
    """A parker over two pools in which nothing is runnable."""

    def __init__(self) -> None:
        self.posted = threading.Semaphore(0)
        self.connections: list[FakeBlocking] = []
        self.lines = [Line(pool, FakeStore(), "w", lease_ms=30_000) for pool in ("a", "b")]
        for line in self.lines:
            line.hungry = False
        self.a, self.b = (line.wake_key for line in self.lines)
        self.parker = Parker(self._connect, [self.a, self.b], self.posted.release)
        self.parker.start()
        self._parking = Parking(self.parker)

    def tend(self, a: int, b: int) -> None:
        """A round in which the pools have so much room."""
        self._parking.tend(self.lines, {"a": a, "b": b}, NOW)

    def listens_to(self, connection: int) -> set[str]:
        """The keys of the wait on that connection, once it has begun."""
        while len(self.connections) <= connection:
            threading.Event().wait(0.002)
        self.connections[connection].wait_parked()
        return set(self.connections[connection].calls[0][0])

    def _connect(self) -> FakeBlocking:
        self.connections.append(FakeBlocking())
        return self.connections[-1]


def test_a_pool_that_has_room_again_is_listened_to_at_once() -> None:
    parked = Parked()
    parked.tend(1, 0)
    assert parked.listens_to(0) == {parked.a}
    parked.tend(1, 1)
    assert parked.connections[0].closed, "the wait that is deaf to it is called back"
    assert parked.posted.acquire(timeout=10)
    parked.tend(1, 1)
    assert parked.listens_to(1) == {parked.a, parked.b}
    parked.parker.close()


def test_a_wait_that_is_right_goes_on() -> None:
    parked = Parked()
    parked.tend(1, 0)
    parked.listens_to(0)
    parked.tend(5, 0)
    assert not parked.connections[0].closed
    parked.parker.close()


def test_a_pool_that_has_become_full_interrupts_no_wait() -> None:
    """A token that comes meanwhile goes back with the next call."""
    parked = Parked()
    parked.tend(1, 1)
    parked.listens_to(0)
    parked.tend(1, 0)
    assert not parked.connections[0].closed
    parked.parker.close()
