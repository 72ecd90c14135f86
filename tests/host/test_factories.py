"""The factories make rows that are valid, and that the rest of Ductor takes as its own."""

from __future__ import annotations

import sys

import pytest

from queueapp.models import DeadLetterInspection, OutboxEntry, Pool, Tenant, TenantLimits
from queueapp.producer import entries
from queueapp.store import shards
from queueapp.testing import Ductor, drain
from queueapp.testing.factories import (
    DeadLetterInspectionFactory,
    KeyLimitFactory,
    OutboxEntryFactory,
    PoolFactory,
    ScheduleFactory,
    TenantFactory,
    TenantLimitsFactory,
)
from tests.host.shop import ran

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "factory",
    [
        PoolFactory,
        TenantFactory,
        TenantLimitsFactory,
        KeyLimitFactory,
        OutboxEntryFactory,
        DeadLetterInspectionFactory,
    ],
    ids=lambda factory: factory.__name__,
)
def test_rows_are_valid_and_there_can_be_many(factory: type) -> None:
    for row in factory.create_batch(3):  # type: ignore[attr-defined]  # the narrower type is known here alone
        row.full_clean()


def test_a_schedule_names_a_task_of_the_host() -> None:
    for row in ScheduleFactory.create_batch(2, task="tests.host.shop.send_invoice", args=[1]):
        row.full_clean()
        assert row.next_at is not None


def test_parts_can_be_named() -> None:
    limits = TenantLimitsFactory.create(tenant__key="acme", pool__name="mail", weight=3)
    again = TenantLimitsFactory.create(tenant__key="acme", lane="night")

    assert (limits.tenant.key, limits.pool.name, limits.weight) == ("acme", "mail", 3)
    assert again.tenant == limits.tenant
    assert (Pool.objects.count(), Tenant.objects.count(), TenantLimits.objects.count()) == (2, 1, 2)


def test_an_outbox_entry_can_be_sent(ductor: Ductor) -> None:
    entry = OutboxEntryFactory.create(task="tests.host.shop.send_invoice", tenant="acme")

    shards.store(entry.pool).enqueue([entries.job_of(entry)])
    drain()

    assert ran == [("acme", 1)]
    assert OutboxEntry.objects.get().job_id.endswith(entries.job_of(entry).id)


def test_an_inspection_says_what_was_done() -> None:
    assert DeadLetterInspectionFactory.create(by="ada").by == "ada"
    assert DeadLetterInspection.objects.get().action == "retried"


def test_without_factory_boy_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "queueapp.testing.factories")
    for name in [name for name in sys.modules if name.partition(".")[0] == "factory"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "factory", None)

    with pytest.raises(ModuleNotFoundError, match="pip install factory-boy"):
        __import__("queueapp.testing.factories")
