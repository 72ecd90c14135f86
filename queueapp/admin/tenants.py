"""Tenants in the admin, with their limits on the same page, and those that only the store has met so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from queueapp.admin.choosing import OFFSET_MOST, address, number
from queueapp.admin.limits import TenantLimitsInline, wanted_pool
from queueapp.admin.pages import allowed, choose_pool, draw, guarded
from queueapp.inspection.fairness import TenantShare, certificate
from queueapp.inspection.tenants import SeenTenant, seen_tenants
from queueapp.models import Pool, Tenant
from queueapp.permissions import VIEW_OPERATIONS

if TYPE_CHECKING:
    TenantBase = admin.ModelAdmin[Tenant]
else:
    TenantBase = admin.ModelAdmin

SEEN_PER_PAGE = 100


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

    def get_fields(self, request: HttpRequest, obj: Tenant | None = None) -> tuple[str, ...]:
        # A tenant to be has no record yet.
        return self.fields[:-2] if obj is None else self.fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        tenants: QuerySet[Tenant] = super().get_queryset(request).annotate(limit_count=Count("limits"))
        return tenants

    @admin.display(description=_("limits"), ordering="limit_count")
    def limit_count(self, tenant: Tenant) -> int:
        return getattr(tenant, "limit_count", 0)

    def get_urls(self) -> list[Any]:
        seen: URLPattern = path("seen/", guarded(self, self.seen_page), name="queueapp_tenant_seen")
        return [seen, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        return super().changelist_view(
            request, {**(extra_context or {}), "may_look": allowed(request, VIEW_OPERATIONS)}
        )

    def get_formset_kwargs(self, request: HttpRequest, obj: Tenant, inline: Any, prefix: str) -> dict[str, Any]:
        """A new tenant's first limits are about the pool that the address names ("set limits" of those seen)."""
        kwargs: dict[str, Any] = super().get_formset_kwargs(request, obj, inline, prefix)
        if obj._state.adding and request.method == "GET" and (pool := wanted_pool(request)):
            kwargs["initial"] = [{"pool": pool}]
        return kwargs

    def seen_page(self, request: HttpRequest) -> HttpResponse:
        """The tenants that the store knows in a pool; what has no row runs with the defaults of the pool."""
        choice = choose_pool(request)
        offset = number(request.GET, "offset", most=OFFSET_MOST)
        answer = choice.ask(lambda pool: _seen(pool, offset))
        tenants, total, shares = answer.value or ([], 0, {})
        every = "every" in request.GET
        shown = [tenant for tenant in tenants if every or not tenant.has_row]
        row = Pool.objects.filter(name=choice.chosen).values_list("pk", flat=True).first()
        add = reverse("admin:queueapp_tenant_add", current_app=self.admin_site.name)
        parameters = {"pool": choice.chosen, "every": "1" if every else ""}
        following = offset + SEEN_PER_PAGE
        context = {
            "choice": choice,
            "fault": answer.fault,
            "total": total,
            "every": every,
            "hidden": len(tenants) - len(shown),
            "every_url": address("", {"pool": choice.chosen, "every": "1", "offset": offset}),
            "may_add": self.has_add_permission(request),
            "may_view": self.has_view_permission(request),
            "rows": [
                (
                    tenant,
                    f"{shares[tenant.key].share:.1%}",
                    f"{shares[tenant.key].entitled_share:.1%}",
                    shares[tenant.key].state,
                    address(add, {"key": tenant.key, "limits_pool": row}),
                    self._search(tenant.key),
                )
                for tenant in shown
            ],
            "previous": address("", {**parameters, "offset": max(0, offset - SEEN_PER_PAGE)}) if offset else "",
            "next": address("", {**parameters, "offset": following}) if following < total else "",
        }
        return draw(self, request, "tenants_seen.html", gettext("Tenants seen"), context)

    def _search(self, key: str) -> str:
        return address(reverse("admin:queueapp_tenant_changelist", current_app=self.admin_site.name), {"q": key})


def _seen(pool: str, offset: int) -> tuple[list[SeenTenant], int, dict[str, TenantShare]]:
    """A page of tenants, how many there are, and what each of the page had of the pool lately."""
    tenants, total = seen_tenants(pool, offset=offset, count=SEEN_PER_PAGE)
    asked = [tenant.key for tenant in tenants]
    return tenants, total, {one.tenant: one for one in certificate(pool, tenants=asked).tenants}
