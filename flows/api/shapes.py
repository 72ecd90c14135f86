"""The shapes of what is said of runs, for the OpenAPI document; `answers` fills them, and a test compares the two."""

from __future__ import annotations

from typing import get_args

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from flows import snapshot
from flows.definition import Kind
from flows.models import Run as Row
from flows.models import StepRun
from queueapp.api.fields import Word
from queueapp.api.shapes import Fault, Page, Shape

MASKED = _("Masked; null unless the user may see contents.")


class RunConflict(Fault):
    """The state of the run, or what the Idempotency-Key stands for, does not allow it; nothing was changed."""

    state = Word("RunState", Row.State.values, required=False, help_text=_("Where the run stands now."))


class NamedRun(Shape):
    """A run."""

    id = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at the run."))
    state = Word("RunState", Row.State.values, help_text=_("Where the run stands now."))


class RunAccepted(NamedRun):
    """A run that is there: by this request, or by an earlier one with the same key."""


class RunActed(NamedRun):
    """What an action did."""

    changed = serializers.BooleanField(help_text=_("False when it stood so already, as for a repeated request."))


class RunBrief(NamedRun):
    """A run in a list."""

    flow = serializers.CharField()
    version = serializers.CharField(help_text=_("Of the flow: the one that it began with, and finishes on."))
    tenant = serializers.CharField()
    key = serializers.CharField(allow_null=True, help_text=_("The Idempotency-Key that it was started with."))
    cause = serializers.CharField(allow_null=True, help_text=_("The step whose failure decided it."))
    round = serializers.IntegerField(help_text=_("How often it was started or resumed."))
    started = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)
    took_s = serializers.FloatField(allow_null=True, help_text=_("Seconds; null until it has ended."))


class Runs(Page):
    """A page of runs, the newest first."""

    results = RunBrief(many=True, help_text=_("May be shorter than page_size, even empty, while next is not null."))


class MapItems(Shape):
    """How many items a map has."""

    total = serializers.IntegerField(allow_null=True, help_text=_("Null until the list is known."))
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()


class RunStep(Shape):
    """One step of a run, or what undoes one."""

    step = serializers.CharField(help_text=_("Its name."))
    kind = Word("StepKind", get_args(Kind), allow_null=True, help_text=_("Null when its flow is not stored any more."))
    state = Word("StepState", StepRun.State.values, help_text=_("Where it stands now."))
    attempt = serializers.IntegerField(
        help_text=_("Grows with each hand-over to the queue; the queue's own attempts are within one.")
    )
    skipped = Word(
        "StepSkipped", [why for why in get_args(snapshot.Skipped) if why], allow_null=True, help_text=_("Why.")
    )
    started = serializers.DateTimeField(allow_null=True)
    ended = serializers.DateTimeField(allow_null=True)
    took_s = serializers.FloatField(allow_null=True, help_text=_("Seconds; null until it has ended."))
    due = serializers.DateTimeField(
        allow_null=True, help_text=_("When a sleep is over, or an event is not waited for any longer.")
    )
    items = MapItems(allow_null=True, help_text=_("Of a map; null for other steps."))
    error = serializers.CharField(allow_null=True, help_text=_("Class of the error."))
    message = serializers.CharField(
        allow_null=True, help_text=_("The error with its traceback; null unless the user may see contents.")
    )


class RunSteps(Shape):
    """The steps of a run."""

    results = RunStep(many=True, help_text=_("In an order in which they can run; those that undo at the end."))


class StepOf(Shape):
    """The step that a run of a sub-flow is."""

    run = serializers.CharField()
    url = serializers.URLField(help_text=_("Where to look at that run."))
    step = serializers.CharField()


class Run(RunBrief):
    """All that is told of one run."""

    note = serializers.CharField(
        allow_null=True,
        help_text=_("Why it was cancelled, or cannot go on; null unless the user may see contents."),
    )
    step_of = StepOf(allow_null=True, help_text=_("Of a sub-flow: whose step it is, where that run is told as well."))
    input = serializers.DictField(allow_null=True, help_text=MASKED)
    output = serializers.JSONField(
        allow_null=True,
        help_text=_("What the flow returned, masked. Null until the run has completed, and while the flow is unknown."),
    )
    steps = RunStep(many=True, help_text=_("In an order in which they can run; those that undo at the end."))


class RunEvent(Shape):
    """An event that was sent to a run."""

    id = serializers.CharField()
    name = serializers.CharField()
    sent = serializers.DateTimeField()
    taken_by = serializers.CharField(allow_null=True, help_text=_("The step that took it."))
    payload = serializers.JSONField(allow_null=True, help_text=MASKED)


class RunEvents(Page):
    """A page of events, the oldest first."""

    results = RunEvent(many=True)


class EventSent(Shape):
    """An event that is there: by this request, or by an earlier one with the same id."""

    id = serializers.CharField()
    changed = serializers.BooleanField(help_text=_("False when an event of this id was sent before."))
