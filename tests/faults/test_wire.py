"""Processes on a bad wire: slow, cut in a reply, half closed, silent. Nothing is lost, nothing is twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queueapp import enqueue_many
from queueapp.store import scripts
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests.faults.wire import Wire
from tests.integration import jobs
from tests.integration.conftest import Manage, until

Spoil = Callable[[Wire], None]


def _slow(wire: Wire) -> None:
    wire.delay_s = 0.05


def _cut(wire: Wire) -> None:
    wire.cut_after = 700


def _silent(wire: Wire) -> None:
    wire.freeze()


SPOILS: dict[str, Spoil] = {"slow": _slow, "cut": _cut, "half_close": Wire.half_close, "silent": _silent}


@pytest.mark.parametrize("way", SPOILS)
def test_a_worker_goes_on_over_a_wire_that_was_spoilt(
    worker: Manage, manage: Manage, store: Store, reads: Reads, wire: Wire, way: str
) -> None:
    settings = {"LEASE_SECONDS": 2, "MAX_CRASHES": 20, "LEADER_TTL_SECONDS": 1}
    scheduler = manage("scheduler", **settings)
    spoilt = worker("--slots", "2", env={"REDIS_URL": wire.url}, **settings)
    until(lambda: reads.overview().workers)
    sent = enqueue_many([jobs.sleep.bind(0.02) for _ in range(40)])
    until(lambda: reads.overview().stats.get("completed", 0) >= 5)
    SPOILS[way](wire)
    other = worker("--slots", "2", **settings)
    other.wait_for("Worker started")
    sent += enqueue_many([jobs.sleep.bind(0.02) for _ in range(40)])
    until(lambda: reads.overview().ended == len(sent), timeout=60)
    if way == "silent":
        wire.thaw()
    wire.delay_s = 0.0
    assert other.stop() == 0
    enqueue_many([jobs.noop.bind()])[0].result.wait(timeout=30)  # type: ignore[union-attr]  # None would fail the test
    assert reads.overview().stats["completed"] == len(sent) + 1
    assert spoilt.stop() == 0
    assert scheduler.stop() == 0


@pytest.mark.parametrize("name", ["cycle", "register"])
def test_a_reply_that_got_lost_costs_a_repeat_and_nothing_else(
    worker: Manage, store: Store, reads: Reads, wire: Wire, name: str
) -> None:
    running = worker("--slots", "2", env={"REDIS_URL": wire.url})
    until(lambda: reads.overview().workers)
    for _ in range(5):
        wire.swallow = scripts.script(name).function.encode()
        for sent in enqueue_many([jobs.noop.bind(n) for n in range(5)]):
            assert sent.result is not None
            sent.result.wait(timeout=20)
        if name == "register":
            break
    seen = reads.overview()
    assert seen.stats["completed"] == seen.ended
    assert seen.stats.get("lost", 0) == 0
    assert running.stop() == 0
