"""After a save: in force within a second, never in the save's way, never over something newer."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.db import transaction
from django.test import override_settings

from queueapp import sync
from queueapp.errors import OldVersion, StoreUnavailable
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, ScopeLimits
from queueapp.store.records import NewJob
from queueapp.sync import delivery, intent
from tests.unit.conftest import SilentStore
from tests.unit.sync.looking import counted, scopes

pytestmark = pytest.mark.django_db


def pool_id(name: str) -> int:
    return Pool.objects.get(name=name).pk


def seen_changes(monkeypatch: pytest.MonkeyPatch) -> list[delivery._Changes]:
    """What is delivered from now on; it is not."""
    seen: list[delivery._Changes] = []
    monkeypatch.setattr(delivery, "_try", seen.append)
    return seen


# -- after a save ------------------------------------------------------------------------------------------------


def test_a_saved_pool_is_in_force(commit: Callable[[], Any]) -> None:
    with commit():
        Pool.objects.create(name="mail", policy="fifo", paused=True, max_in_flight=0, cost_unit="rows", default_cost=7)
    assert shards.reads("mail").configured() == PoolConf(
        policy="fifo", paused=True, max_in_flight=0, cost_unit="rows", default_cost=7.0
    )
    assert shards.pools()["mail"] == Pool.objects.get().code


def test_saved_limits_are_in_force(commit: Callable[[], Any], pool: Pool, tenant: Tenant) -> None:
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4, max_in_flight=8)
        TenantLimits.objects.create(pool=pool, tenant=tenant, lane="bulk", weight=0.1, paused=True)
    assert scopes() == {
        ("acme", ""): ScopeLimits(tenant="acme", weight=4.0, max_in_flight=8),
        ("acme", "bulk"): ScopeLimits(tenant="acme", lane="bulk", weight=0.1, paused=True),
    }


def test_nothing_is_in_force_before_the_commit(commit: Callable[[], Any], pool: Pool, tenant: Tenant) -> None:
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4)
        assert scopes() == {}
    assert len(scopes()) == 1


@pytest.mark.parametrize("of", [Pool, Tenant])
def test_a_deletion_that_was_rolled_back_names_nothing_for_ever(
    commit: Callable[[], Any], pool: Pool, tenant: Tenant, of: type[Pool | Tenant]
) -> None:
    """What was to be deleted has another name when its limits are delivered."""
    kept = {"pool_id": pool.pk, "tenant_id": tenant.pk}
    with transaction.atomic():
        (pool if of is Pool else tenant).delete()
        transaction.set_rollback(True)
    Pool.objects.filter(pk=kept["pool_id"]).update(name="post")
    Tenant.objects.filter(pk=kept["tenant_id"]).update(key="other")
    with commit():
        TenantLimits.objects.create(**kept, weight=4)
    assert scopes("post") == {("other", ""): ScopeLimits(tenant="other", weight=4.0)}


def test_what_was_rolled_back_with_its_savepoint_is_not_in_force(
    commit: Callable[[], Any], pool: Pool, tenant: Tenant
) -> None:
    with commit():
        with transaction.atomic():
            TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4)
            transaction.set_rollback(True)
        TenantLimits.objects.create(pool=pool, tenant=tenant, lane="bulk", weight=3)
    assert set(scopes()) == {("acme", "bulk")}


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_rolled_back_leaves_nothing_to_the_next(
    redis_url: str, pool: Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    with transaction.atomic():
        Pool.objects.create(name="never")
        pool.delete()
        transaction.set_rollback(True)
    asked = seen_changes(monkeypatch)
    with transaction.atomic():
        other = TenantLimits.objects.create(pool_id=pool_id("mail"), tenant=tenant, weight=4)
    assert asked == [delivery._Changes(limits={(other.pool_id, other.tenant_id, "")})]


@pytest.mark.django_db(transaction=True)
def test_under_commits_by_hand_saves_work_and_repair_brings_them_over(redis_url: str, tenant: Tenant) -> None:
    transaction.set_autocommit(False)
    try:
        pool = Pool.objects.create(name="mail")
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4)
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert scopes() == {}
    sync.repair()
    assert scopes() == {("acme", ""): ScopeLimits(tenant="acme", weight=4.0)}


def test_many_rows_of_a_transaction_go_over_together(
    commit: Callable[[], Any], pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch, delivery)
    with commit():
        for number in range(20):
            TenantLimits.objects.create(pool=pool, tenant=Tenant.objects.create(key=f"t{number}"), weight=2)
    assert calls == [20]
    assert len(scopes()) == 20


def test_deleted_limits_return_to_the_defaults(commit: Callable[[], Any], pool: Pool, tenant: Tenant) -> None:
    with commit():
        limits = TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4, paused=True)
    assert set(scopes()) == {("acme", "")}
    with commit():
        limits.delete()
    assert scopes() == {}


def test_a_deleted_tenant_takes_its_limits_along(commit: Callable[[], Any], pool: Pool, tenant: Tenant) -> None:
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4)
    with commit():
        tenant.delete()
    assert scopes() == {}


def test_a_deleted_pool_returns_to_the_defaults(commit: Callable[[], Any], tenant: Tenant) -> None:
    with commit():
        pool = Pool.objects.create(name="mail", policy="fifo", max_in_flight=3)
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4)
    with commit():
        pool.delete()
    assert shards.reads("mail").configured() == PoolConf()
    assert scopes() == {}


def test_a_tenant_without_limits_asks_nothing_of_the_store(away: None, commit: Callable[[], Any], caplog: Any) -> None:
    with commit():
        Tenant.objects.create(key="acme").save()
    assert caplog.records == []


def test_the_policy_of_a_pool_with_jobs_changes_at_once(commit: Callable[[], Any], caplog: Any) -> None:
    with commit():
        pool = Pool.objects.create(name="mail", policy="tiered")
    job = NewJob(id="0" * 22, task="shop.tasks.send", tenant="acme", payload=b"{}", fingerprint="0" * 16)
    store = shards.store("mail")
    store.enqueue([job])
    with commit():
        pool.policy, pool.paused = "fifo", True
        pool.save()
    assert shards.reads("mail").configured() == PoolConf(policy="fifo", paused=True)
    assert caplog.text == ""
    assert store.verify() == []


def test_a_second_change_of_policy_waits_for_the_first_and_the_rest_does_not(
    commit: Callable[[], Any], caplog: Any
) -> None:
    with commit():
        pool = Pool.objects.create(name="mail", policy="tiered")
    job = NewJob(id="0" * 22, task="shop.tasks.send", tenant="acme", payload=b"{}", fingerprint="0" * 16)
    store = shards.store("mail")
    store.enqueue([job])
    for policy, paused in (("fifo", False), ("priority", True)):
        with commit():
            pool.policy, pool.paused = policy, paused
            pool.save()
    assert shards.reads("mail").configured() == PoolConf(policy="fifo", paused=True)
    assert "the policy of a pool changes once the change before it is through" in caplog.text
    while store.rerank().more:
        pass
    sync.repair()
    assert shards.reads("mail").configured() == PoolConf(policy="priority", paused=True)
    assert store.verify() == []


# -- the store is away -------------------------------------------------------------------------------------------


def test_a_save_works_without_the_store_and_repair_brings_it_over(
    commit: Callable[[], Any], caplog: Any, redis_url: str
) -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": "unix:///nonexistent/store.sock"}), commit():
        pool = Pool.objects.create(name="mail", max_in_flight=3)
        TenantLimits.objects.create(pool=pool, tenant=Tenant.objects.create(key="acme"), weight=4)
    assert [(record.name, record.levelno) for record in caplog.records] == [("queueapp.sync.delivery", logging.WARNING)]
    assert caplog.records[0].code == "store_unavailable"
    assert sync.repair() == 2
    assert shards.reads("mail").configured().max_in_flight == 3
    assert scopes()[("acme", "")].weight == 4


def test_of_saves_in_a_row_one_waits_for_a_silent_store(silent: SilentStore, commit: Callable[[], Any]) -> None:
    with commit():
        Pool.objects.create(name="mail")
    assert silent.asked == 1
    with commit():
        Pool.objects.create(name="post")
    assert silent.asked == 1, "a loop of saves must not wait each time"


def test_a_wait_for_many_slow_answers_is_bounded_too(
    monkeypatch: pytest.MonkeyPatch, commit: Callable[[], Any], caplog: Any
) -> None:
    monkeypatch.setattr(delivery, "TRY_S", 0.1)

    released = threading.Event()

    def slow(*_: Any) -> bool:
        return released.wait(30)

    monkeypatch.setattr(delivery, "write", slow)
    with commit():
        for name in "abcdef":
            Pool.objects.create(name=name)
    released.set()  # so that the commit did not wait for the answers
    assert "did not answer within" in caplog.records[0].reason


def test_an_unexpected_fault_does_not_fail_the_save(commit: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "write", lambda *args: 1 / 0)
    with commit():
        Pool.objects.create(name="mail")
    assert Pool.objects.exists()


def test_a_page_asks_a_silent_store_once(silent: SilentStore) -> None:
    with pytest.raises(StoreUnavailable):
        sync.overview("mail")
    assert silent.asked == 1


def test_loaddata_does_not_touch_the_store(
    monkeypatch: pytest.MonkeyPatch, commit: Callable[[], Any], tmp_path: Path
) -> None:
    fixture = tmp_path / "pools.json"
    moment = "2030-01-01T00:00:00Z" if django_settings.USE_TZ else "2030-01-01T00:00:00"
    fields = {"name": "mail", "code": "abcdef", "paused": True, "created": moment, "updated": moment}
    fixture.write_text(json.dumps([{"model": "queueapp.pool", "pk": 1, "fields": fields}]))
    with commit():
        call_command("loaddata", str(fixture), verbosity=0)
    assert shards.pools() == {}
    assert sync.repair() > 0
    assert shards.reads("mail").configured().paused


# -- versions ----------------------------------------------------------------------------------------------------


def test_versions_only_grow() -> None:
    taken = [intent.versions.next() for _ in range(1000)]
    assert taken == sorted(set(taken))
    assert intent.versions.next(above=taken[-1] + 10**9) > taken[-1] + 10**9
    assert intent.versions.next() > taken[-1] + 10**9


def test_an_older_version_is_refused(redis_url: str) -> None:
    newer, older = PoolConf(max_in_flight=2), PoolConf(max_in_flight=1)
    intent.write("mail", 2_000, newer, [ScopeLimits(tenant="acme", weight=2)])
    with pytest.raises(OldVersion):
        intent.write("mail", 1_999, older, [])
    with pytest.raises(OldVersion):
        intent.write("mail", 1_999, None, [ScopeLimits(tenant="acme", weight=1)])
    assert shards.reads("mail").configured() == newer
    assert scopes()[("acme", "")].weight == 2


def test_a_value_read_before_a_later_one_never_overwrites_it(
    commit: Callable[[], Any], pool: Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process saves and delivers between our reading of the rows and our writing to the store."""
    limits = TenantLimits.objects.create(pool=pool, tenant=tenant, weight=2)

    def overtaken(*args: Any) -> bool:
        monkeypatch.setattr(delivery, "write", intent.write)
        TenantLimits.objects.filter(pk=limits.pk).update(weight=9)
        intent.write("mail", intent.versions.next(), None, [ScopeLimits(tenant="acme", weight=9)])
        return intent.write(*args)

    monkeypatch.setattr(delivery, "write", overtaken)
    # The rows are read in the thread that saved, the store is written to in another: the update must not be in SQLite's
    # own way, so that both happen in this thread here.
    monkeypatch.setattr(delivery, "_within", lambda seconds, call: call())
    with commit():
        limits.save()
    assert scopes()[("acme", "")].weight == 9


def test_a_version_from_a_clock_ahead_of_ours_does_not_lock_us_out(
    commit: Callable[[], Any], pool: Pool, tenant: Tenant
) -> None:
    ahead = time.time_ns() // 1000 + 3_600_000_000
    intent.write("mail", ahead, PoolConf(paused=True), [])
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=2)
    assert scopes()[("acme", "")].weight == 2
    sync.repair()
    assert not shards.reads("mail").configured().paused


def test_a_version_from_a_clock_ahead_of_ours_does_not_lock_the_repair_out(redis_url: str, pool: Pool) -> None:
    intent.write("mail", time.time_ns() // 1000 + 7_200_000_000, PoolConf(paused=True), [])
    sync.repair()
    assert not shards.reads("mail").configured().paused


def test_rows_of_another_database_are_nobody_s_intent(commit: Callable[[], Any], pool: Pool) -> None:
    """A copy, such as a replica or an archive: what is written there must not come into force."""
    pool.paused = True
    with commit(), override_settings(DUCTOR={**django_settings.DUCTOR, "DATABASE": "elsewhere"}):
        pool.save(using="default")
    assert shards.pools() == {}
