"""Limits in the admin: as a list of their own, where weights, ceilings and pauses are edited, and within a tenant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.db.models import Field, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from queueapp.admin.choosing import number
from queueapp.admin.widgets import NARROW_NUMBERS
from queueapp.models import Tenant, TenantLimits
from queueapp.store.configuration import Rate

if TYPE_CHECKING:
    LimitsBase = admin.ModelAdmin[TenantLimits]
    InlineBase = admin.TabularInline[TenantLimits, Tenant]
    FormBase = forms.ModelForm[TenantLimits]
else:
    LimitsBase, InlineBase, FormBase = admin.ModelAdmin, admin.TabularInline, forms.ModelForm


class LimitsForm(FormBase):
    """For whom limits are stays after creation: elsewhere they would leave the old scope limited until the repair."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            for name in self.fields.keys() & {"pool", "lane"}:
                self.fields[name].disabled = True


def rate_words(rate: Rate | None) -> str | None:
    """A rate in a few letters: `100 per 60 s, burst 10`."""
    if rate is None:
        return None
    told = gettext("%(rate)d per %(period)g s") % {"rate": rate.rate, "period": rate.period_ms / 1000}
    return told if rate.burst == 1 else gettext("%(told)s, burst %(burst)d") % {"told": told, "burst": rate.burst}


def wanted_pool(request: HttpRequest) -> int:
    """The number of the pool whose limits a new tenant is to get, from the address of the form; 0 = none."""
    return number(request.GET, "limits_pool", most=2**63 - 1)


class TenantLimitsInline(InlineBase):
    """The limits of one tenant, one row per pool and lane."""

    model = TenantLimits
    form = LimitsForm
    fields = (
        "pool",
        "lane",
        "weight",
        "max_in_flight",
        "min_share",
        "rate",
        "period_seconds",
        "burst",
        "backlog_limit",
        "dispatch_rate",
        "dispatch_period_seconds",
        "dispatch_burst",
        "paused",
    )
    extra = 0
    formfield_overrides: ClassVar = NARROW_NUMBERS

    def get_extra(self, request: HttpRequest, obj: Tenant | None = None, **kwargs: Any) -> int:
        return 1 if obj is None and wanted_pool(request) else super().get_extra(request, obj, **kwargs)

    def get_queryset(self, request: HttpRequest) -> QuerySet[TenantLimits]:
        return super().get_queryset(request).select_related("pool", "tenant").order_by("pool__name", "lane")

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "pool" and isinstance(field, forms.ModelChoiceField):
            # As a list, the choices are read once for the page, not once for each row.
            field.choices = [*cast("Iterable[Any]", field.choices)]
            for link in ("can_add_related", "can_change_related", "can_delete_related", "can_view_related"):
                setattr(field.widget, link, False)
        return field


@admin.register(TenantLimits)
class TenantLimitsAdmin(LimitsBase):
    """All limits in one list: change weights, ceilings, minima, pauses there; they are in force within a second."""

    list_display = (
        "tenant",
        "lane_or_all",
        "pool",
        "weight",
        "max_in_flight",
        "min_share",
        "rate_shown",
        "backlog_limit",
        "dispatch_rate_shown",
        "paused",
    )
    list_editable = ("weight", "max_in_flight", "min_share", "paused")
    list_filter = ("pool", "paused")
    formfield_overrides: ClassVar = NARROW_NUMBERS
    search_fields = ("tenant__key", "tenant__name", "lane")
    search_help_text = _("Key or name of a tenant, or a lane.")
    autocomplete_fields = ("tenant",)
    readonly_fields = ("created", "updated")
    fieldsets = (
        (None, {"fields": ("tenant", "pool", "lane", "weight", "max_in_flight", "min_share", "paused")}),
        (
            _("What may come in"),
            {
                "fields": ("rate", "period_seconds", "burst", "backlog_limit"),
                "description": _(
                    "A job above the rate is refused, or parked until it conforms where its task says "
                    "on_throttle=“park”. With a burst of 1 jobs come in one by one, each an interval after the one "
                    "before; a larger burst lets as many come at once after a rest, and no more in the long run."
                ),
            },
        ),
        (
            _("What may start"),
            {
                "fields": ("dispatch_rate", "dispatch_period_seconds", "dispatch_burst"),
                "description": _(
                    "Nothing is refused: a job above this rate stays in line and starts when its turn and the rate "
                    "let it. How many run at once is the ceiling’s."
                ),
            },
        ),
        (_("Record"), {"fields": ("created", "updated")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: TenantLimits | None = None) -> tuple[str, ...]:
        return self.readonly_fields if obj is None else ("tenant", "pool", "lane", *self.readonly_fields)

    @admin.display(description=_("rate"), ordering="rate", empty_value="–")
    def rate_shown(self, limits: TenantLimits) -> str | None:
        return rate_words(limits.asked_rate)

    @admin.display(description=_("dispatch rate"), ordering="dispatch_rate", empty_value="–")
    def dispatch_rate_shown(self, limits: TenantLimits) -> str | None:
        return rate_words(limits.asked_dispatch_rate)

    @admin.display(description=_("lane"), ordering="lane")
    def lane_or_all(self, limits: TenantLimits) -> Any:
        return limits.lane or _("(whole tenant)")
