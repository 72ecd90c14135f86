"""The shapes of what is said of schedules."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.fields import Word
from queueapp.api.shapes import Page, Shape
from queueapp.firings import CATCH_UP, OVERLAP
from queueapp.metrics import FIRING_OUTCOMES


class ScheduleBrief(Shape):
    """A schedule in a list."""

    id = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the schedule."))
    name = serializers.CharField()
    task = serializers.CharField(help_text=_("Dotted name of the task that it enqueues."))
    tenant = serializers.CharField(
        allow_null=True, help_text=_("Whose its jobs are; null when its task, which would say so, is not known.")
    )
    enabled = serializers.BooleanField(help_text=_("Whether it fires."))
    cron = serializers.CharField(allow_null=True, help_text=_("Its five fields; null for an interval."))
    every_seconds = serializers.IntegerField(allow_null=True, help_text=_("Its interval; null for a cron."))
    zone = serializers.CharField(allow_null=True, help_text=_("The time zone of its cron."))
    next_at = serializers.DateTimeField(allow_null=True, help_text=_("When it fires next; null when it does not."))


class Schedules(Page):
    """A page of schedules."""

    results = ScheduleBrief(many=True)


class Schedule(ScheduleBrief):
    """When a schedule fires, and what became of the last firing."""

    pool = serializers.CharField(allow_null=True, help_text=_("Null for the task's own."))
    catch_up = Word("CatchUp", CATCH_UP, help_text=_("What becomes of firings that were missed."))
    overlap = Word("Overlap", OVERLAP, help_text=_("What becomes of one while the last job is not over."))
    start = serializers.DateTimeField(allow_null=True, help_text=_("No firing before it."))
    end = serializers.DateTimeField(allow_null=True, help_text=_("No firing after it."))
    last_at = serializers.DateTimeField(allow_null=True, help_text=_("The moment that the last firing was for."))
    fired_at = serializers.DateTimeField(allow_null=True, help_text=_("When the last firing was made."))
    last_job = serializers.CharField(allow_null=True, help_text=_("Id of the last job."))
    outcome = Word("FiringOutcome", FIRING_OUTCOMES, allow_null=True, help_text=_("What became of the last firing."))
    note = serializers.CharField(
        allow_null=True, help_text=_("More about it, for people with the permission view_payload; null for others.")
    )
    firings = serializers.ListField(
        child=serializers.DateTimeField(), help_text=_("The next five firings; none while it is off.")
    )
