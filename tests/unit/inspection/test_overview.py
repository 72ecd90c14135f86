"""How a pool stands, in figures and in words: who leads, what waits longest, what stands still."""

from __future__ import annotations

import pytest

from queueapp.inspection.overview import pool_status
from queueapp.inspection.waits import _sweeps
from tests.unit.conftest import RoundTrips
from tests.unit.inspection.conftest import Scene

MOST_ROUND_TRIPS = 8


def test_c146_work_that_no_worker_serves_shows_as_such(scene: Scene) -> None:
    """C146: jobs pile up and nobody says why. Right: a pool with work and no worker says so."""
    assert not any("No worker" in note for note in pool_status("default").notes)
    scene.add()
    assert any("No worker serves this pool" in note for note in pool_status("default").notes)
    scene.store.register("w.1", {"host": "h"}, 60_000)
    assert not any("No worker" in note for note in pool_status("default").notes)


def test_who_leads_since_when_and_until_when(scene: Scene) -> None:
    nobody = pool_status("default")
    assert (nobody.leader, nobody.leader_epoch, nobody.leader_until, nobody.last_tick) == ("", 0, 0, 0)
    term = scene.store.lead_acquire("me", "nonce", 5_000)
    led = pool_status("default")
    assert (led.leader, led.leader_epoch) == ("me", term.epoch)
    assert led.last_tick == led.leader_until - 5_000
    scene.store.lead_renew("nonce", 9_000)
    renewed = pool_status("default")
    assert renewed.last_tick == renewed.leader_until - 9_000 >= led.last_tick
    scene.store.lead_release("nonce")
    after = pool_status("default")
    assert (after.leader, after.leader_until) == ("", 0)
    assert (after.leader_epoch, after.last_tick) == (term.epoch, renewed.last_tick), "what was is still known"


def test_why_a_leader_cannot_dispatch_is_told_while_it_leads(scene: Scene) -> None:
    scene.store.lead_acquire("me", "nonce", 5_000)
    scene.store.lead_renew("nonce", 5_000, "ZeroDivisionError while it chose.")
    [note] = pool_status("default").notes
    assert note.startswith("The leader cannot dispatch: ZeroDivisionError while it chose. Workers take")
    scene.store.lead_renew("nonce", 5_000)
    assert pool_status("default").notes == ()
    scene.store.lead_renew("nonce", 5_000, "ZeroDivisionError while it chose.")
    scene.store.lead_release("nonce")
    scene.store.lead_acquire("other", "nonce2", 5_000)
    assert pool_status("default").notes == (), "what hindered the one hinders not the next"


def test_what_stands_still_without_a_scheduler(scene: Scene) -> None:
    [note] = [note for note in pool_status("default").notes if "scheduler" in note]
    assert "relay of the outbox, sync repair" in note
    assert "Workers still promote due jobs and recover" in note
    scene.store.lead_acquire("me", "nonce", 60_000)
    assert not [note for note in pool_status("default").notes if "scheduler" in note]


def test_a_reading_is_a_few_round_trips_whatever_waits(scene: Scene, round_trips: RoundTrips) -> None:
    for number in range(30):
        scene.add(2, tenant=f"t{number}")
        scene.store.register(f"w.{number}", {"host": "h"}, 60_000)
    _sweeps.clear()
    pool_status("default")
    round_trips.since_last()
    status = pool_status("default")
    assert round_trips.since_last() <= MOST_ROUND_TRIPS
    assert (status.tenant_count, len(status.workers), status.oldest_wait_exact) == (30, 30, True)


@pytest.mark.parametrize("number", [3, 12])
def test_tenants_are_those_with_most_work(scene: Scene, number: int) -> None:
    for waiting in range(number):
        scene.add(waiting + 1, tenant=f"t{waiting}")
    assert list(pool_status("default").tenants.values()) == list(range(number, 0, -1))
