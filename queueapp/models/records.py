"""What Ductor itself writes down: jobs that wait for the store, acts on dead letters, whose namespace it is."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from queueapp.models.base import OurManager, OurModel


class OutboxEntry(OurModel):
    """A job whose transaction has committed but which the store has not taken yet; a scheduler sends it (`relay`).

    A row leaves when the store has the job. One that the store refused for good stays, with the reason, for people.
    """

    class State(models.TextChoices):
        WAITING = "waiting", _("waiting for the store")
        REFUSED = "refused", _("refused")

    job_id = models.CharField(_("job"), max_length=48, unique=True, help_text=_("The public id of the job."))
    pool = models.CharField(_("pool"), max_length=64)
    tenant = models.CharField(_("tenant"), max_length=64)
    task = models.CharField(_("task"), max_length=512)
    job = models.JSONField(_("job as JSON"), help_text=_("Everything about the job but its arguments."))
    payload = models.BinaryField(_("arguments"))
    state = models.CharField(_("state"), max_length=16, choices=State, default=State.WAITING)
    tries = models.PositiveIntegerField(_("tries"), default=0)
    error = models.TextField(_("last error"), blank=True)
    due = models.DateTimeField(_("next try"), help_text=_("When a scheduler sends it next."))
    claim = models.CharField(
        max_length=22, blank=True, editable=False, help_text=_("Of the pass that sends it; void once it is due again.")
    )

    objects = OurManager["OutboxEntry"]()

    class Meta:
        verbose_name = _("outbox entry")
        verbose_name_plural = _("outbox entries")
        ordering = ("id",)
        indexes = (models.Index(fields=("state", "due"), name="queueapp_outbox_due"),)

    def __str__(self) -> str:
        return self.job_id


class DeadLetterInspection(OurModel):
    """Who did what to which dead letter, when and why. Ids and reasons only, never arguments."""

    class Action(models.TextChoices):
        RETRIED = "retried", _("retried")
        DISCARDED = "discarded", _("discarded")
        EXPORTED = "exported", _("exported")
        NOTED = "noted", _("noted")
        EDITED = "edited", _("edited")

    job_id = models.CharField(_("job"), max_length=48, db_index=True)
    pool = models.CharField(_("pool"), max_length=64)
    tenant = models.CharField(_("tenant"), max_length=64)
    task = models.CharField(_("task"), max_length=512)
    reason = models.CharField(_("died of"), max_length=64, blank=True)
    error = models.CharField(_("error"), max_length=255, blank=True, help_text=_("Class of the last exception."))
    action = models.CharField(_("action"), max_length=16, choices=Action)
    outcome = models.CharField(_("outcome"), max_length=16, blank=True, help_text=_("What the store answered."))
    note = models.TextField(_("note"), blank=True)
    # No foreign key: our tables may stand in another database than the users.
    by = models.CharField(_("by"), max_length=200, blank=True)

    objects = OurManager["DeadLetterInspection"]()

    class Meta:
        verbose_name = _("dead letter inspection")
        verbose_name_plural = _("dead letter inspections")
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.job_id}: {self.action}"


class Installation(models.Model):
    """One random id, made by the first start: it tells apart two databases that share a namespace of one store."""

    key = models.CharField(max_length=22, unique=True)
    created = models.DateTimeField(auto_now_add=True)

    objects = OurManager["Installation"]()

    class Meta:
        default_permissions = ()
        verbose_name = _("installation")
        verbose_name_plural = _("installations")

    def __str__(self) -> str:
        return self.key
