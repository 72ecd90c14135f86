"""What a worker's line tells of its sign of life, and what it does when the store does not see it."""

from __future__ import annotations

from queueapp.worker.line import REGISTER_S, Line
from tests.clock import Clock
from tests.unit.fake_store import FakeStore


def test_a_sign_of_life_that_the_store_does_not_see_is_doubted() -> None:
    store, clock, doubts, channel = FakeStore(), Clock(), list[float](), ""
    line = Line(
        "default",
        store,
        "me",
        lease_ms=30_000,
        channel=lambda: channel,
        doubt=lambda: doubts.append(clock()),
        clock=clock,
    )
    store.unseen = True
    line.exchange(0, 0)
    assert (store.channels, doubts) == ([""], []), "who tells none is not missed"
    channel = "there"
    line.exchange(0, 0)
    assert (store.channels, doubts) == (["", "there"], [clock()])
    store.unseen = False
    clock.now += REGISTER_S
    line.exchange(0, 0)
    assert (store.channels, len(doubts)) == (["", "there", "there"], 1)
