"""Scheduled dispatch with real processes: enqueue → leader → worker, whoever dies, freezes or takes over."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
import redis

from queueapp import enqueue_many
from queueapp.states import State
from queueapp.store.configuration import PoolConf
from queueapp.store.reads import Reads
from queueapp.store.store import Store
from tests import freezing
from tests.integration import jobs
from tests.integration.conftest import Manage, ManagedProcess, record, until
from tests.model.own_policies import OWN

FAST = {"LEADER_TTL_SECONDS": 1.5, "LEADER_RETRY_SECONDS": 0.2, "POLICIES": OWN}
TENANTS = ("ant", "bee", "cat")


def scheduler(manage: Manage, name: str, policy: str = "drr", **pool: Any) -> ManagedProcess:
    values = {"POLICY": policy, "DISPATCH": "scheduled", **pool}
    return manage("scheduler", "--scheduler-id", name, **FAST, POOLS={"default": values})


def put_in_force(store: Store, policy: str = "drr") -> None:
    """What a scheduler's sync does, before any runs."""
    store.configure(1, pool=PoolConf(policy=policy, dispatch="scheduled"))


def some(count: int) -> list[str]:
    calls = [jobs.noop.using(tenant=TENANTS[number % 3]).bind(number) for number in range(count)]
    return [str(handle.id) for handle in enqueue_many(calls)]


def once_each(reads: Reads, ids: list[str]) -> None:
    """All have completed, and each was leased once, but for leases that the store counted as given back unrun: what a
    slot does not begin within 25 ms goes back, and a busy machine may not begin it."""
    until(lambda: reads.overview().ended == len(ids), timeout=60, what=f"{reads.overview()}")
    found = reads.jobs([one[-22:] for one in ids])
    assert {(each.outcome, len(each.errors)) for each in found if each is not None} == {("completed", 0)}
    assert None not in found
    again = sum(each.attempts - 1 for each in found if each is not None)
    assert again == reads.overview().stats.get("returned", 0)


@pytest.mark.parametrize("policy", ["tiered", "lottery", "own_ring"])
def test_what_is_enqueued_goes_by_the_leader_to_a_worker(
    manage: Manage, worker: Manage, store: Store, reads: Reads, policy: str
) -> None:
    leads = scheduler(manage, "only", policy)
    leads.wait_for("Leading")
    until(lambda: reads.configured().dispatch == "scheduled")
    runs = worker("--slots", "2")
    runs.wait_for("Worker started")
    once_each(reads, some(60))
    assert reads.overview().stats["dispatched"] >= 60
    assert runs.stop() == 0
    assert leads.stop() == 0


def test_without_a_leader_nothing_starts_and_nothing_is_lost(
    manage: Manage, worker: Manage, store: Store, reads: Reads
) -> None:
    put_in_force(store)
    ids = some(5)
    assert worker("--batch").wait() == 0
    assert {record(reads, one).state for one in ids} == {State.INGRESS}
    leads = scheduler(manage, "late")
    runs = worker("--slots", "2")
    once_each(reads, ids)
    assert runs.stop() == 0
    assert leads.stop() == 0


def test_what_a_dead_leader_read_and_did_not_admit_is_claimed(
    manage: Manage, worker: Manage, store: Store, reads: Reads
) -> None:
    put_in_force(store)
    ids = some(30)
    assert len(store.read_ingress("died", 20)) == 20
    leads = scheduler(manage, "next")
    runs = worker("--slots", "2")
    once_each(reads, ids)
    assert runs.stop() == 0
    assert leads.stop() == 0


@pytest.mark.parametrize("policy", ["drr", "wfq"])
def test_a_leader_that_is_killed_in_the_middle_loses_nothing_and_nothing_runs_twice(
    manage: Manage, worker: Manage, store: Store, reads: Reads, policy: str
) -> None:
    first = scheduler(manage, "first", policy)
    first.wait_for("Leading")
    until(lambda: reads.configured().dispatch == "scheduled")
    second = scheduler(manage, "second", policy)
    runs = worker("--slots", "4")
    runs.wait_for("Worker started")
    ids = some(800)
    until(lambda: reads.overview().ended >= 100)
    first.signal(signal.SIGKILL)
    left = reads.overview().ended
    assert left < 800, "it was killed in the middle"
    once_each(reads, ids)
    second.wait_for("Leading")
    assert runs.stop() == 0
    assert second.stop() == 0


@pytest.mark.faults
def test_a_frozen_leader_that_wakes_is_fenced_and_does_no_harm(
    manage: Manage, worker: Manage, store: Store, reads: Reads
) -> None:
    first = scheduler(manage, "first")
    first.wait_for("Leading")
    until(lambda: reads.configured().dispatch == "scheduled")
    runs = worker("--slots", "4")
    runs.wait_for("Worker started")
    ids = some(600)
    until(lambda: reads.overview().ended >= 20)
    freezing.freeze(first.pid)
    second = scheduler(manage, "second")
    second.wait_for("Leading")
    first.signal(signal.SIGCONT)
    first.wait_for("No longer leading")
    once_each(reads, ids)
    for running in (runs, first, second):
        assert running.stop() == 0


def test_an_idle_leader_asks_the_store_for_next_to_nothing(
    manage: Manage, worker: Manage, store: Store, reads: Reads, redis_client: redis.Redis
) -> None:
    leads = scheduler(manage, "only")
    runs = worker("--slots", "2")
    leads.wait_for("Leading")
    until(lambda: reads.configured().dispatch == "scheduled")
    once_each(reads, some(10))
    time.sleep(1)
    before = calls(redis_client)
    time.sleep(4)
    made = {name: count - before.get(name, 0) for name, count in calls(redis_client).items()}
    # A scheduler looks at due jobs and lost leases once or twice a second, and renews twice; a worker parks.
    assert made.get("xreadgroup", 0) <= 3
    assert made.get("bzpopmin", 0) <= 6
    assert made.get("fcall", 0) <= 4 * 8
    assert runs.stop() == 0
    assert leads.stop() == 0


def calls(client: redis.Redis) -> dict[str, int]:
    """Calls of each command since the server started."""
    found: Any = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): figures["calls"] for name, figures in found.items()}
