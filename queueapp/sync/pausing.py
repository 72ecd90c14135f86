"""Pause and resume: a pool, a tenant of it, or one lane of a tenant. One function, whatever the skin.

What is paused stands in the rows, as everything that people configure, and acts through the store: a save carries it
over, and a scheduler's repair does when the store was away. Jobs that wait keep their places.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.core.exceptions import ValidationError

from queueapp.errors import InvalidOption, StoreError
from queueapp.models import Pool, Tenant, TenantLimits
from queueapp.store import shards
from queueapp.sync.intent import settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """What became of a request to pause or resume."""

    paused: bool
    changed: bool
    """False: it was so already."""
    in_force: bool
    """False: it is saved, and the store did not take it yet; a scheduler brings it over."""


def pause(pool: str, *, tenant: str = "", lane: str = "") -> Paused:
    """Nothing more of it starts; jobs are accepted, and what runs goes on."""
    return _set(pool, tenant, lane, paused=True)


def resume(pool: str, *, tenant: str = "", lane: str = "") -> Paused:
    """It goes on where it stopped, in the same order."""
    return _set(pool, tenant, lane, paused=False)


def _set(pool: str, tenant: str, lane: str, *, paused: bool) -> Paused:
    if lane and not tenant:
        raise InvalidOption(f"A lane is a tenant's: name the tenant of {lane!r}, too.")
    try:
        row = _row(pool, tenant, lane, make=paused)
        changed = row is not None and row.paused != paused
        if row is not None and changed:
            row.paused = paused
            row.save(update_fields=["paused", "updated"])
    except ValidationError as error:
        raise InvalidOption(" ".join(error.messages)) from error
    try:
        in_force = shards.reads(pool).is_paused(tenant, lane) == paused
    except StoreError:
        in_force = False
    return Paused(paused=paused, changed=changed, in_force=in_force)


def _row(name: str, tenant: str, lane: str, *, make: bool) -> Pool | TenantLimits | None:
    """The row that says so; with `make` it is made where there is none, as what held without it."""
    pool = Pool.objects.filter(name=name).first()
    if pool is None and make:
        pool = Pool(name=name, **settings_of(name))
        pool.full_clean()
        pool.save()
    if pool is None or not tenant:
        return pool
    limits = TenantLimits.objects.filter(pool=pool, tenant__key=tenant, lane=lane).first()
    if limits is None and make:
        owner = Tenant.objects.filter(key=tenant).first()
        if owner is None:
            owner = Tenant(key=tenant)
            owner.full_clean()
            owner.save()
        weight = 1.0 if lane else float(pool.default_weight)
        limits = TenantLimits(pool=pool, tenant=owner, lane=lane, weight=weight)
        limits.full_clean()
        limits.save()
    return limits
