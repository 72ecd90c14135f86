"""The rows that people configure: what they refuse, with which words, and what they keep."""

from __future__ import annotations

import math
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import override_settings

from queueapp.models import KeyLimit, Pool, Tenant, TenantLimits, pools
from queueapp.policies import registry
from queueapp.store.keys import pool_code

pytestmark = pytest.mark.django_db


def messages(instance: Any) -> dict[str, list[str]]:
    """Field → messages of what `full_clean` refuses."""
    with pytest.raises(ValidationError) as caught:
        instance.full_clean()
    return caught.value.message_dict


def limits(**values: Any) -> TenantLimits:
    """Limits of a tenant and a pool that exist, not saved yet."""
    return TenantLimits(pool=Pool.objects.create(name="mail"), tenant=Tenant.objects.create(key="acme"), **values)


@pytest.mark.parametrize("name", ["", "Emails", "-mail", "e mail", "mail!", "a" * 65, "é", "mail\n"])
def test_a_pool_name_out_of_form_is_refused(name: str) -> None:
    assert "name" in messages(Pool(name=name))


def test_a_refusal_names_field_value_and_remedy() -> None:
    said = messages(Pool(name="E Mail", default_cost=0))
    assert said["name"] == [
        "name “E Mail” is not allowed: use up to 64 of a–z, 0–9, “_” and “-”, beginning with a letter or a digit."
    ]
    assert said["default_cost"] == ["default cost 0.0 is not allowed: use a number from 1 to 1000000000."]


@pytest.mark.parametrize("key", ["", "_other", "a b", "a|b", "a" * 65, "ä", "acme\n"])
def test_a_tenant_key_out_of_form_is_refused(key: str) -> None:
    assert "key" in messages(Tenant(key=key))


@pytest.mark.parametrize("key", ["acme", "A.b:c@d-9_", "-", "7" * 64])
def test_a_tenant_key_in_form_is_taken(key: str) -> None:
    Tenant(key=key).full_clean()


@pytest.mark.parametrize("weight", [0, -1, 0.0009, 1000.1, 1e9, math.nan, math.inf])
def test_a_weight_out_of_range_is_refused_by_form_and_by_database(weight: float) -> None:
    row = limits(weight=weight)
    [said] = messages(row)["weight"][:1]
    assert said == f"weight {float(weight)} is not allowed: use a number from 0.001 to 1000."
    if not math.isnan(weight):  # SQLite stores NaN as NULL, which says no weight
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save()


@pytest.mark.parametrize("weight", [0.001, 1, 1000])
def test_a_weight_in_range_is_taken(weight: float) -> None:
    row = limits(weight=weight)
    row.full_clean()
    row.save()


@pytest.mark.parametrize(("ceiling", "taken"), [(None, True), (0, True), (8, True), (-1, False)])
def test_a_ceiling_is_empty_or_at_least_zero(ceiling: int | None, taken: bool) -> None:
    pool = Pool(name="mail", max_in_flight=ceiling)
    if taken:
        pool.full_clean()
    else:
        assert "max_in_flight" in messages(pool)


@pytest.mark.parametrize("policy", Pool.Policy.values)
def test_every_policy_of_the_list_is_taken(policy: str) -> None:
    pool = Pool(name="mail", policy=policy, dispatch="direct" if policy in registry.DIRECT else "scheduled")
    pool.full_clean()
    pool.save()


@pytest.mark.parametrize("policy", sorted(registry.PYTHON))
def test_a_policy_of_python_needs_scheduled_dispatch(policy: str) -> None:
    said = messages(Pool(name="E Mail", policy=policy))
    [words] = said["dispatch"]
    assert f"dispatch “direct” has no policy “{policy}”" in words
    assert "Set dispatch to “scheduled”" in words
    assert "name" in said, "the other faults are told, too"
    with pytest.raises(IntegrityError), transaction.atomic():
        Pool(name="mail", policy=policy).save()


def test_a_policy_that_is_none_is_refused() -> None:
    assert "policy" in messages(Pool(name="mail", policy="fifa"))
    Pool(name="mail", policy="fifa").clean_fields(exclude=["policy"])


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"policy": "edf"}, "edf by deadline"),
        ({"policy": "edf", "edf_by": "latest_start"}, "edf by latest_start"),
        ({"policy": "aging", "aging_step_seconds": 0.5}, "aging 0.5 s a step"),
        ({"policy": "aging", "aging_step_seconds": 86_400}, "aging 86400 s a step"),
        ({"policy": "fifo", "edf_by": "latest_start", "aging_step_seconds": 5, "cost_unit": "rows"}, "fifo"),
    ],
    ids=repr,
)
def test_a_policy_takes_its_own_parameter_and_ignores_others(values: dict[str, Any], rule: str) -> None:
    pool = Pool(name="mail", **values)
    pool.full_clean()
    pool.save()
    assert pool.rule == rule


def test_the_latest_start_needs_costs_in_milliseconds() -> None:
    pool = Pool(name="mail", policy="edf", edf_by="latest_start", cost_unit="rows")
    assert "this pool counts costs in “rows”: set the cost unit to “ms”" in messages(pool)["edf_by"][0]
    with pytest.raises(IntegrityError), transaction.atomic():
        pool.save()


@pytest.mark.parametrize("seconds", [0, -1, 0.0009, 86_401, math.inf, math.nan])
def test_a_step_out_of_range_is_refused_by_form_and_by_database(seconds: float) -> None:
    pool = Pool(name="mail", aging_step_seconds=seconds)
    [said] = messages(pool)["aging_step_seconds"][:1]
    assert said == f"aging step {float(seconds)} is not allowed: use a number from 0.001 to 86400."
    if not math.isnan(seconds):
        with pytest.raises(IntegrityError), transaction.atomic():
            pool.save()


def test_what_edf_goes_by_is_one_of_two() -> None:
    pool = Pool(name="mail", edf_by="start")
    assert "edf_by" in messages(pool)
    with pytest.raises(IntegrityError), transaction.atomic():
        pool.save()


def test_the_list_and_the_constraint_name_the_same_policies() -> None:
    [named] = [each for each in Pool._meta.constraints if each.name == "queueapp_pool_policy"]
    assert set(Pool.Policy.values) == set(registry.POLICIES)
    assert sorted(registry.DIRECT) == sorted(named.condition.children[0][1])  # type: ignore[attr-defined]  # the narrower type is known here alone


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "cannot be blank"),
        ("{a.b}", "pattern “{a.b}” is not allowed: it has {a.b}; a field is the name of a parameter"),
        ("{a:3}", "formats the field {a}"),
        ("{a", "has a brace without its other one"),
        ("a\nb", "must be text of 1 to 200"),
    ],
)
def test_a_pattern_that_no_task_could_have_is_refused(pattern: str, words: str) -> None:
    row = KeyLimit(pool=Pool.objects.create(name="mail"), pattern=pattern)
    assert words in " ".join(messages(row)["pattern"])


def test_a_pattern_has_one_limit_in_a_pool() -> None:
    pool = Pool.objects.create(name="mail")
    first = KeyLimit(pool=pool, pattern="customer:{customer_id}", max_in_flight=0)
    first.full_clean()
    first.save()
    again = KeyLimit(pool=pool, pattern="customer:{customer_id}")
    assert messages(again)["__all__"] == ["This pattern has a limit for this pool already: edit that one."]
    with pytest.raises(IntegrityError), transaction.atomic():
        again.save()
    KeyLimit.objects.create(pool=Pool.objects.create(name="post"), pattern="customer:{customer_id}")
    assert str(first) == "customer:{customer_id} @ mail"


def test_a_scope_has_one_row() -> None:
    pool, tenant = Pool.objects.create(name="mail"), Tenant.objects.create(key="acme")
    TenantLimits.objects.create(pool=pool, tenant=tenant)
    TenantLimits.objects.create(pool=pool, tenant=tenant, lane="bulk")
    again = TenantLimits(pool=pool, tenant=tenant, lane="")
    assert "__all__" in messages(again)
    with pytest.raises(IntegrityError), transaction.atomic():
        again.save()


def test_a_lane_out_of_form_is_refused() -> None:
    row = limits(lane="a|b")
    assert "lane “a|b” is not allowed" in messages(row)["lane"][0]


def test_a_pool_gets_its_code_and_keeps_it() -> None:
    pool = Pool.objects.create(name="mail")
    assert pool.code == pool_code("mail")
    pool.name = "post"
    pool.save()
    pool.refresh_from_db()
    assert pool.code == pool_code("mail")


def test_two_pools_with_one_code_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "pool_code", lambda name: "000000")
    Pool.objects.create(name="mail")
    assert "same code as the pool “mail”" in messages(Pool(name="post"))["name"][0]


def test_a_tenant_key_cannot_be_changed() -> None:
    tenant = Tenant.objects.create(key="acme")
    tenant.key = "other"
    assert "stays “acme”" in messages(tenant)["key"][0]
    tenant.key, tenant.name = "acme", "Acme"
    tenant.full_clean()


def test_the_permissions_to_operate_exist() -> None:
    found = set(Permission.objects.filter(content_type__model="operations").values_list("codename", flat=True))
    assert found == {
        "view_operations",
        "view_payload",
        "operate_pool",
        "operate_job",
        "discard_job",
        "view_all_tenants",
    }


def test_the_tables_live_in_the_database_of_the_settings() -> None:
    with override_settings(DUCTOR={**django_settings.DUCTOR, "DATABASE": "elsewhere"}):
        assert Pool.objects.all().db == "elsewhere"
        assert Pool.objects.using("default").db == "default"
        assert Tenant(key="acme")._state.db == "elsewhere"


def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "queueapp", check=True, dry_run=True, verbosity=0)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dispatch_rate", 0, "dispatch rate 0 is not allowed: use a number from 1 to 1000000"),
        ("dispatch_period_seconds", 0.0, "dispatch period 0.0 is not allowed: use a number from 0.001 to 2678400"),
        ("dispatch_burst", 0, "dispatch burst 0 is not allowed: use a number from 1 to 1000000"),
    ],
)
def test_a_dispatch_rate_is_refused_by_its_field(field: str, value: float, words: str) -> None:
    row = KeyLimit(pool=Pool.objects.create(name="mail"), pattern="all", **{field: value})
    with pytest.raises(ValidationError) as fault:
        row.full_clean()
    assert words in " ".join(fault.value.message_dict[field])
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save()
