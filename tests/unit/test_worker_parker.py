"""The parker: how long it waits, in which order of keys, and that nothing keeps it from ending."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from queueapp.worker.parker import Parker, block_s, rotated
from tests.unit.fake_store import FakeBlocking


@pytest.mark.parametrize(
    ("next_due_s", "heartbeat_s", "dice", "expected"),
    [
        (None, None, 0.5, 5.0),
        (None, None, 0.0, 4.5),
        (None, None, 1.0, 5.5),
        (0.25, None, 0.5, 0.25),
        (0.25, 0.1, 0.5, 0.1),
        (60.0, 10.0, 0.5, 5.0),
        (float("inf"), float("inf"), 0.5, 5.0),
        (0.0, None, 0.5, 0.005),
        (-3.0, None, 0.5, 0.005),
    ],
)
def test_it_waits_5_s_give_or_take_or_until_something_is_due(
    next_due_s: float | None, heartbeat_s: float | None, dice: float, expected: float
) -> None:
    assert block_s(next_due_s, heartbeat_s, uniform=lambda: dice) == pytest.approx(expected)


def test_keys_take_turns() -> None:
    keys = ["a", "b", "c"]
    assert [rotated(keys, turn) for turn in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_a_token_the_timeout_and_an_error_all_post() -> None:
    client, posted = FakeBlocking(), threading.Semaphore(0)
    parker = Parker(lambda: client, ["a", "b"], posted.release)
    parker.start()
    client.wake()
    parker.park(5.0)
    assert posted.acquire(timeout=5)
    assert not parker.parked
    parker.park(0.01)
    assert posted.acquire(timeout=5)
    client.error = RuntimeError("the connection broke")
    parker.park(5.0)
    assert posted.acquire(timeout=5)
    assert [keys for keys, _ in client.calls] == [["b", "a"], ["a", "b"], ["b", "a"]]
    parker.close()


def test_it_parks_once_however_often_it_is_told() -> None:
    client, posted = FakeBlocking(), threading.Semaphore(0)
    parker = Parker(lambda: client, ["a"], posted.release)
    parker.start()
    for _ in range(5):
        parker.park(5.0)
    client.wait_parked()
    assert parker._orders.empty()
    client.wake()
    assert posted.acquire(timeout=5)
    parker.close()


def test_close_ends_it_in_the_middle_of_its_wait_and_posts_no_more() -> None:
    client, posted = FakeBlocking(), threading.Semaphore(0)
    parker = Parker(lambda: client, ["a"], posted.release)
    parker.start()
    parker.park(60.0)
    client.wait_parked()
    parker.close()
    parker._thread.join(5)
    assert not parker._thread.is_alive()
    assert not posted.acquire(blocking=False)


def test_close_catches_a_wait_that_was_only_about_to_begin() -> None:
    """A socket that is closed before that is opened again by the command, and would take a token for nobody."""
    about, begins = threading.Event(), threading.Event()

    class Late(FakeBlocking):
        def bzpopmin(self, keys: Sequence[str], timeout: float) -> object:
            about.set()
            assert begins.wait(5)
            with self.condition:
                self.closed = False  # it connects again
            return super().bzpopmin(keys, timeout)

        def close(self) -> None:
            super().close()
            begins.set()

    client = Late()
    parker = Parker(lambda: client, ["a"], lambda: None)
    parker.start()
    parker.park(60.0)
    assert about.wait(5)
    parker.close()
    assert not parker._thread.is_alive()


def test_after_close_no_wait_begins() -> None:
    connecting, goes_on = threading.Event(), threading.Event()
    client = FakeBlocking()

    def connect() -> FakeBlocking:
        connecting.set()
        assert goes_on.wait(5)
        return client

    parker = Parker(connect, ["a"], lambda: None)
    parker.start()
    parker.park(60.0)
    assert connecting.wait(5)
    parker._closing.set()
    goes_on.set()
    parker._thread.join(5)
    assert not client.calls


def test_a_store_that_is_away_makes_no_hot_loop() -> None:
    def refuse() -> FakeBlocking:
        raise ConnectionError("refused")

    posted = threading.Semaphore(0)
    parker = Parker(refuse, ["a"], posted.release)
    parker.start()
    started = time.monotonic()
    for _ in range(3):
        parker.park(5.0)
        assert posted.acquire(timeout=5)
    # 0.1 + 0.2 + 0.4 s
    assert time.monotonic() - started >= 0.6
    parker.close()


def test_it_does_not_listen_for_what_would_find_no_slot() -> None:
    blocking = FakeBlocking()
    parker = Parker(lambda: blocking, ["a", "b"], lambda: None)
    parker.start()
    parker.park(5.0, deaf=frozenset({"a"}))
    blocking.wait_parked()
    assert blocking.calls[0][0] == ["b"]
    assert parker.deaf == {"a"}
    parker.close()
