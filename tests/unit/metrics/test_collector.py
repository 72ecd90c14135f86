"""Gauges from the store: true at the moment of the scrape, the same on every page, gone when the store is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings
from prometheus_client import CollectorRegistry

from ductor_project.settings import DUCTOR
from queueapp.errors import StoreError, StoreUnavailable
from queueapp.inspection import collector
from queueapp.inspection.collector import BUDGET_S, KEPT_S, LeaderCollector, StoreCollector
from queueapp.inspection.overview import PoolStatus, pool_status
from queueapp.monitoring.page import page
from queueapp.store import embedded, shards
from queueapp.store.ids import new_id
from queueapp.store.records import Failed, NewJob
from queueapp.store.store import Store
from tests import freezing
from tests.clock import Clock
from tests.unit.metrics.reading import Samples, samples, value


@pytest.fixture
def clock() -> Clock:
    return Clock()


def read(shown: StoreCollector | LeaderCollector) -> Samples:
    """What a page shows of this collector alone."""
    registry = CollectorRegistry()
    registry.register(shown)
    text, _ = page("", [shown])
    return {key: number for key, number in samples(text).items() if key[0] in names(shown)}


def names(shown: StoreCollector | LeaderCollector) -> set[str]:
    return {sample.name for family in shown.collect() for sample in family.samples}


def job(**values: Any) -> NewJob:
    return NewJob(id=new_id(), task="t", tenant="acme", payload=b"{}", fingerprint="f", **values)


def test_it_shows_how_the_pool_stands(store: Store) -> None:
    store.enqueue([job(), job(), job(delay_ms=60_000), job(), job()])
    store.register("w.1", {}, 60_000)
    leased = store.check_and_lease("w.1", 1, want=2, begin=2, lease_ms=30_000).jobs
    store.fail([Failed(id=leased[0].id, attempts=1, run_ms=1, error=b"{}")])
    term = store.lead_acquire("s.1", "n" * 32, 5_000)
    time.sleep(0.05)
    seen = read(StoreCollector())
    here = {"pool": "default", "shard": "0"}
    for name, number in {
        "ductor_pending_tasks": 2,
        "ductor_scheduled_tasks": 1,
        "ductor_active_tasks": 1,
        "ductor_dead_letters": 1,
        "ductor_workers_live": 1,
        "ductor_tasks_enqueued_total": 5,
        "ductor_tasks_dead_lettered_total": 1,
        "ductor_tasks_lost_total": 0,
        "ductor_scheduler_leader_term": term.epoch,
    }.items():
        assert value(seen, name, **here) == number, name
    assert 0.05 <= value(seen, "ductor_longest_pending_wait_seconds", **here) < 60
    assert 0 <= value(seen, "ductor_scheduler_leader_age_seconds", **here) < 60
    assert abs(value(seen, "ductor_scheduler_last_tick_timestamp_seconds", **here) - time.time()) < 60
    assert value(seen, "ductor_store_up") == 1


def test_a_pool_that_nobody_has_used_stands_at_zero(store: Store) -> None:
    seen = read(StoreCollector())
    assert value(seen, "ductor_pending_tasks", pool="default", shard="0") == 0
    assert value(seen, "ductor_longest_pending_wait_seconds", pool="default", shard="0") == 0
    assert not [name for name, _ in seen if "leader" in name or "tick" in name], "there was no leader to tell of"


def test_a_look_is_kept_for_a_second_and_no_longer(store: Store, clock: Clock) -> None:
    shown = StoreCollector(clock)

    def pending() -> float:
        return value(read(shown), "ductor_pending_tasks", pool="default", shard="0")

    assert pending() == 0
    store.enqueue([job()])
    clock.now += KEPT_S / 2
    assert pending() == 0
    clock.now += KEPT_S / 2
    assert pending() == 1


def test_what_is_described_is_what_is_collected_and_costs_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = StoreCollector()
    store.lead_acquire("s.1", "n" * 32, 5_000)
    collected = {(family.name, family.type) for family in shown.collect()}
    monkeypatch.setattr(collector, "pool_status", None)
    monkeypatch.setattr(shards, "pools", None)
    described = list(StoreCollector().describe())
    assert {(family.name, family.type) for family in described} == collected
    assert [sample.name for family in described for sample in family.samples] == ["ductor_store_up"]


def test_a_store_that_is_gone_leaves_nothing_behind(own_server: Callable[..., embedded.EmbeddedServer]) -> None:
    """C158: no gauge outlives what it says."""
    server = own_server()
    clock = Clock()
    shown = StoreCollector(clock)
    with override_settings(DUCTOR={**DUCTOR, "REDIS_URL": server.url}):
        assert value(read(shown), "ductor_pending_tasks", pool="default", shard="0") == 0
        server.stop()
        clock.now += KEPT_S
        assert read(shown) == {("ductor_store_up", ()): 0.0}


@pytest.mark.faults
def test_a_store_that_hangs_costs_a_scrape_a_second(own_server: Callable[..., embedded.EmbeddedServer]) -> None:
    server = own_server()
    with override_settings(DUCTOR={**DUCTOR, "REDIS_URL": server.url, "POOLS": {f"p{n}": {} for n in range(20)}}):
        shown = StoreCollector()
        assert len(shown.look().pools) == 21
        shown.forget()
        freezing.freeze(server.pid)
        try:
            started = time.monotonic()
            assert not shown.look().up
            assert time.monotonic() - started < 5
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_slow_store_shows_what_there_was_time_for(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "known_pools", lambda: {f"p{number}" for number in range(10)})
    monkeypatch.setattr(shards, "pools", dict)

    def slow(pool: str) -> PoolStatus:
        clock.now += BUDGET_S / 4
        return pool_status("default")

    monkeypatch.setattr(collector, "pool_status", slow)
    look = StoreCollector(clock).look()
    assert not look.up
    assert 0 < len(look.pools) <= 5


def test_a_fault_of_one_pool_hides_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "known_pools", lambda: {"broken", "default"})

    def read_pool(pool: str) -> PoolStatus:
        if pool == "broken":
            raise StoreError("a key has a wrong type")
        return pool_status(pool)

    monkeypatch.setattr(collector, "pool_status", read_pool)
    look = StoreCollector().look()
    assert not look.up
    assert [pool.pool for pool in look.pools] == ["default"]


def test_one_pool_that_does_not_answer_is_the_end_of_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def read_pool(pool: str) -> PoolStatus:
        asked.append(pool)
        raise StoreUnavailable("away")

    monkeypatch.setattr(collector, "known_pools", lambda: {"a", "b", "c"})
    monkeypatch.setattr(shards, "pools", dict)
    monkeypatch.setattr(collector, "pool_status", read_pool)
    assert StoreCollector().look() == collector.Look(up=False, pools=())
    assert asked == ["a"], "each further pool would cost a second more"


def test_who_leads_is_known_without_the_store() -> None:
    seen = read(LeaderCollector(lambda: {"mail": True, "default": False}))
    assert value(seen, "ductor_scheduler_is_leader", pool="mail", shard="0") == 1
    assert value(seen, "ductor_scheduler_is_leader", pool="default", shard="0") == 0
