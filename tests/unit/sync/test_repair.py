"""The repair: whatever differs is found, in bounded passes. And the rows that pools of the settings get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from queueapp import sync
from queueapp.errors import InvalidOption, SchemaMismatch, StoreUnavailable, Upgrading
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.sync import comparison, intent
from tests.unit.sync.looking import counted, scopes

pytestmark = pytest.mark.django_db


# -- repair ------------------------------------------------------------------------------------------------------


def test_repair_finds_what_sends_no_signal(commit: Callable[[], Any], pool: Pool, tenant: Tenant) -> None:
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=2)
        pool.save()
    assert sync.repair() == 0
    TenantLimits.objects.update(weight=5, paused=True)
    Pool.objects.update(max_in_flight=4)
    TenantLimits.objects.bulk_create([TenantLimits(pool=pool, tenant=tenant, lane="bulk", max_in_flight=1)])
    assert sync.repair() == 3
    assert shards.reads("mail").configured().max_in_flight == 4
    assert scopes() == {
        ("acme", ""): ScopeLimits(tenant="acme", weight=5.0, paused=True),
        ("acme", "bulk"): ScopeLimits(tenant="acme", lane="bulk", max_in_flight=1),
    }
    assert sync.repair() == 0


def test_repair_removes_what_sql_no_longer_has(commit: Callable[[], Any], pool: Pool, tenant: Tenant) -> None:
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=2)
        pool.save()
    TenantLimits.objects.all()._raw_delete("default")
    assert sync.repair() == 1
    assert scopes() == {}
    Pool.objects.update(paused=True)
    sync.repair()
    Pool.objects.all()._raw_delete("default")
    sync.repair()
    assert shards.reads("mail").configured() == PoolConf()


def test_a_policy_that_left_the_settings_holds_nothing_else_back(
    commit: Callable[[], Any], pool: Pool, tenant: Tenant, caplog: Any
) -> None:
    """The pause of its pool, its tenants' limits however many, and what is saved later."""
    with commit():
        pool.save()
    Pool.objects.update(policy="gone", dispatch="scheduled", paused=True)
    TenantLimits.objects.bulk_create(
        [TenantLimits(pool=pool, tenant=tenant, lane=f"l{number}", weight=2) for number in range(5)]
    )
    for _ in range(4):
        with pytest.raises(InvalidOption, match="'gone' of the pool 'mail' is none"):
            sync.repair(2)
    assert shards.reads("mail").configured() == PoolConf(paused=True, dispatch="scheduled")
    assert len(scopes()) == 5
    version = shards.reads("mail").version()
    with pytest.raises(InvalidOption):
        sync.repair()
    assert shards.reads("mail").version() == version, "what is in force is not written over and over"

    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=7)
        pool = Pool.objects.get()
        pool.max_in_flight = 3
        pool.save()
    assert shards.reads("mail").configured().max_in_flight == 3
    assert scopes()["acme", ""].weight == 7
    assert "in force but for the policy" in caplog.text


def test_one_that_is_in_force_already_is_no_fault(commit: Callable[[], Any], pool: Pool) -> None:
    """It was in force when it left the settings: nothing of it is to be brought over."""
    shards.store("mail").configure(1, pool=PoolConf(policy="gone", dispatch="scheduled"))
    Pool.objects.update(policy="gone", dispatch="scheduled")
    assert sync.repair() == 0
    assert shards.reads("mail").configured().policy == "gone"


def test_repair_restores_what_the_store_lost(commit: Callable[[], Any], pool: Pool, tenant: Tenant) -> None:
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=2)
        pool.save()
    store = shards.store("mail")
    store.client.delete(store.keys["limits"], store.keys["conf"])
    sync.repair()
    assert scopes()[("acme", "")].weight == 2


def test_a_pass_of_repair_is_bounded_and_the_next_goes_on(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    pools = [Pool.objects.create(name=name) for name in ("mail", "post")]
    tenants = Tenant.objects.bulk_create([Tenant(key=f"t{number:03}") for number in range(25)])
    for pool in pools:
        TenantLimits.objects.bulk_create([TenantLimits(pool=pool, tenant=tenant, weight=2) for tenant in tenants])
    written = counted(monkeypatch, comparison)
    passes = 0
    while len(scopes("mail")) + len(scopes("post")) < 50:
        before = len(written)
        with django_assert_max_num_queries(16):
            sync.repair(limit=10)
        assert sum(written[before:]) <= 10
        passes += 1
        assert passes <= 15
    # Every scope in turn: nothing is written a second time, and another time around finds nothing.
    for _ in range(20):
        sync.repair(limit=10)
    assert sum(written) == 50


def test_a_pass_over_two_thousand_rows_takes_few_queries(
    redis_url: str, pool: Pool, tenant: Tenant, django_assert_max_num_queries: Any
) -> None:
    rows = [TenantLimits(pool=pool, tenant=tenant, lane=f"l{number}", weight=2) for number in range(2100)]
    TenantLimits.objects.bulk_create(rows)
    with django_assert_max_num_queries(30):
        sync.repair()
    assert 1990 < len(scopes()) <= 2000
    sync.repair()
    assert len(scopes()) == 2100


def test_repair_leaves_it_to_the_next_pass_when_somebody_saves_meanwhile(
    commit: Callable[[], Any], pool: Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    TenantLimits.objects.bulk_create([TenantLimits(pool=pool, tenant=tenant, weight=2)])

    def overtaken(*args: Any) -> bool:
        intent.write("mail", intent.versions.next(), PoolConf(max_in_flight=6), [])
        return intent.write(*args)

    monkeypatch.setattr(comparison, "write", overtaken)
    sync.repair()
    assert scopes() == {}
    monkeypatch.setattr(comparison, "write", intent.write)
    sync.repair()
    assert scopes()[("acme", "")].weight == 2


def test_repair_says_that_the_store_is_away(away: None) -> None:
    with pytest.raises(StoreUnavailable):
        sync.repair()


# -- rows for pools ----------------------------------------------------------------------------------------------


def test_the_pools_of_the_settings_get_rows_once(redis_url: str) -> None:
    pools = {"reports": {"POLICY": "fifo", "MAX_IN_FLIGHT": 2}, "mail": {}}
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": pools}):
        assert set(sync.ensure_pools()) >= {"default", "mail", "reports"}
        row = Pool.objects.get(name="reports")
        assert (row.policy, row.max_in_flight) == ("fifo", 2)
        Pool.objects.filter(name="reports").update(max_in_flight=9)
        assert sync.ensure_pools() == []
    row.refresh_from_db()
    assert row.max_in_flight == 9, "from the first start on the admin decides"


def test_a_pool_of_the_settings_that_cannot_be_is_refused_by_name(redis_url: str) -> None:
    with (
        override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": {"mail": {"POLICY": "lifo"}}}),
        pytest.raises(ImproperlyConfigured, match=r'"mail".*lifo'),
    ):
        sync.ensure_pools()


def test_a_pool_of_another_schema_does_not_keep_the_others_waiting(redis_url: str) -> None:
    for name in ("mail", "post"):
        Pool.objects.create(name=name, max_in_flight=3)
    store = shards.store("mail")
    store.client.hset(store.keys["conf"], "schema", "999")
    for _ in range(2):
        with pytest.raises(SchemaMismatch):
            sync.repair()
        assert shards.reads("post").configured().max_in_flight == 3
        Pool.objects.update(max_in_flight=3, paused=True)
    store.client.hdel(store.keys["conf"], "schema")
    sync.repair()
    assert shards.reads("mail").configured().paused
    assert shards.reads("post").configured().paused


def test_a_pool_that_is_being_upgraded_does_not_keep_the_others_waiting(redis_url: str) -> None:
    for name in ("mail", "post"):
        Pool.objects.create(name=name, max_in_flight=3)
    store = shards.store("mail")
    store.client.hset(store.keys["conf"], "schema", "0>1")
    with pytest.raises(Upgrading):
        sync.repair()
    assert shards.reads("post").configured().max_in_flight == 3
    store.client.hdel(store.keys["conf"], "schema")
    sync.repair()
    assert shards.reads("mail").configured().max_in_flight == 3
