"""Schedules in the admin: when they fire next, and firing, turning on and off by hand.

What is declared in code is read only here, but for whether it is on. Arguments show to those who may see contents:
masked where they are only looked at, as they are where they are edited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path, reverse
from django.utils.functional import Promise
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from queueapp import validators
from queueapp.admin.pages import allowed, draw, guarded
from queueapp.admin.records import record, username
from queueapp.admin.showing import pretty, short_id
from queueapp.errors import DuctorError
from queueapp.inspection.masking import masked_arguments
from queueapp.models import Schedule
from queueapp.moments import now_ms
from queueapp.permissions import OPERATE_JOB, VIEW_PAYLOAD
from queueapp.schedules import acts
from queueapp.schedules.words import unreadable

if TYPE_CHECKING:
    ScheduleBase = admin.ModelAdmin[Schedule]
    FormBase = forms.ModelForm[Schedule]
else:
    ScheduleBase, FormBase = admin.ModelAdmin, forms.ModelForm

SHOWN = 20
FIRED_MOST = 20
"""So many are fired by one action at most."""
FIRINGS = 5
ARGUMENTS = ("args", "kwargs")
JOB = ("name", "task", *ARGUMENTS, "tenant", "pool", "lane", "priority", "options")
WHEN = ("cron", "every_seconds", "zone", "start", "end", "jitter_seconds")
RULES = ("catch_up", "overlap")
STANDING = ("next_shown", "last_shown", "outcome", "note", "job_shown", "source", "created", "updated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What an action does, for the page that asks first."""

    name: str
    button: Promise
    meaning: Promise


FIRE = Confirmation(
    name="fire_now",
    button=_("Fire now"),
    meaning=_("Each makes one more job at once, also where it is off. When it fires next stays as it is."),
)
TURN_ON = Confirmation(
    name="turn_on", button=_("Turn on"), meaning=_("They fire when their time comes next; nothing is made up for.")
)
TURN_OFF = Confirmation(
    name="turn_off", button=_("Turn off"), meaning=_("They fire no more until somebody turns them on.")
)


class ScheduleForm(FormBase):
    """A fault of a field that is not on the page (arguments, for who may not see them) is told above the others."""

    def add_error(self, field: str | None, error: Any) -> None:
        if field is None and hasattr(error, "error_dict"):
            for name, faults in error.error_dict.items():
                super().add_error(name if name in self.fields else None, faults)
        else:
            super().add_error(field, error)


@admin.register(Schedule)
class ScheduleAdmin(ScheduleBase):
    """Changes are in force within a second or two."""

    form = ScheduleForm

    list_display = ("name", "when_shown", "task", "enabled", "next_in_list", "last_shown", "outcome")
    list_filter = ("enabled", "outcome", "source")
    search_fields = ("name", "task", "=tenant")
    search_help_text = _("A part of a name or of a task's, or a tenant.")
    ordering = ("name",)
    actions = ("fire_now", "turn_on", "turn_off")
    readonly_fields = STANDING
    fieldsets: ClassVar[Any] = (
        (None, {"fields": ("name", "enabled", "task", *ARGUMENTS)}),
        (_("When"), {"fields": (*WHEN, "next_shown")}),
        (_("What if"), {"fields": RULES}),
        (_("The job"), {"fields": ("tenant", "pool", "lane", "priority", "options")}),
        (_("Record"), {"fields": ("last_shown", "outcome", "note", "job_shown", "source", "created", "updated")}),
    )

    class Media:
        js = ("queueapp/schedules.js",)

    # -- who may what ----------------------------------------------------------------------------------------------

    def has_delete_permission(self, request: HttpRequest, obj: Schedule | None = None) -> bool:
        # It would come back with the next start of a scheduler.
        return super().has_delete_permission(request, obj) and (obj is None or obj.source != Schedule.Source.CODE)

    def has_fire_permission(self, request: HttpRequest) -> bool:
        return allowed(request, OPERATE_JOB)

    def get_readonly_fields(self, request: HttpRequest, obj: Schedule | None = None) -> tuple[str, ...]:
        found: tuple[str, ...] = (*STANDING, "contents")
        if obj is not None and obj.source != Schedule.Source.ADMIN:
            found += (*JOB, *WHEN, *RULES)
        if obj is not None and obj.source == Schedule.Source.GONE:
            found += ("enabled",)
        return found

    def get_fieldsets(self, request: HttpRequest, obj: Schedule | None = None) -> Any:
        """Arguments are fields for who edits them, one masked text for who looks, and nothing for all others."""
        if obj is None:
            shown: tuple[str, ...] = ARGUMENTS
        elif not allowed(request, VIEW_PAYLOAD):
            shown = ()
        else:
            edits = obj.source == Schedule.Source.ADMIN and self.has_change_permission(request, obj)
            shown = ARGUMENTS if edits else ("contents",)
        hidden = {"options"} if obj is not None and not shown else set()
        first, *others = self.fieldsets
        found = [(first[0], {"fields": ("name", "enabled", "task", *shown)})]
        found += [
            (title, {**options, "fields": tuple(name for name in options["fields"] if name not in hidden)})
            for title, options in others
        ]
        return found if obj is not None else found[:-1]

    def get_deleted_objects(
        self, objs: QuerySet[Schedule] | Iterable[Schedule], request: HttpRequest
    ) -> tuple[list[Any], dict[Any, Any], set[Any], list[Any]]:
        rows = list(objs)
        found, counts, lacking, protected = super().get_deleted_objects(rows, request)
        for row in rows:
            if row.source == Schedule.Source.CODE:
                protected.append(
                    gettext("The schedule “%(name)s”, which is declared in code: remove it there.") % {"name": row.name}
                )
        return found, counts, lacking, protected

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        # Django's own lets an address ask about every field: arguments could be guessed letter by letter.
        return lookup.partition("__")[0] in {"name", "task", "tenant", "enabled", "outcome", "source"}

    # -- how it looks ----------------------------------------------------------------------------------------------

    @admin.display(description=_("when"), ordering="cron")
    def when_shown(self, schedule: Schedule) -> str:
        return schedule.when

    @admin.display(description=_("next"), ordering="next_ms")
    def next_in_list(self, schedule: Schedule) -> Any:
        if schedule.next_at is not None:
            return schedule.next_at
        if schedule.source == Schedule.Source.GONE:
            return _("no longer in code")
        return _("over") if schedule.enabled else _("off")

    @admin.display(description=_("next firings"))
    def next_shown(self, schedule: Schedule) -> Any:
        """Filled anew by the page's script while somebody types; without it, as of the last save."""
        found: list[str] = []
        fault = ""
        if schedule.pk is not None:
            try:
                found = shown_firings(schedule)
            except (ValueError, OSError, LookupError, OverflowError) as error:  # as SQL wrote it
                fault = unreadable(schedule, error)
        items = format_html_join("", "<li>{}</li>", ((each,) for each in found))
        return format_html(
            '<div data-ductor-firings="{}"><ul>{}</ul><p class="help">{}</p></div>',
            reverse("admin:queueapp_schedule_preview", current_app=self.admin_site.name),
            items,
            fault or ("" if found else gettext("Shown once there is something to show.")),
        )

    @admin.display(description=_("last firing"), ordering="fired_ms", empty_value="–")
    def last_shown(self, schedule: Schedule) -> datetime | None:
        return schedule.fired_at

    @admin.display(description=_("last job"), empty_value="–")
    def job_shown(self, schedule: Schedule) -> Any:
        if not schedule.last_job:
            return None
        url = reverse("admin:queueapp_jobs_change", args=[schedule.last_job], current_app=self.admin_site.name)
        return format_html('<a href="{}">{}</a>', url, short_id(schedule.last_job))

    @admin.display(description=_("arguments"))
    def contents(self, schedule: Schedule) -> str:
        """Masked. Only asked for by those who may see contents."""
        args, kwargs = masked_arguments(schedule.task, schedule.args, schedule.kwargs)
        return format_html("<pre>{}</pre>", pretty({"args": args, "kwargs": kwargs}))

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if obj.enabled:
            told = "; ".join(shown_firings(obj)) or gettext("none any more")
            messages.info(request, gettext("Next firings: %(firings)s.") % {"firings": told})

    # -- actions ---------------------------------------------------------------------------------------------------

    @admin.action(description=_("Fire now"), permissions=["fire"])
    def fire_now(self, request: HttpRequest, chosen: QuerySet[Schedule]) -> HttpResponse | None:
        def act(rows: list[Schedule]) -> None:
            for row in rows[:FIRED_MOST]:
                try:
                    result = acts.fire(row, by=username(request))
                except DuctorError as error:
                    messages.error(request, f"{row.name}: {error}")
                    continue
                record(request, Schedule, row.name, f"fired by hand: job {result.id}", object_id=str(row.pk))
                messages.success(
                    request, gettext("“%(name)s” was fired: job %(job)s.") % {"name": row.name, "job": result.id}
                )
            if len(rows) > FIRED_MOST:
                messages.warning(
                    request,
                    gettext("One request fires %(most)d at most; the others are unchanged.") % {"most": FIRED_MOST},
                )

        return self._confirmed(request, chosen, FIRE, act)

    @admin.action(description=_("Turn on"), permissions=["change"])
    def turn_on(self, request: HttpRequest, chosen: QuerySet[Schedule]) -> HttpResponse | None:
        return self._switch(request, chosen, TURN_ON, on=True)

    @admin.action(description=_("Turn off"), permissions=["change"])
    def turn_off(self, request: HttpRequest, chosen: QuerySet[Schedule]) -> HttpResponse | None:
        return self._switch(request, chosen, TURN_OFF, on=False)

    def _switch(
        self, request: HttpRequest, chosen: QuerySet[Schedule], what: Confirmation, *, on: bool
    ) -> HttpResponse | None:
        def act(rows: list[Schedule]) -> None:
            turned: list[Schedule] = []
            for row in rows:
                try:
                    turned += acts.switch([row], on=on, by=username(request))
                except DuctorError as error:
                    messages.error(request, f"{error}")
            for row in turned:
                record(request, Schedule, row.name, "turned on" if on else "turned off", object_id=str(row.pk))
            about = ngettext("%(count)d schedule", "%(count)d schedules", len(turned)) % {"count": len(turned)}
            words = gettext("%(schedules)s turned on.") if on else gettext("%(schedules)s turned off.")
            messages.success(request, words % {"schedules": about})
            if on and any(row.source == Schedule.Source.GONE for row in rows):
                messages.warning(request, gettext("What is no longer declared in code stays off."))

        return self._confirmed(request, chosen, what, act)

    def _confirmed(
        self,
        request: HttpRequest,
        chosen: QuerySet[Schedule],
        what: Confirmation,
        act: Callable[[list[Schedule]], None],
    ) -> HttpResponse | None:
        if "confirmed" in request.POST:
            act(list(chosen.order_by("name")))
            return None
        total = chosen.count()
        # All of the list, over its pages, is said again in one word: their numbers might be too many for a form.
        across = request.POST.get("select_across", "0")
        numbers = chosen.values_list("pk", flat=True)
        context = {
            "act": what,
            "chosen": numbers[:1] if across == "1" else numbers,
            "across": across,
            "checkbox": ACTION_CHECKBOX_NAME,
            "total": total,
            "examples": chosen.order_by("name").values_list("name", flat=True)[:SHOWN],
            "others": max(0, total - SHOWN),
            "back": request.get_full_path(),
        }
        return draw(self, request, "act_on_schedules.html", what.button, context)

    # -- while somebody types --------------------------------------------------------------------------------------

    def get_urls(self) -> list[Any]:
        preview: URLPattern = path("preview/", guarded(self, self.preview, needs=()), name="queueapp_schedule_preview")
        return [preview, *super().get_urls()]

    def preview(self, request: HttpRequest) -> HttpResponse:
        """The next firings of what the address says, or why there are none."""
        if not (self.has_view_permission(request) or self.has_add_permission(request)):
            raise PermissionDenied
        given = request.GET
        every = given.get("every_seconds", "").strip()
        schedule = Schedule(
            cron=given.get("cron", "").strip()[:100],
            every_seconds=int(every) if every.isascii() and every.isdigit() and len(every) < 10 else None,
            zone=given.get("zone", "").strip()[:64],
        )
        try:
            if schedule.cron:
                validators.cron(schedule.cron)
            elif schedule.every_seconds is not None:
                validators.every_seconds(schedule.every_seconds)
            else:
                return JsonResponse({"firings": [], "fault": ""})
            if schedule.zone:
                validators.zone(schedule.zone)
            schedule.anchor_ms = now_ms()
            return JsonResponse({"firings": shown_firings(schedule), "fault": ""})
        except ValidationError as error:
            return JsonResponse({"firings": [], "fault": " ".join(error.messages)})


def shown_firings(schedule: Schedule) -> list[str]:
    """The next firings on the clock of the schedule's zone. Raises what an unknown zone or a wrong cron raises."""
    zone = schedule.rule_zone
    return [at.astimezone(zone).strftime("%a %Y-%m-%d %H:%M:%S %Z") for at in schedule.upcoming(FIRINGS)]
