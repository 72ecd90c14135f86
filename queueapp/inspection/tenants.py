"""Which tenants a pool has seen, with or without a row in our tables. Called by the admin and by REST."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from queueapp.models import Tenant
from queueapp.names import SYSTEM_TENANT
from queueapp.store import shards
from queueapp.store.views import TenantEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTenant:
    """A tenant that had work in a pool. `active` is None where neither a ceiling nor a guaranteed minimum counts
    its running jobs.
    """

    key: str
    waiting: int
    parked: int = 0
    """Of those that wait: above a rate, until their moment comes."""
    active: int | None
    dead: int
    has_row: bool

    @property
    def is_ours(self) -> bool:
        """No tenant of the host's: nobody sets limits for it."""
        return self.key == SYSTEM_TENANT


def seen_tenants(pool: str, *, offset: int = 0, count: int = 50) -> tuple[list[SeenTenant], int]:
    """A page of them, those with most waiting jobs first, and how many there are: two round trips and one query.

    The store remembers 100,000 tenants without work; beyond, it forgets some of those, never one with work.
    """
    entries, total = shards.reads(pool).tenants(offset=offset, count=count)
    return _with_rows(entries), total


def tenants_in(pool: str, keys: Sequence[str]) -> list[SeenTenant]:
    """How these tenants stand in a pool, whether it has seen them or not; two round trips and one query."""
    return _with_rows(shards.reads(pool).tenants_of(keys))


def _with_rows(entries: Sequence[TenantEntry]) -> list[SeenTenant]:
    with_row = set(Tenant.objects.filter(key__in=[entry.tenant for entry in entries]).values_list("key", flat=True))
    return [
        SeenTenant(
            key=entry.tenant,
            waiting=entry.waiting,
            parked=entry.parked,
            active=entry.active,
            dead=entry.dead,
            has_row=entry.tenant in with_row,
        )
        for entry in entries
    ]
