"""Limits of concurrency keys, and policies with their parameters: from rows into the store."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from queueapp import Key, sync, task
from queueapp.codec import digest
from queueapp.errors import InvalidOption
from queueapp.models import KeyLimit, Pool, Tenant, TenantLimits
from queueapp.policies.registry import DIRECT
from queueapp.producer.discovery import registry
from queueapp.store import shards
from queueapp.store.configuration import KeyLimits, PoolConf
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob
from queueapp.store.store import Store
from queueapp.sync import delivery, intent
from queueapp.sync.comparison import Turn, look
from tests.unit.sync.looking import scopes

pytestmark = pytest.mark.django_db

CUSTOMER = "customer:{customer_id}"


def charge(customer_id: int) -> None: ...


def keys(name: str = "mail") -> dict[str, int | None]:
    """Pattern → ceiling in force."""
    found = shards.reads(name).key_limits()
    assert all(pattern == limits.pattern == digest(limits.text) for pattern, limits in found.items())
    return {limits.text: limits.max_in_flight for limits in found.values()}


def ductor(*arguments: str) -> list[str]:
    out = io.StringIO()
    call_command("ductor", "sync", *arguments, stdout=out)
    return out.getvalue().splitlines()


# -- limits of keys ------------------------------------------------------------------------------------------------


def test_a_saved_limit_is_in_force(commit: Callable[[], Any], pool: Pool) -> None:
    with commit():
        KeyLimit.objects.create(pool=pool, pattern=CUSTOMER, max_in_flight=3)
        KeyLimit.objects.create(pool=pool, pattern="a|b {{x}}")
        KeyLimit.objects.create(pool=pool, pattern="closed", max_in_flight=0)
    assert keys() == {CUSTOMER: 3, "a|b {{x}}": None, "closed": 0}
    assert scopes() == {}
    with commit():
        row = KeyLimit.objects.get(pattern=CUSTOMER)
        row.max_in_flight = None
        row.save()
        KeyLimit.objects.get(pattern="closed").delete()
    assert keys() == {CUSTOMER: None, "a|b {{x}}": None}


def test_limits_of_keys_and_of_tenants_do_not_stand_in_each_other_s_way(
    commit: Callable[[], Any], pool: Pool, tenant: Tenant
) -> None:
    with commit():
        TenantLimits.objects.create(pool=pool, tenant=tenant, weight=4, max_in_flight=2)
        KeyLimit.objects.create(pool=pool, pattern="acme", max_in_flight=3)
    assert keys() == {"acme": 3}
    assert set(scopes()) == {("acme", "")}
    assert sync.repair() <= 1  # the pool itself, which was made before the commits of this test
    assert shards.store("mail").verify() == []


def test_what_a_task_says_holds_and_what_a_row_says_goes_before_it(commit: Callable[[], Any], store: Store) -> None:
    limited = task(concurrency=Key("customer:{customer_id}", limit=2))(charge)
    pool = Pool.objects.create(name="default")

    def leased(customer_id: int) -> int:
        for _ in range(4):
            limited.enqueue(customer_id)
        return len(store.check_and_lease(f"w{customer_id}", 1, want=10, begin=0, lease_ms=30_000).jobs)

    assert leased(1) == 2
    with commit():
        row = KeyLimit.objects.create(pool=pool, pattern="customer:{customer_id}", max_in_flight=3)
    assert leased(2) == 3 + 1, "three of the new customer, and one more of the first"
    with commit():
        row.max_in_flight = 0
        row.save()
    assert leased(3) == 0
    with commit():
        row.delete()
    assert leased(4) == 2 + 2
    del registry[limited.module_path]


def test_a_deleted_pool_takes_its_limits_along(commit: Callable[[], Any], pool: Pool) -> None:
    with commit():
        KeyLimit.objects.create(pool=pool, pattern=CUSTOMER, max_in_flight=3)
    with commit():
        pool.delete()
    assert keys() == {}


def test_repair_finds_what_sends_no_signal(redis_url: str, pool: Pool) -> None:
    sync.repair()
    KeyLimit.objects.bulk_create([KeyLimit(pool=pool, pattern=CUSTOMER, max_in_flight=3)])
    assert sync.repair() == 1
    assert keys() == {CUSTOMER: 3}
    KeyLimit.objects.update(max_in_flight=1)
    assert sync.repair() == 1
    assert keys() == {CUSTOMER: 1}
    KeyLimit.objects.all()._raw_delete("default")
    assert sync.repair() == 1
    assert keys() == {}
    assert sync.repair() == 0


def test_many_limits_take_several_calls_and_are_looked_at_once(
    redis_url: str, pool: Pool, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intent, "CHUNK", 3)
    KeyLimit.objects.bulk_create([KeyLimit(pool=pool, pattern=f"k{number}") for number in range(7)])
    TenantLimits.objects.bulk_create([TenantLimits(pool=pool, tenant=tenant, lane=f"l{n}") for n in range(5)])
    found = look("mail", Turn(pool="mail"), 2)
    assert (len(found.keys), len(found.scopes), found.done) == (7, 2, False)
    assert look("mail", found.then, 2).keys == [], "not again on the next page"
    sync.repair()
    assert (len(keys()), len(scopes())) == (7, 5)


def test_ductor_sync_names_them(redis_url: str, pool: Pool) -> None:
    gone = KeyLimits(pattern=digest("gone"), text="gone", max_in_flight=1)
    intent.write("mail", intent.versions.next(), PoolConf(), [], [gone])
    KeyLimit.objects.bulk_create([KeyLimit(pool=pool, pattern=CUSTOMER, max_in_flight=3)])
    assert ductor("mail") == [
        "mail: 2 records brought into force",
        f"  key {CUSTOMER}: defaults → max_in_flight 3",
        "  key gone: max_in_flight 1 → defaults",
    ]
    assert ductor("mail") == ["mail: as the rows say"]


def test_a_host_s_test_has_them_in_force(redis_url: str, pool: Pool) -> None:
    KeyLimit.objects.create(pool=pool, pattern=CUSTOMER, max_in_flight=3)
    delivery.deliver_now()
    assert keys() == {CUSTOMER: 3}


# -- policies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", Pool.Policy.values)
def test_a_policy_is_in_force_with_its_parameters(commit: Callable[[], Any], policy: str) -> None:
    dispatch: Any = "direct" if policy in DIRECT else "scheduled"
    values = {"policy": policy, "dispatch": dispatch, "dispatch_window": 7}
    with commit():
        Pool.objects.create(name="mail", edf_by="latest_start", aging_step_seconds=0.0015, **values)
    in_force = shards.reads("mail").configured()
    assert in_force == PoolConf(policy=policy, by="latest_start", step_ms=2, dispatch=dispatch, window=7)


@pytest.mark.parametrize(
    ("policy", "values", "ranks"),
    [
        ("edf", {"edf_by": "latest_start"}, True),
        ("aging", {"aging_step_seconds": 5}, True),
        ("edf", {"aging_step_seconds": 5}, False),
        ("aging", {"edf_by": "latest_start"}, False),
        ("fifo", {"edf_by": "latest_start", "aging_step_seconds": 5}, False),
    ],
    ids=repr,
)
def test_a_parameter_that_ranks_anew_does_so_as_a_policy_does(
    commit: Callable[[], Any], caplog: Any, policy: str, values: dict[str, Any], ranks: bool
) -> None:
    with commit():
        pool = Pool.objects.create(name="mail", policy=policy)
    job = NewJob(id=new_id(), task="shop.tasks.send", tenant="acme", payload=b"{}", fingerprint="0" * 16)
    store = shards.store("mail")
    store.enqueue([job])
    for name, value in values.items():
        setattr(pool, name, value)
    pool.paused = True
    with commit():
        pool.save()

    assert shards.reads("mail").configured() == intent.wanted_pool("mail")
    assert (shards.reads("mail").overview().reranking is not None) == ranks
    assert caplog.text == ""
    assert store.verify() == []


@pytest.mark.parametrize("policy", ["drr", "lottery", "fifa"])
def test_a_policy_of_the_settings_that_cannot_be_is_refused_by_name(redis_url: str, policy: str) -> None:
    Pool.objects.create(name="zulu", paused=True)
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": {"mail": {"POLICY": policy}}}):
        with pytest.raises(InvalidOption, match=f"policy '{policy}' of the pool 'mail'"):
            sync.repair()
        assert shards.reads("zulu").configured().paused, "the others have their turn"
        with pytest.raises(CommandError, match=policy):
            ductor("mail")
        with pytest.raises(ImproperlyConfigured, match=policy):
            sync.ensure_pools()
    assert shards.reads("mail").configured() == PoolConf()


def test_a_pool_of_the_settings_begins_with_their_values(redis_url: str) -> None:
    values = {"POLICY": "aging", "AGING_STEP_SECONDS": 5, "EDF_BY": "latest_start"}
    with override_settings(DUCTOR={**django_settings.DUCTOR, "POOLS": {"mail": values}}):
        assert "mail" in sync.ensure_pools()
        assert intent.wanted_pool("mail") == PoolConf(policy="aging", step_ms=5_000, by="latest_start")
    assert Pool.objects.get(name="mail").rule == "aging 5 s a step"
