"""Every address of ours in the admin, found in the URLconf, so that a new view cannot be forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import URLPattern, reverse

from queueapp.models import DeadLetterInspection, KeyLimit, OutboxEntry, Pool, Schedule, Tenant, TenantLimits
from tests.unit.admin.conftest import fail, keep


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An address and the name of its view without `queueapp_`."""

    name: str
    url: str


def names() -> dict[str, URLPattern]:
    """Name → pattern of every view of ours, also of those that Django makes for our models."""
    found = {}
    for pattern in admin.site.get_urls():
        for inner in getattr(pattern, "url_patterns", []):
            if isinstance(inner, URLPattern) and (name := inner.name or "").startswith("queueapp_"):
                found[name.removeprefix("queueapp_")] = inner
    return found


def pages() -> list[Page]:
    """All of them, with rows and a dead letter to look at where an address is about one."""
    pool = Pool.objects.create(name="mail")
    tenant = Tenant.objects.create(key="acme")
    rows = {
        "pool": pool.pk,
        "tenant": tenant.pk,
        "tenantlimits": TenantLimits.objects.create(pool=pool, tenant=tenant).pk,
        "keylimit": KeyLimit.objects.create(pool=pool, pattern="customer:{customer_id}").pk,
        "outboxentry": keep().pk,
        "schedule": Schedule.objects.create(name="nightly", task="tests.producing.add", args=[1], cron="0 3 * * *").pk,
        "deadletterinspection": DeadLetterInspection.objects.create(job_id="x", action="noted").pk,
    }
    values = {"job_id": quote(fail()[0]), "pool": "default", "pk": pool.pk}
    found = []
    for name, pattern in sorted(names().items()):
        arguments = {
            argument: rows[name.partition("_")[0]] if argument == "object_id" else values[argument]
            for argument in pattern.pattern.converters
        }
        found.append(Page(name=name, url=reverse(f"admin:queueapp_{name}", kwargs=arguments)))
    assert OutboxEntry.objects.exists()
    return found
