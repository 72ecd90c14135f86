"""The admin of pools, tenants and limits. Only the deletion of a pool asks the store, and waits a second at most."""

from __future__ import annotations

from queueapp.admin.limits import TenantLimitsAdmin, TenantLimitsInline
from queueapp.admin.pools import PoolAdmin
from queueapp.admin.tenants import TenantAdmin

__all__ = ["PoolAdmin", "TenantAdmin", "TenantLimitsAdmin", "TenantLimitsInline"]
