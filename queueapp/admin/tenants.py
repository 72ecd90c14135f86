"""Tenants in the admin, with their limits on the same page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from queueapp.admin.limits import TenantLimitsInline
from queueapp.models import Tenant

if TYPE_CHECKING:
    TenantBase = admin.ModelAdmin[Tenant]
else:
    TenantBase = admin.ModelAdmin


@admin.register(Tenant)
class TenantAdmin(TenantBase):
    """A tenant's key stays after creation. Deleting a tenant removes its settings and no job."""

    list_display = ("key", "name", "limit_count", "updated")
    search_fields = ("key", "name")
    readonly_fields = ("created", "updated")
    fields = ("key", "name", "notes", "created", "updated")
    inlines = (TenantLimitsInline,)

    def get_readonly_fields(self, request: HttpRequest, obj: Tenant | None = None) -> tuple[str, ...]:
        return self.readonly_fields if obj is None else ("key", *self.readonly_fields)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        tenants: QuerySet[Tenant] = super().get_queryset(request).annotate(limit_count=Count("limits"))
        return tenants

    @admin.display(description=_("limits"), ordering="limit_count")
    def limit_count(self, tenant: Tenant) -> int:
        return getattr(tenant, "limit_count", 0)
