"""Outbox entries in the admin: what the store has not taken yet. People look, try again or delete; nobody edits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from queueapp.admin.pages import allowed, draw
from queueapp.admin.records import record
from queueapp.admin.showing import pretty, short_id
from queueapp.inspection.jobs import JobView
from queueapp.models import OutboxEntry
from queueapp.permissions import OPERATE_JOB, VIEW_PAYLOAD
from queueapp.states import State
from queueapp.store.views import JobRecord

if TYPE_CHECKING:
    OutboxBase = admin.ModelAdmin[OutboxEntry]
else:
    OutboxBase = admin.ModelAdmin

SHOWN = 20


@admin.register(OutboxEntry)
class OutboxEntryAdmin(OutboxBase):
    """The oldest first, as the scheduler sends them."""

    list_display = ("short_id", "state", "tries", "due", "pool", "tenant", "task")
    list_filter = ("state",)
    search_fields = ("=job_id", "=tenant", "=pool", "task")
    search_help_text = _("A job's id, a tenant, a pool, or a part of a task's name.")
    fields: ClassVar[Any] = ("job_id", "pool", "tenant", "task", "state", "tries", "error", "due", "created", "updated")
    ordering = ("id",)
    show_full_result_count = False
    actions = ("try_again",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: OutboxEntry | None = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return allowed(request, OPERATE_JOB)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Django's own lets an address ask about every field: the arguments could be guessed letter by letter.
        return lookup.partition("__")[0] in self.fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[OutboxEntry]:
        # A list of payloads would be megabytes.
        return super().get_queryset(request).defer("payload", "job")

    def get_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        return (*self.fields, "contents") if allowed(request, VIEW_PAYLOAD) else self.fields

    def get_readonly_fields(self, request: HttpRequest, obj: OutboxEntry | None = None) -> Any:
        return self.get_fields(request, obj)

    @admin.display(description=_("job"), ordering="job_id")
    def short_id(self, entry: OutboxEntry) -> str:
        return short_id(entry.job_id)

    @admin.display(description=_("arguments"))
    def contents(self, entry: OutboxEntry) -> str:
        """Masked. Only asked for by those who may see contents."""
        job = JobRecord(
            id=entry.job_id,
            state=State.PENDING,
            task=entry.task,
            tenant=entry.tenant,
            lane="",
            payload=bytes(entry.payload),
        )
        found = JobView(id=entry.job_id, pool=entry.pool, record=job).arguments()
        args, kwargs = found if found is not None else ([], {})
        return format_html("<pre>{}</pre>", pretty({"args": args, "kwargs": kwargs}))

    @admin.action(description=_("Try the selected entries again now"), permissions=["operate"])
    def try_again(self, request: HttpRequest, entries: QuerySet[OutboxEntry]) -> HttpResponse | None:
        """Makes entries due, also those that were refused; the next scheduler sends them."""
        if "confirmed" not in request.POST:
            total = entries.count()
            # All of the list, over its pages, is said again in one word: their numbers might be too many for a form.
            across = request.POST.get("select_across", "0")
            numbers = entries.values_list("pk", flat=True)
            context = {
                "chosen": numbers[:1] if across == "1" else numbers,
                "across": across,
                "checkbox": ACTION_CHECKBOX_NAME,
                "total": total,
                "examples": entries.values_list("job_id", flat=True)[:SHOWN],
                "others": max(0, total - SHOWN),
                "back": request.get_full_path(),
            }
            return draw(self, request, "try_again.html", _("Try again now"), context)
        # `updated` as a save would set it, and in one statement.
        now = timezone.now()
        count = entries.update(state=OutboxEntry.State.WAITING, due=now, updated=now)
        about = ngettext("%(count)d outbox entry", "%(count)d outbox entries", count) % {"count": count}
        record(request, OutboxEntry, about, "try again now")
        messages.success(
            request, gettext("%(entries)s will be tried by the next scheduler within seconds.") % {"entries": about}
        )
        return None
