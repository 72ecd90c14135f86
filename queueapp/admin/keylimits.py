"""Limits of concurrency keys in the admin: one row per pool and pattern, and which tasks name the pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from queueapp.admin.limits import rate_words
from queueapp.models import KeyLimit
from queueapp.producer.discovery import load_tasks, registry

if TYPE_CHECKING:
    KeyLimitBase = admin.ModelAdmin[KeyLimit]
else:
    KeyLimitBase = admin.ModelAdmin

SHOWN = 10


@admin.register(KeyLimit)
class KeyLimitAdmin(KeyLimitBase):
    """What is set here goes before what tasks say, at once for new jobs, and for those that wait as fast as their keys
    can be looked at. A pattern that no task names limits nothing."""

    list_display = ("pattern", "pool", "max_in_flight", "rate_shown", "dispatch_rate_shown", "named_by")
    list_editable = ("max_in_flight",)
    list_filter = ("pool",)
    list_select_related = ("pool",)
    search_fields = ("pattern",)
    readonly_fields = ("named_by", "created", "updated")
    fields = (
        "pool",
        "pattern",
        "max_in_flight",
        "rate",
        "period_seconds",
        "burst",
        "dispatch_rate",
        "dispatch_period_seconds",
        "dispatch_burst",
        "named_by",
        "created",
        "updated",
    )

    def get_readonly_fields(self, request: HttpRequest, obj: KeyLimit | None = None) -> tuple[str, ...]:
        # Elsewhere the row would leave the old pattern limited until the repair.
        return self.readonly_fields if obj is None else ("pool", "pattern", *self.readonly_fields)

    def get_fields(self, request: HttpRequest, obj: KeyLimit | None = None) -> tuple[str, ...]:
        # A limit to be has no record yet.
        return self.fields[:9] if obj is None else self.fields

    @admin.display(description=_("rate"), ordering="rate", empty_value="–")
    def rate_shown(self, limit: KeyLimit) -> str | None:
        return rate_words(limit.asked_rate)

    @admin.display(description=_("dispatch rate"), ordering="dispatch_rate", empty_value="–")
    def dispatch_rate_shown(self, limit: KeyLimit) -> str | None:
        return rate_words(limit.asked_dispatch_rate)

    @admin.display(description=_("named by"), empty_value="")
    def named_by(self, limit: KeyLimit) -> str:
        """The tasks that have a key of this pattern in their `@task`, and the limits that they give."""
        load_tasks()
        tasks = {task.module_path: task for task in registry.values()}
        found = [
            f"{name} ({key.limit})"
            for name, task in sorted(tasks.items())
            for key in task.concurrency
            if key.pattern == limit.pattern
        ]
        if not found:
            return gettext("no task that is declared here; one may in .using(…)")
        return ", ".join(found[:SHOWN]) + ("…" if len(found) > SHOWN else "")
