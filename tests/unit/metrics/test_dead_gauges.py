"""The room for dead letters of each tenant: how full it is, under bounded labels, read in shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from queueapp.inspection import dead_gauges
from queueapp.inspection.collector import StoreCollector
from queueapp.inspection.dead_gauges import FILL, KEPT_S
from queueapp.store.ids import new_id
from queueapp.store.reads import Reads
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from tests.clock import Clock
from tests.unit.metrics.reading import Samples, value
from tests.unit.metrics.test_collector import read

POOL = {"pool": "default", "shard": "0"}


def bury(store: Store, tenant: str, number: int = 1) -> list[str]:
    jobs = [NewJob(id=new_id(), task="t", tenant=tenant, payload=b"{}", fingerprint="f") for _ in range(number)]
    store.enqueue(jobs)
    store.move_to_dlq([job.id for job in jobs], "by_hand")
    return [job.id for job in jobs]


def fills(seen: Samples) -> dict[str, float]:
    return {dict(labels)["tenant"]: number for (name, labels), number in seen.items() if name == FILL}


@pytest.fixture
def ten() -> Iterator[None]:
    """Ten dead letters a tenant are kept."""
    with override_settings(DUCTOR={**django_settings.DUCTOR, "DEAD_MAX": 10}):
        yield


def test_who_is_half_full_has_a_name_and_the_fullest_of_the_others_shows(store: Store, ten: None) -> None:
    for tenant, number in (("ant", 9), ("bee", 5), ("cat", 4), ("dog", 1)):
        bury(store, tenant, number)
    store.enqueue([NewJob(id=new_id(), task="t", tenant="elk", payload=b"{}", fingerprint="f")])
    assert fills(read(StoreCollector())) == {"ant": 0.9, "bee": 0.5, "_other": 0.4}


def test_a_pool_without_any_shows_that_too(store: Store) -> None:
    assert value(read(StoreCollector()), FILL, tenant="_other", **POOL) == 0


def test_beyond_the_bound_it_is_more_than_full(store: Store, ten: None) -> None:
    bury(store, "ant", 12)
    assert fills(read(StoreCollector()))["ant"] == 1.2
    with override_settings(DUCTOR={**django_settings.DUCTOR, "DEAD_MAX": 0}):
        assert fills(read(StoreCollector()))["ant"] == 12, "none may be kept"


def test_names_are_bounded_and_go_to_the_fullest(store: Store, ten: None) -> None:
    bury(store, "ant", 6)
    bury(store, "bee", 8)
    bury(store, "cat", 7)
    with override_settings(DUCTOR={**django_settings.DUCTOR, "DEAD_MAX": 10, "METRICS_TENANTS": 1}):
        assert fills(read(StoreCollector())) == {"bee": 0.8, "_other": 0.7}


def test_a_name_stays_and_a_look_is_kept(store: Store, ten: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    shown = StoreCollector(clock)
    ids = bury(store, "ant", 6)
    assert fills(read(shown)) == {"ant": 0.6, "_other": 0}
    store.discard(ids)
    clock.now += KEPT_S - 1
    assert fills(read(shown)) == {"ant": 0.6, "_other": 0}
    clock.now += 2
    assert fills(read(shown)) == {"ant": 0, "_other": 0}, "of a series that was there"
    bury(store, "bee", 2)
    clock.now += KEPT_S + 1
    assert fills(read(shown)) == {"ant": 0, "_other": 0.2}


def test_of_thousands_of_tenants_a_share_is_read_at_a_time(
    store: Store, ten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was met is looked at again, so that no figure falls because its tenant was not on the page."""
    monkeypatch.setattr(dead_gauges, "TENANTS_A_LOOK", 50)
    monkeypatch.setattr(dead_gauges, "REMEMBERED", 20)
    clock = Clock()
    shown = StoreCollector(clock)
    for number in range(400):
        bury(store, f"t{number}", 9 if number == 123 else 4 if number == 321 else 1)
    asked: list[int] = []
    sizes = Reads.sizes

    def counting(reads: Reads, indices: Sequence[str]) -> list[int]:
        asked.append(len(indices))
        return sizes(reads, indices)

    monkeypatch.setattr(Reads, "sizes", counting)
    before: dict[str, float] = {}
    for _ in range(30):
        seen = fills(read(shown))
        assert all(seen[name] >= fill for name, fill in before.items())
        before = seen
        clock.now += KEPT_S + 1
    assert seen == {"t123": 0.9, "_other": 0.4}
    assert max(asked) <= 50 * 4 + 21, "a scan may give somewhat more than it was asked for"
