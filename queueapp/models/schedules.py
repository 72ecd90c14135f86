"""Schedules: tasks that are enqueued again and again, by cron or at an interval, and where each one stands.

Where it stands is written by who fires (`queueapp.schedules`), row by row under a condition; `save` never writes those
fields, except that a change of *when* plans the next firing anew. Moments of that kind are milliseconds since the
epoch: naive datetimes (USE_TZ=False) would not tell the two hours of an autumn night apart.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings as django_settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from queueapp import firings, validators
from queueapp.firings import CATCH_UP, EPOCH, EVERY_MAX_S, JITTER_MAX_S, OVERLAP, Rule, read_moment, zone_of
from queueapp.models import shapes
from queueapp.models.base import OurManager, OurModel
from queueapp.moments import moment, now_ms
from queueapp.signals import schedule_cleaning

STANDING = frozenset({"plan", "anchor_ms", "next_ms", "last_ms", "fired_ms", "last_job", "outcome", "note"})
"""The fields that say where a schedule stands; `save` leaves those of an existing row alone."""
CATCH_UPS = [
    (firings.CatchUp.SKIP.value, _("skip: what was missed by more than a minute does not run")),
    (firings.CatchUp.ONE.value, _("one: however many were missed, one makes up for them")),
    (firings.CatchUp.ALL.value, _("all: each missed one is made up for, at most the newest 1,000")),
]
OVERLAPS = [
    (firings.Overlap.ALLOW.value, _("allow: it runs beside the last one")),
    (firings.Overlap.SKIP.value, _("skip: it does not run while the last one waits or runs")),
    (firings.Overlap.REPLACE.value, _("replace: the last one is cancelled; the new one runs when it has ended")),
]
OFF = "off"
"""`plan` of a schedule that is off."""


class Schedule(OurModel):
    """When which task is enqueued, with what."""

    CatchUp = firings.CatchUp
    Overlap = firings.Overlap

    class Source(models.TextChoices):
        ADMIN = "admin", _("made here")
        CODE = "code", _("declared in code")
        GONE = "gone", _("no longer declared in code")

    class Outcome(models.TextChoices):
        FIRED = "fired", _("fired")
        LATE = "late", _("fired late")
        SKIPPED = "skipped", _("skipped: the last one was not over")
        MISSED = "missed", _("missed")
        REFUSED = "refused", _("refused")

    name = models.CharField(
        _("name"),
        max_length=100,
        unique=True,
        help_text=_("For people, and part of the ids of its jobs."),
        error_messages={"unique": _("name is taken: a schedule of this name exists; edit that one.")},
    )
    task = models.CharField(_("task"), max_length=512, help_text=_("Dotted name, such as “shop.tasks.make_report”."))
    args = models.JSONField(_("arguments"), default=list, blank=True, help_text=_("A list, such as [1, “two”]."))
    kwargs = models.JSONField(_("named arguments"), default=dict, blank=True, help_text=_("An object, by name."))
    tenant = shapes.name_or_empty(_("tenant"), validators.tenant_key, _("Empty = the task's own, else TENANT_DEFAULT."))
    pool = shapes.name_or_empty(_("pool"), validators.pool_name, _("Empty = the task's own."))
    lane = shapes.name_or_empty(_("lane"), validators.lane_name, _("Empty = the task's own."))
    priority = models.SmallIntegerField(
        _("priority"), null=True, blank=True, help_text=_("−100 to 100, larger is sooner. Empty = the task's own.")
    )
    options = models.JSONField(
        _("further options"),
        default=dict,
        blank=True,
        help_text=_(
            "An object: cost, expires_after, deadline (seconds), max_attempts, max_crashes, backoff, metadata."
        ),
    )

    cron = models.CharField(
        _("cron"),
        max_length=100,
        blank=True,
        default="",
        validators=[validators.cron],
        help_text=_("Minute, hour, day, month, weekday: “30 2 * * *” is 02:30 every day. Or give an interval."),
    )
    every_seconds = models.PositiveIntegerField(
        _("interval"),
        null=True,
        blank=True,
        validators=[validators.every_seconds],
        help_text=_("Seconds between two firings, counted from the start, else from when this was made."),
    )
    zone = models.CharField(
        _("time zone"),
        max_length=64,
        blank=True,
        default="",
        validators=[validators.zone],
        help_text=_("In which cron is read, such as “Europe/Berlin”. Empty = TIME_ZONE of the project."),
    )
    start = models.DateTimeField(_("start"), null=True, blank=True, help_text=_("No firing before it."))
    end = models.DateTimeField(_("end"), null=True, blank=True, help_text=_("No firing after it."))
    jitter_seconds = models.PositiveIntegerField(
        _("jitter"),
        default=0,
        validators=[validators.jitter_seconds],
        help_text=_("Each firing runs up to so many seconds later, so that many schedules do not start at once."),
    )
    catch_up = models.CharField(
        _("catch up"),
        max_length=8,
        choices=CATCH_UPS,
        default=CatchUp.ONE.value,
        help_text=_("What becomes of firings for which no scheduler was there."),
    )
    overlap = models.CharField(
        _("overlap"),
        max_length=8,
        choices=OVERLAPS,
        default=Overlap.ALLOW.value,
        help_text=_("When its time comes and its last job is not over."),
    )
    enabled = models.BooleanField(_("enabled"), default=True, help_text=_("While off, nothing is missed."))

    source = models.CharField(_("source"), max_length=8, choices=Source, default=Source.ADMIN, editable=False)
    resume = models.BooleanField(
        default=False, editable=False, help_text=_("It was on when its declaration went, and is on when that returns.")
    )

    plan = models.CharField(max_length=22, blank=True, default="", editable=False)
    anchor_ms = models.BigIntegerField(default=0, editable=False)
    next_ms = models.BigIntegerField(null=True, editable=False)
    last_ms = models.BigIntegerField(null=True, editable=False, help_text=_("The moment that the last firing was for."))
    fired_ms = models.BigIntegerField(null=True, editable=False, help_text=_("When the last firing was made."))
    last_job = models.CharField(_("last job"), max_length=48, blank=True, default="", editable=False)
    outcome = models.CharField(_("last outcome"), max_length=8, choices=Outcome, blank=True, default="", editable=False)
    note = models.TextField(_("note"), blank=True, default="", editable=False)

    objects = OurManager["Schedule"]()

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ("name",)
        indexes = (models.Index(fields=("enabled", "next_ms"), name="queueapp_schedule_next"),)
        constraints = (
            models.CheckConstraint(
                condition=(~Q(cron="") & Q(every_seconds__isnull=True)) | (Q(cron="") & Q(every_seconds__isnull=False)),
                name="queueapp_schedule_when",
                violation_error_message=_("Give a cron or an interval: one of the two."),
            ),
            shapes.within(
                "every_seconds",
                1,
                EVERY_MAX_S,
                "queueapp_schedule_every",
                _("interval must be a number of seconds from 1 to 31622400."),
                empty=True,
            ),
            models.CheckConstraint(
                condition=Q(jitter_seconds__lte=JITTER_MAX_S),
                name="queueapp_schedule_jitter",
                violation_error_message=_("jitter must be a number of seconds up to 86400."),
            ),
            models.CheckConstraint(
                condition=Q(start__isnull=True) | Q(end__isnull=True) | Q(end__gte=models.F("start")),
                name="queueapp_schedule_span",
                violation_error_message=_("end must not be before start."),
            ),
            models.CheckConstraint(
                condition=Q(catch_up__in=CATCH_UP) & Q(overlap__in=OVERLAP),
                name="queueapp_schedule_words",
                violation_error_message=_("catch up and overlap must be among those that there are."),
            ),
        )

    def __str__(self) -> str:
        return self.name

    # -- when ----------------------------------------------------------------------------------------------------------

    @property
    def when(self) -> str:
        """The cron with its zone, or the interval, in a few letters."""
        return f"{self.cron} {self.zone_name}" if self.cron else f"every {self.every_seconds} s"

    @property
    def zone_name(self) -> str:
        return self.zone or str(django_settings.TIME_ZONE)

    @property
    def rule_zone(self) -> ZoneInfo:
        """In which its moments are shown. Raises what an unknown zone raises."""
        return zone_of(self.zone_name)

    def rule(self) -> Rule:
        """When this fires, on or off. Raises what an unknown zone raises."""
        return Rule(
            cron=self.cron,
            every_ms=(self.every_seconds or 0) * 1000,
            zone=self.rule_zone.key if self.cron else "UTC",
            anchor_ms=self.anchor_ms if self.every_seconds and self.start is None else 0,
            start_ms=_ms(self.start),
            end_ms=_ms(self.end),
        )

    def planned(self) -> str:
        """What `plan` holds while `next_ms` belongs to what the other fields say."""
        return self.rule().digest() if self.enabled else OFF

    def plan_anew(self, now: int) -> None:
        """The next firing is the first after `now`, and after the last one that was made; none while it is off."""
        self.plan = self.planned()
        self.next_ms = self.rule().after(max(now, self.last_ms or 0)) if self.enabled else None

    def upcoming(self, count: int = 5) -> list[datetime]:
        """The next firings, as they would be if it were on."""
        after = now_ms() if self.next_ms is None else self.next_ms - 1
        return [datetime.fromtimestamp(at_ms / 1000, UTC) for at_ms in islice(self.rule().firings(after), count)]

    @property
    def next_at(self) -> datetime | None:
        return moment(self.next_ms or 0)

    @property
    def last_at(self) -> datetime | None:
        """The moment that the last firing was for."""
        return moment(self.last_ms or 0)

    @property
    def fired_at(self) -> datetime | None:
        """When the last firing was made."""
        return moment(self.fired_ms or 0)

    # -- saving --------------------------------------------------------------------------------------------------------

    def save(self, *args: Any, **kwargs: Any) -> None:
        now = now_ms()
        stored = None
        if not self._state.adding:
            using = kwargs.get("using") or self._state.db
            stored = Schedule.objects.using(using).filter(pk=self.pk).values(*STANDING, "every_seconds").first()
        if stored is None:
            self.anchor_ms = self.anchor_ms or now
            if not self.plan:
                self.plan_anew(now)
            super().save(*args, **kwargs)
            return
        given = kwargs.pop("update_fields", None)
        names = {field.name for field in self._meta.concrete_fields if not field.primary_key} - STANDING
        names = names if given is None else {*given, "updated"}
        for name in STANDING - names:
            setattr(self, name, stored[name])
        if self.every_seconds != stored["every_seconds"]:
            self.anchor_ms = now
        if not names & STANDING and self.plan != self.planned():
            self.plan_anew(now)
            names |= {"plan", "anchor_ms", "next_ms"}
        super().save(*args, update_fields=names, **kwargs)

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        if self.cron and "cron" not in (exclude or ()):
            self.cron = " ".join(str(self.cron).split())
        super().clean_fields(exclude)

    def clean(self) -> None:
        super().clean()
        faults: dict[str, Any] = {}
        if bool(self.cron) == (self.every_seconds is not None):
            faults["cron"] = [_("cron and interval are %(both)s: give one of the two.") % {"both": self._both()}]
        if self.start is not None and self.end is not None and self.end < self.start:
            faults["end"] = [
                _("end “%(end)s” is before start “%(start)s”: give a later one.")
                % {"end": self.end, "start": self.start}
            ]
        for name, at in (("start", self.start), ("end", self.end)):
            try:
                read_moment(at or EPOCH)
            except ValueError as error:
                faults[name] = [
                    _("%(name)s is “%(at)s”: it must be %(words)s.") % {"name": name, "at": at, "words": error}
                ]
        if not isinstance(self.args, list):
            faults["args"] = [_("arguments must be a list, such as [1, “two”].")]
        for name in ("kwargs", "options"):
            if not isinstance(getattr(self, name), dict):
                faults[name] = [_("%(name)s must be an object, such as {“month”: 5}.") % {"name": name}]
        if not faults and self.enabled:  # one whose job would be refused can still be turned off
            schedule_cleaning.send(sender=Schedule, instance=self, faults=faults)
        if faults:
            raise ValidationError(faults)

    def _both(self) -> object:
        return _("both given") if self.cron else _("both empty")


def _ms(at: datetime | None) -> int | None:
    """A moment of a form: without USE_TZ it is naive and means the project's time zone."""
    if at is None:
        return None
    if timezone.is_naive(at):
        at = timezone.make_aware(at, timezone.get_default_timezone())
    return round(at.timestamp() * 1000)
