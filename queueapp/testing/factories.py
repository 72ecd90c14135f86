"""factory-boy factories of Ductor's models, for hosts' tests and demo data. They need the package `factory-boy`.

`TenantLimitsFactory(tenant__key="acme", weight=3)` makes its tenant and the pool `default` unless they are there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

try:
    from factory.declarations import LazyAttribute, LazyFunction, Sequence, SubFactory
    from factory.django import DjangoModelFactory
    from factory.faker import Faker
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "queueapp.testing.factories needs the package factory-boy: pip install factory-boy"
    ) from error

from queueapp.codec import encode_arguments, fingerprint
from queueapp.models import DeadLetterInspection, KeyLimit, OutboxEntry, Pool, Schedule, Tenant, TenantLimits
from queueapp.moments import now_ms
from queueapp.producer import entries
from queueapp.store.ids import LENGTH, new_id
from queueapp.store.keys import ShardKeys, pool_code
from queueapp.store.records import NewJob

__all__ = [
    "DeadLetterInspectionFactory",
    "KeyLimitFactory",
    "OutboxEntryFactory",
    "PoolFactory",
    "ScheduleFactory",
    "TenantFactory",
    "TenantLimitsFactory",
]


def job_id(pool: str) -> str:
    """A new public id of a job of this pool."""
    return ShardKeys("ductor", pool_code(pool)).public_id(new_id())


def kept_job(entry: Any) -> dict[str, Any]:
    """What an entry says of its job beside the arguments, as the producer writes it: a scheduler could send it."""
    job = NewJob(
        id=entry.job_id[-LENGTH:],
        task=entry.task,
        tenant=entry.tenant,
        payload=entry.payload,
        fingerprint=fingerprint(entry.task, entry.payload),
    )
    return {"version": entries.VERSION, "backend": "default", "kept_ms": now_ms(), "job": entries.held(job)}


class PoolFactory(DjangoModelFactory[Pool]):
    """A pool; one of the same name is taken as it is."""

    class Meta:
        model = Pool
        django_get_or_create = ("name",)

    name = Sequence(lambda number: f"pool-{number}")


class TenantFactory(DjangoModelFactory[Tenant]):
    """A tenant; one of the same key is taken as it is."""

    class Meta:
        model = Tenant
        django_get_or_create = ("key",)

    key = Sequence(lambda number: f"tenant-{number}")
    name = Faker("company")


class TenantLimitsFactory(DjangoModelFactory[TenantLimits]):
    """What a tenant may do in the pool `default`, or in another one: `pool__name="mail"`."""

    class Meta:
        model = TenantLimits

    pool = SubFactory(PoolFactory, name="default")
    tenant = SubFactory(TenantFactory)
    weight = 1.0


class KeyLimitFactory(DjangoModelFactory[KeyLimit]):
    """How many jobs of the pool `default` may hold the same concurrency key at once."""

    class Meta:
        model = KeyLimit

    pool = SubFactory(PoolFactory, name="default")
    pattern = Sequence(lambda number: f"customer-{number}:{{customer_id}}")
    max_in_flight = 1


class OutboxEntryFactory(DjangoModelFactory[OutboxEntry]):
    """A job that waits for the store."""

    class Meta:
        model = OutboxEntry

    pool = "default"
    tenant = "default"
    task = "shop.tasks.send_invoice"
    job_id = LazyAttribute(lambda entry: job_id(entry.pool))
    payload = LazyFunction(lambda: encode_arguments([1], {}))
    job = LazyAttribute(lambda entry: kept_job(entry))
    due = LazyFunction(lambda: timezone.now() + timedelta(seconds=30))


class ScheduleFactory(DjangoModelFactory[Schedule]):
    """A schedule that fires at three every night; `task` should name one of the host's."""

    class Meta:
        model = Schedule

    name = Sequence(lambda number: f"schedule {number}")
    task = "shop.tasks.send_invoice"
    cron = "0 3 * * *"


class DeadLetterInspectionFactory(DjangoModelFactory[DeadLetterInspection]):
    """What somebody did with a dead letter."""

    class Meta:
        model = DeadLetterInspection

    pool = "default"
    tenant = "default"
    task = "shop.tasks.send_invoice"
    job_id = LazyAttribute(lambda inspection: job_id(inspection.pool))
    reason = "error"
    error = "builtins.ValueError"
    action = DeadLetterInspection.Action.RETRIED
    outcome = "retried"
    by = "operator"
