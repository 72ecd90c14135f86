"""The history of dead letters in the admin: who did what to which, when. Nobody edits it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from queueapp.admin.showing import short_id
from queueapp.models import DeadLetterInspection

if TYPE_CHECKING:
    InspectionBase = admin.ModelAdmin[DeadLetterInspection]
else:
    InspectionBase = admin.ModelAdmin


@admin.register(DeadLetterInspection)
class DeadLetterInspectionAdmin(InspectionBase):
    """The newest first. Rows are made by what people do."""

    list_display = ("short_id", "action", "by", "created", "tenant", "task", "error")
    list_filter = ("action",)
    search_fields = ("=job_id", "=tenant", "=by")
    search_help_text = _("A job's id, a tenant, or who did it.")
    fields = ("job_id", "pool", "tenant", "task", "reason", "error", "action", "outcome", "note", "by", "created")
    ordering = ("-id",)
    show_full_result_count = False

    @admin.display(description=_("job"), ordering="job_id")
    def short_id(self, row: DeadLetterInspection) -> str:
        return short_id(row.job_id)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: DeadLetterInspection | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: DeadLetterInspection | None = None) -> bool:
        return False
