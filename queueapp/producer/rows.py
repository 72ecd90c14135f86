"""Which pools and tenants there are, beyond what the settings name: looked up in our tables only when that matters.

A pool that the settings name costs nothing. One that only a row names, and every tenant under
`UNKNOWN_TENANTS = "reject"`, is looked up and then remembered for `REMEMBER_S`; that something is missing is never
remembered, so that a new row is found at once.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from django.core.signals import setting_changed

from queueapp.conf import known_pools, settings
from queueapp.errors import UnknownTenant
from queueapp.names import POOL_FORM
from queueapp.producer.options import UnknownQueue

if TYPE_CHECKING:
    from django.db.models import QuerySet

REMEMBER_S = 10.0

_seen: dict[tuple[str, str], float] = {}
"""("pool" or "tenant", name) → until when its row is taken to be there. No lock: each use of it is one step."""


def require_pool(name: str) -> None:
    """Raises UnknownQueue, which lists the known pools, unless the settings or a Pool row name this one."""
    if name not in known_pools() and not _remembered("pool", name):
        # PostgreSQL cannot even be asked for some of the texts that are no names.
        if not (POOL_FORM.fullmatch(name) and _pool_rows().filter(name=name).exists()):
            raise _unknown_pool(name, set(_pool_rows().values_list("name", flat=True)))
        _remember("pool", name)


async def arequire_pool(name: str) -> None:
    """See `require_pool`."""
    if name not in known_pools() and not _remembered("pool", name):
        if not (POOL_FORM.fullmatch(name) and await _pool_rows().filter(name=name).aexists()):
            raise _unknown_pool(name, {row async for row in _pool_rows().values_list("name", flat=True)})
        _remember("pool", name)


def require_tenant(tenant: str) -> None:
    """Raises UnknownTenant under `UNKNOWN_TENANTS = "reject"` unless the tenant has a row."""
    if settings.unknown_tenants == "reject" and not _remembered("tenant", tenant):
        if not _tenant_rows(tenant).exists():
            raise _unknown_tenant(tenant)
        _remember("tenant", tenant)


async def arequire_tenant(tenant: str) -> None:
    """See `require_tenant`."""
    if settings.unknown_tenants == "reject" and not _remembered("tenant", tenant):
        if not await _tenant_rows(tenant).aexists():
            raise _unknown_tenant(tenant)
        _remember("tenant", tenant)


def forget() -> None:
    """Look everything up anew."""
    _seen.clear()


def _remembered(kind: str, name: str) -> bool:
    return _seen.get((kind, name), 0.0) > monotonic()


def _remember(kind: str, name: str) -> None:
    if len(_seen) > 10_000:
        _seen.clear()
    _seen[kind, name] = monotonic() + REMEMBER_S


def _pool_rows() -> QuerySet[Any]:
    # Imported late: tasks modules, which import us, are loaded before the apps' models may be.
    from queueapp.models import Pool

    return Pool.objects.all()


def _tenant_rows(tenant: str) -> QuerySet[Any]:
    from queueapp.models import Tenant

    return Tenant.objects.filter(key=tenant)


def _unknown_pool(name: str, rows: set[str]) -> UnknownQueue:
    return UnknownQueue(
        name, known_pools() | rows, 'Correct queue_name, or name the pool in TASKS[...]["QUEUES"] or DUCTOR["POOLS"].'
    )


def _unknown_tenant(tenant: str) -> UnknownTenant:
    return UnknownTenant(
        f"tenant {tenant!r} has no row, and DUCTOR['UNKNOWN_TENANTS'] is \"reject\". Add the tenant in the admin first."
    )


def _on_setting_changed(*, setting: str, **_: object) -> None:
    if setting in {"DUCTOR", "TASKS", "DATABASES"}:
        forget()


setting_changed.connect(_on_setting_changed, dispatch_uid="queueapp.producer.rows")
