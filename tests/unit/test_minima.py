"""Guaranteed minima as people configure them: what is refused, what is warned of, and how they come into force."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, transaction

from queueapp import database_checks
from queueapp.api.pool_shapes import Limits as LimitsShape
from queueapp.inspection.fairness import certificate
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.store.configuration import ScopeLimits
from queueapp.store.records import NewJob
from queueapp.store.store import Store

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool() -> Pool:
    return Pool.objects.create(name="default", max_in_flight=20)


def limits(pool: Pool, key: str, **values: Any) -> TenantLimits:
    return TenantLimits(pool=pool, tenant=Tenant.objects.get_or_create(key=key)[0], **values)


def said(instance: Any) -> dict[str, list[str]]:
    with pytest.raises(ValidationError) as caught:
        instance.full_clean()
    return caught.value.message_dict


def warned(*databases: str) -> list[str]:
    messages = database_checks.check_minima(databases)
    assert {message.id for message in messages} <= {"queueapp.W040"}
    return [message.msg for message in messages]


class TestWhatIsRefused:
    def test_a_minimum_of_a_lane_by_form_and_by_database(self, pool: Pool) -> None:
        row = limits(pool, "acme", lane="bulk", min_share=1)
        assert said(row) == {"__all__": ["A guaranteed minimum is the tenant's: leave it at 0 for a lane."]}
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save()

    def test_a_minimum_above_the_ceiling_by_form_and_by_database(self, pool: Pool) -> None:
        row = limits(pool, "acme", max_in_flight=2, min_share=3)
        assert said(row) == {"__all__": ["The guaranteed minimum must not be above the ceiling."]}
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save()

    def test_a_minimum_as_high_as_the_ceiling_is_taken(self, pool: Pool) -> None:
        limits(pool, "acme", max_in_flight=3, min_share=3).full_clean()

    def test_more_than_nine_tenths_of_the_pools_ceiling_together(self, pool: Pool) -> None:
        limits(pool, "globex", min_share=10).save()
        limits(Pool.objects.create(name="other", max_in_flight=1), "acme", min_share=9).save()
        row = limits(pool, "acme", min_share=8)
        row.full_clean()
        row.min_share = 9
        assert said(row) == {
            "min_share": [
                "guaranteed minimum 9 is too much: all of a pool's minima together take 90% of its ceiling at most, "
                "and 8 of that is left."
            ]
        }

    def test_a_row_does_not_count_itself(self, pool: Pool) -> None:
        row = limits(pool, "acme", min_share=18)
        row.save()
        row.full_clean()

    @pytest.mark.parametrize("ceiling", [None, 0])
    def test_without_a_ceiling_and_in_a_closed_pool_nothing_is_added_up(self, pool: Pool, ceiling: int | None) -> None:
        pool.max_in_flight = ceiling
        pool.save()
        limits(pool, "acme", min_share=1000).full_clean()


class TestTheCheck:
    def test_minima_that_leave_too_little_are_named(self, pool: Pool) -> None:
        limits(pool, "acme", min_share=10).save()
        limits(pool, "globex", min_share=8).save()
        assert warned("default") == []
        pool.max_in_flight = 19
        pool.save()
        assert warned("default") == [
            "The guaranteed minima in the pool 'default' add up to 18, more than 90% of its ceiling, 19."
        ]
        assert warned("another") == warned() == []
        for nothing_to_share in (0, None):
            pool.max_in_flight = nothing_to_share
            pool.save()
            assert warned("default") == []

    def test_it_is_one_of_djangos_checks_of_a_database(self, pool: Pool) -> None:
        limits(pool, "acme", min_share=20).save()
        assert "queueapp.W040" in {message.id for message in run_checks(databases=["default"])}
        assert "queueapp.W040" not in {message.id for message in run_checks()}
        call_command("check", databases=["default"])

    def test_before_the_first_migration_there_is_nothing_to_say(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_table(**_: object) -> None:
            raise DatabaseError("no such table: queueapp_pool")

        monkeypatch.setattr(Pool.objects, "filter", no_table)
        assert warned("default") == []

    def test_faulty_settings_are_for_other_checks(self, settings: Any) -> None:
        settings.DUCTOR = {**django_settings.DUCTOR, "NAMESPACE": "!"}
        assert warned("default") == []


@pytest.mark.django_db(transaction=True)
def test_it_comes_into_force_and_goes(store: Store, pool: Pool) -> None:
    row = limits(pool, "small", min_share=2)
    row.save()
    assert shards.reads("default").scope_limits() == {("small", ""): ScopeLimits(tenant="small", min_share=2)}
    for number, tenant in enumerate(("big", "big", "big", "small", "small", "small")):
        store.enqueue([NewJob(id=f"{number:022d}", task="t", tenant=tenant, payload=b"{}", fingerprint="f", cost=1)])
    assert [tenant for tenant, _, _ in store.peek(3)] == ["small", "small", "big"]
    row.delete()
    assert shards.reads("default").scope_limits() == {}
    assert [tenant for tenant, _, _ in store.peek(2)] == ["big", "small"]


@pytest.mark.django_db(transaction=True)
def test_the_certificate_and_the_terminal_tell_it(store: Store, pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    store.enqueue([NewJob(id="7" * 22, task="t", tenant="small", payload=b"{}", fingerprint="f")])
    call_command("ductor", "tenants")
    assert " min " not in capsys.readouterr().out, "a column only where somebody has one"
    limits(pool, "small", min_share=2).save()
    found = certificate("default").of("small")
    assert found is not None
    assert (found.min_share, found.active) == (2, 0)
    call_command("ductor", "tenants")
    assert capsys.readouterr().out.split()[:4] == ["tenant", "state", "weight", "min"]


def test_rest_has_a_word_for_it() -> None:
    assert "min_share" in LimitsShape().fields
