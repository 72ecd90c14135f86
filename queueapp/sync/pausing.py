"""Pause and resume: a pool, a tenant of it, or one lane of a tenant. One function, whatever the skin.

What is paused stands in the rows, as everything that people configure, and acts through the store: a save carries it
over, and a scheduler's repair does when the store was away. Jobs that wait keep their places.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from queueapp.conf import settings
from queueapp.errors import InvalidOption, StoreError
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.sync.intent import settings_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """What became of a request to pause or resume."""

    paused: bool
    changed: bool
    """False: it was so already."""
    in_force: bool
    """False: it is saved, and the store did not take it yet; a scheduler brings it over."""


def pause(pool: str, *, tenant: str = "", lane: str = "", by: str = "") -> Paused:
    """Nothing more of it starts; jobs are accepted, and what runs goes on. `by` goes to the log."""
    return _set(pool, tenant, lane, paused=True, by=by)


def resume(pool: str, *, tenant: str = "", lane: str = "", by: str = "") -> Paused:
    """It goes on where it stopped, in the same order. `by` goes to the log."""
    return _set(pool, tenant, lane, paused=False, by=by)


def _set(pool: str, tenant: str, lane: str, *, paused: bool, by: str) -> Paused:
    if lane and not tenant:
        raise InvalidOption(f"A lane is a tenant's: name the tenant of {lane!r}, too.")
    try:
        with transaction.atomic(using=settings.database):
            changed = _limits(pool, tenant, lane, paused) if tenant else _pool(pool, paused)
    except ValidationError as error:
        raise InvalidOption(" ".join(error.messages)) from error
    try:
        in_force = shards.reads(pool).is_paused(tenant, lane) == paused
    except StoreError:
        in_force = False
    logger.info(
        "Paused" if paused else "Resumed",
        extra={"pool": pool, "tenant": tenant, "lane": lane, "by": by, "changed": changed, "in_force": in_force},
    )
    return Paused(paused=paused, changed=changed, in_force=in_force)


def _pool(name: str, paused: bool) -> bool:
    """Whether the row of the pool was changed. Without one the settings hold, which may pause it."""
    if not Pool.objects.filter(name=name).exists() and bool(settings_of(name).get("paused")) == paused:
        return False
    return _changed(_pool_row(name), paused)


def _limits(name: str, key: str, lane: str, paused: bool) -> bool:
    """Whether the limits of the tenant or the lane were changed. Without any nothing of it is paused."""
    scope = {"pool__name": name, "tenant__key": key, "lane": lane}
    found = TenantLimits.objects.filter(**scope).first()
    if found is None and not paused:
        return False
    if found is None:
        _check(Tenant(key=key))
        pool, (tenant, _) = _pool_row(name), Tenant.objects.get_or_create(key=key)
        # No weight of its own: it keeps to what holds without a row.
        _check(TenantLimits(pool=pool, tenant=tenant, lane=lane, weight=None))
        found, _ = TenantLimits.objects.get_or_create(pool=pool, tenant=tenant, lane=lane, defaults={"weight": None})
    return _changed(found, paused)


def _pool_row(name: str) -> Pool:
    found = Pool.objects.filter(name=name).first()
    if found is None:
        _check(Pool(name=name, **settings_of(name)))
        found, _ = Pool.objects.get_or_create(name=name, defaults=settings_of(name))
    return found


def _check(row: Pool | Tenant | TenantLimits) -> None:
    """Raises ValidationError for a name that is none. That somebody else makes the same row is no fault."""
    row.full_clean(validate_unique=False, validate_constraints=False)


def _changed(row: Pool | TenantLimits, paused: bool) -> bool:
    """Of two that ask for the same at once, one has changed it."""
    rows: Any = type(row).objects.select_for_update()
    held: Pool | TenantLimits | None = rows.filter(pk=row.pk).first()
    if held is None or held.paused == paused:
        return False
    held.paused = paused
    held.save(update_fields=["paused", "updated"])
    return True
