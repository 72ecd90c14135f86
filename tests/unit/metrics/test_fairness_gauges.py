"""The gauges of fairness: what they show, for how many tenants, and for how long it is kept."""

from __future__ import annotations

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from queueapp.inspection import fairness_gauges
from queueapp.inspection.collector import StoreCollector
from queueapp.inspection.fairness_gauges import KEPT_S
from queueapp.store.configuration import ScopeLimits
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from tests.clock import Clock
from tests.unit.metrics.reading import value
from tests.unit.metrics.test_collector import read

POOL = {"pool": "default", "shard": "0"}


def add(store: Store, tenant: str, number: int) -> None:
    store.enqueue(
        [NewJob(id=new_id(), task="t", tenant=tenant, payload=b"{}", fingerprint="f", cost=1) for _ in range(number)]
    )


@pytest.fixture
def busy(store: Store) -> Store:
    """Weights 4, 2, 1; seven jobs were leased."""
    store.configure(1, scopes=[ScopeLimits(tenant=t, weight=w) for t, w in (("ant", 4.0), ("bee", 2.0))])
    for tenant in ("ant", "bee", "cat"):
        add(store, tenant, 9)
    store.check_and_lease("w.1", 1, want=7, begin=7, lease_ms=30_000)
    return store


def test_shares_words_and_indices(busy: Store) -> None:
    seen = read(StoreCollector())
    for tenant, share in (("ant", 4 / 7), ("bee", 2 / 7), ("cat", 1 / 7)):
        assert value(seen, "ductor_tenant_share", tenant=tenant, **POOL) == pytest.approx(share)
        assert value(seen, "ductor_tenant_entitled_share", tenant=tenant, **POOL) == pytest.approx(share)
        lag = value(seen, "ductor_tenant_lag", tenant=tenant, **POOL)
        assert 0 <= lag <= value(seen, "ductor_tenant_lag_bound", tenant=tenant, **POOL)
    assert value(seen, "ductor_pool_tenants", state="fair", **POOL) == 3
    assert value(seen, "ductor_pool_tenants", state="starved", **POOL) == 0
    assert value(seen, "ductor_pool_fairness_jain", of="entitled", **POOL) == pytest.approx(1)
    assert value(seen, "ductor_pool_fairness_jain", of="service", **POOL) == pytest.approx(1)
    assert value(seen, "ductor_pool_fairness_jain", of="jobs", **POOL) == pytest.approx(49 / 63)


def test_tenants_beyond_the_bound_of_labels_stand_together(busy: Store) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "METRICS_TENANTS": 1}):
        shown = StoreCollector()
        seen = read(shown)
        assert value(seen, "ductor_tenant_share", tenant="ant", **POOL) == pytest.approx(4 / 7)
        assert value(seen, "ductor_tenant_share", tenant="_other", **POOL) == pytest.approx(3 / 7)
        named = {dict(labels).get("tenant") for name, labels in seen if name == "ductor_tenant_share"}
        assert named == {"ant", "_other"}


def test_the_lag_of_all_others_is_that_of_the_one_most_behind(busy: Store) -> None:
    busy.client.zincrby(busy.keys["walk"], 40, "ant")
    busy.client.zincrby(busy.keys["walk"], 30, "bee")
    with override_settings(DUCTOR={**django_settings.DUCTOR, "METRICS_TENANTS": 0}):
        seen = read(StoreCollector())
    lag = value(seen, "ductor_tenant_lag", tenant="_other", **POOL)
    assert lag == 40, "of cat; bee is 2 * 10 behind"


def test_a_name_stays_and_a_certificate_is_kept_for_fifteen_seconds(
    busy: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    shown = StoreCollector(clock)
    with override_settings(DUCTOR={**django_settings.DUCTOR, "METRICS_TENANTS": 1}):
        read(shown)
        add(busy, "dog", 30)
        busy.configure(2, scopes=[ScopeLimits(tenant="dog", weight=500)])
        busy.check_and_lease("w.1", 2, want=20, begin=20, lease_ms=30_000)
        clock.now += KEPT_S - 1
        assert value(read(shown), "ductor_tenant_share", tenant="ant", **POOL) == pytest.approx(4 / 7)
        clock.now += 1
        assert value(read(shown), "ductor_tenant_share", tenant="ant", **POOL) < 1 / 3
        asked: list[str] = []
        monkeypatch.setattr(fairness_gauges, "certificate", asked.append)
        clock.now += 2
        read(shown)
        assert asked == []
