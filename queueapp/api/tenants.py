"""Tenants: those for whom the user may speak, with their counts in one pool and what is configured for them there.

Nothing is changed here: weights and ceilings are for those who run the pools, in the admin.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework.request import Request
from rest_framework.response import Response

from queueapp.api import faults, pool_shapes
from queueapp.api.fairness import own_share
from queueapp.api.grants import ALL
from queueapp.api.requests import PoolQuery, TenantsQuery
from queueapp.api.schema import operation
from queueapp.api.view import DuctorView
from queueapp.inspection.fairness import certificate
from queueapp.inspection.overview import PoolStatus
from queueapp.inspection.tenants import SeenTenant, seen_tenants, tenants_in
from queueapp.models import Tenant, TenantLimits
from queueapp.names import TENANT_FORM


class TenantsView(DuctorView):
    """`GET tenants/`: one's own by key; every tenant that the pool has seen for who may speak for all."""

    @operation("ductor_tenants_list", _("List tenants"), query=TenantsQuery, answers={200: pool_shapes.Tenants})
    def get(self, request: Request, **kwargs: Any) -> Response:
        query = self.asked(TenantsQuery)
        pool, size, cursor = self.pool(query["pool"]), query["page_size"], query.get("cursor")
        if self.tenants is ALL:
            offset = _offset(cursor)
            seen, total = seen_tenants(pool, offset=offset, count=size)
            following = str(offset + size) if offset + size < total else None
        else:
            after = sorted(key for key in self.tenants if key > (cursor or ""))
            seen = tenants_in(pool, after[:size])
            following = after[size - 1] if len(after) > size else None
        results = [self._brief(tenant, pool) for tenant in seen]
        return Response({"next": self.next_url(following), "results": results})

    def _brief(self, seen: SeenTenant, pool: str) -> dict[str, Any]:
        return brief(seen, pool, self.url("tenant", tenant_key=seen.key))


class TenantView(DuctorView):
    """`GET tenants/{key}/`: how a tenant stands in one pool, and what is configured for it there."""

    @operation(
        "ductor_tenants_look",
        _("Look at a tenant"),
        path={"tenant_key": _("The tenant's id.")},
        query=PoolQuery,
        answers={200: pool_shapes.Tenant},
        faults=(404,),
    )
    def get(self, request: Request, tenant_key: str, **kwargs: Any) -> Response:
        if tenant_key not in self.tenants or not TENANT_FORM.fullmatch(tenant_key):
            raise faults.not_found()
        pool = self.pool(self.asked(PoolQuery)["pool"])
        [seen] = tenants_in(pool, [tenant_key])
        limits = TenantLimits.objects.filter(tenant__key=tenant_key, pool__name=pool).order_by("lane")
        return Response(
            {
                **brief(seen, pool, self.url("tenant", tenant_key=tenant_key)),
                "name": Tenant.objects.filter(key=tenant_key).values_list("name", flat=True).first() or "",
                "own_share": own_share(certificate(pool, tenants=[tenant_key]), tenant_key),
                "limits": list(limits.values(*LIMITS)[:LIMITS_MAX]),
            }
        )


LIMITS = (
    *("lane", "weight", "max_in_flight", "min_share", "paused"),
    *("rate", "period_seconds", "burst", "backlog_limit"),
    *("dispatch_rate", "dispatch_period_seconds", "dispatch_burst"),
)
LIMITS_MAX = 1_000
"""Most lanes of a tenant that are told."""


def brief(seen: SeenTenant, pool: str, url: str) -> dict[str, Any]:
    """A tenant in a list."""
    return {"key": seen.key, "url": url, "pool": pool, **counts(seen)}


def counts(seen: SeenTenant | PoolStatus) -> dict[str, Any]:
    """How many jobs a tenant has in a pool, or the pool as a whole."""
    return {name: getattr(seen, name) for name in ("waiting", "parked", "active", "dead")}


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 12):
        raise faults.wrong_cursor()
    return int(cursor)
