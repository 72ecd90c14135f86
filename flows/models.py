"""The rows of flows: definitions, runs, their steps and items, events, and commands that wait to be carried out.

`runtime` reads and writes them; what their columns mean stands in `snapshot`. They live in the database that
`DUCTOR["DATABASE"]` names. Moments are milliseconds since the epoch, as everywhere in flows.
"""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils.translation import gettext_lazy as _

from flows.permissions import CANCEL_RUN, RESUME_RUN, RETRY_STEP, SEND_EVENT
from queueapp.models import OurManager, OurModel
from queueapp.moments import moment


class FlowVersion(OurModel):
    """A definition as it was when a run first began with it. Runs finish on theirs."""

    flow = models.CharField(_("flow"), max_length=200)
    version = models.CharField(_("version"), max_length=12)
    definition = models.TextField(_("definition as JSON"))

    objects = OurManager["FlowVersion"]()

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("flow version")
        verbose_name_plural = _("flow versions")
        ordering = ("-id",)
        constraints = (models.UniqueConstraint(fields=("flow", "version"), name="ductor_flows_version"),)

    def __str__(self) -> str:
        return f"{self.flow} {self.version}"


class Run(OurModel):
    """One execution of a flow."""

    class State(models.TextChoices):
        RUNNING = "running", _("running")
        COMPENSATING = "compensating", _("compensating")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        COMPENSATED = "compensated", _("compensated")
        CANCELLED = "cancelled", _("cancelled")

    ENDED = frozenset({State.COMPLETED, State.FAILED, State.COMPENSATED, State.CANCELLED})

    id = models.CharField(_("run"), max_length=22, primary_key=True)
    flow = models.CharField(_("flow"), max_length=200)
    definition = models.CharField(_("version"), max_length=12, help_text=_("Of the flow; it finishes on this one."))
    tenant = models.CharField(_("tenant"), max_length=64)
    pool = models.CharField(_("pool"), max_length=64, help_text=_("Where its wake-ups go."))
    key = models.CharField(  # noqa: DJ001  (null: runs without one do not collide)
        _("key"), max_length=255, blank=True, null=True, help_text=_("Started twice with one key, a run exists once.")
    )
    input = models.JSONField(_("input"))
    output = models.JSONField(_("output"), null=True, blank=True)
    state = models.CharField(_("state"), max_length=16, choices=State, default=State.RUNNING)
    lock = models.BigIntegerField(_("lock"), default=0, help_text=_("Another one with each change."))
    started_ms = models.BigIntegerField()
    ended_ms = models.BigIntegerField(null=True, blank=True)
    cause = models.CharField(_("cause"), max_length=200, blank=True, help_text=_("The step whose failure decided it."))
    note = models.TextField(_("note"), blank=True)
    ends = models.PositiveIntegerField(default=0)
    round = models.PositiveIntegerField(_("round"), default=1, help_text=_("How often it was started or resumed."))
    watch_ms = models.BigIntegerField(default=0)
    watches = models.PositiveIntegerField(default=0)
    trace = models.JSONField(default=dict, blank=True, help_text=_("What continues the trace in which it was started."))
    parent_run = models.CharField(_("parent run"), max_length=22, blank=True, null=True)  # noqa: DJ001  (as `key`)
    parent_step = models.CharField(max_length=210, blank=True)
    parent_index = models.IntegerField(default=-1)
    parent_attempt = models.PositiveIntegerField(default=0)

    objects = OurManager["Run"]()

    class Meta:
        default_permissions = ("view",)
        permissions = (
            (CANCEL_RUN, _("Can cancel runs")),
            (RESUME_RUN, _("Can resume runs")),
            (RETRY_STEP, _("Can retry steps of runs")),
            (SEND_EVENT, _("Can send events to runs")),
        )
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ("-started_ms", "-id")
        indexes = (
            models.Index(fields=("state", "watch_ms"), name="ductor_flows_watch"),
            models.Index(fields=("state", "-started_ms", "-id"), name="ductor_flows_state"),
            models.Index(fields=("flow", "-started_ms"), name="ductor_flows_flow"),
            models.Index(fields=("tenant", "-started_ms"), name="ductor_flows_tenant"),
            models.Index(fields=("-started_ms", "-id"), name="ductor_flows_started"),
            models.Index(fields=("ended_ms",), name="ductor_flows_ended"),
            models.Index(fields=("key",), name="ductor_flows_by_key", condition=models.Q(key__isnull=False)),
        )
        constraints = (
            models.UniqueConstraint(
                fields=("parent_run", "parent_step", "parent_index", "parent_attempt"), name="ductor_flows_sub_run"
            ),
            models.UniqueConstraint(fields=("tenant", "flow", "key"), name="ductor_flows_key"),
        )

    def __str__(self) -> str:
        return f"{self.flow} {self.id}"

    @property
    def has_ended(self) -> bool:
        return self.state in self.ENDED

    @property
    def started(self) -> datetime:
        started = moment(self.started_ms)
        assert started is not None, "no run is as old as the epoch"
        return started

    @property
    def ended(self) -> datetime | None:
        return None if self.ended_ms is None else moment(self.ended_ms)


class StepRun(models.Model):
    """What has become of one step of a run, and beside it how its current try ended, as its worker reported."""

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        RUNNING = "running", _("running")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")
        SKIPPED = "skipped", _("skipped")
        CANCELLED = "cancelled", _("cancelled")

    run = models.ForeignKey(Run, models.CASCADE, related_name="steps", db_index=False)
    step = models.CharField(_("step"), max_length=210)
    state = models.CharField(_("state"), max_length=16, choices=State, default=State.WAITING)
    attempt = models.PositiveIntegerField(_("attempt"), default=0)
    losses = models.PositiveIntegerField(default=0)
    output = models.JSONField(_("output"), null=True)
    output_bytes = models.PositiveIntegerField(default=0)
    error = models.TextField(_("error"), blank=True)
    skipped = models.CharField(max_length=16, blank=True)
    started_ms = models.BigIntegerField(null=True)
    ended_ms = models.BigIntegerField(null=True)
    due_ms = models.BigIntegerField(null=True)
    requeues = models.PositiveIntegerField(default=0)
    withdrawn = models.BooleanField(default=False)
    place = models.PositiveIntegerField(null=True)
    listed = models.PositiveIntegerField(default=0)
    total = models.PositiveIntegerField(null=True)
    asked = models.IntegerField(default=-1)
    issued = models.PositiveIntegerField(default=0)
    completed = models.PositiveIntegerField(default=0)
    failed = models.PositiveIntegerField(default=0)
    recounted = models.PositiveIntegerField(default=0)
    marked = models.PositiveIntegerField(default=0, help_text=_("Items whose rows say that they are with the queue."))
    report_attempt = models.PositiveIntegerField(default=0)
    report_ending = models.CharField(max_length=16, blank=True)
    report_error = models.TextField(blank=True)
    report_ms = models.BigIntegerField(null=True, help_text=_("When it was written."))

    objects = OurManager["StepRun"]()

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("step of a run")
        verbose_name_plural = _("steps of runs")
        constraints = (models.UniqueConstraint(fields=("run", "step"), name="ductor_flows_step"),)

    def __str__(self) -> str:
        return f"{self.run_id}/{self.step}"


class ItemRun(models.Model):
    """One item of a map."""

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting")
        ISSUED = "issued", _("with the queue")
        ENDED = "ended", _("ended")
        COUNTED = "counted", _("ended, and counted")

    step_run = models.ForeignKey(StepRun, models.CASCADE, related_name="items", db_index=False)
    index = models.PositiveIntegerField()
    attempt = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=8, choices=State, default=State.WAITING)
    ending = models.CharField(max_length=16, blank=True)
    output = models.JSONField(null=True)
    error = models.TextField(blank=True)

    objects = OurManager["ItemRun"]()

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("item of a map")
        verbose_name_plural = _("items of maps")
        constraints = (models.UniqueConstraint(fields=("step_run", "index"), name="ductor_flows_item"),)
        # What a tick asks for by state it finds here, however many items there are (tests/flows/test_large_maps.py).
        indexes = (models.Index(fields=("step_run", "state", "index"), name="ductor_flows_items"),)

    def __str__(self) -> str:
        return f"{self.step_run_id}/{self.index}"


class Event(models.Model):
    """Something that was sent to a run."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="events", db_index=False)
    event_id = models.CharField(max_length=200)
    name = models.CharField(_("name"), max_length=200)
    payload = models.JSONField(_("payload"), null=True)
    taken_by = models.CharField(_("taken by"), max_length=210, blank=True)
    sent_ms = models.BigIntegerField()

    objects = OurManager["Event"]()

    class Meta:
        default_permissions = ("view",)
        verbose_name = _("event")
        verbose_name_plural = _("events")
        ordering = ("id",)
        constraints = (models.UniqueConstraint(fields=("run", "event_id"), name="ductor_flows_event_id"),)

    def __str__(self) -> str:
        return f"{self.name} for {self.run_id}"


class FlowCommand(models.Model):
    """Something that a tick decided to have done, in the order of `id`; it leaves when it was done."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="commands", db_index=False)
    command = models.JSONField()
    made_ms = models.BigIntegerField()

    objects = OurManager["FlowCommand"]()

    class Meta:
        default_permissions = ()
        ordering = ("id",)
        indexes = (
            models.Index(fields=("run", "id"), name="ductor_flows_command"),
            models.Index(fields=("made_ms",), name="ductor_flows_unrelayed"),
        )

    def __str__(self) -> str:
        return f"{self.command} of {self.run_id}"
