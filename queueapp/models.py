"""What people configure, as rows: pools, tenants and the limits of a tenant in a pool.

Intent lives here, in SQL; state lives in the store. Saving a row never waits for the store and never fails because of
it: `sync` carries the change over after commit, and the scheduler's repair finds whatever did not arrive. No row is
needed to enqueue or to work: what has none runs with the defaults that stand here.

All tables live in the database that `DUCTOR["DATABASE"]` names.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queueapp import validators
from queueapp.conf import settings
from queueapp.signals import pool_deleting
from queueapp.store.keys import pool_code

M = TypeVar("M", bound=models.Model)


class OurManager(models.Manager[M]):
    """Reads and writes in the database of `DUCTOR["DATABASE"]`, unless `using` says otherwise."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().using(self._db or settings.database)


class OurModel(models.Model):
    """Binds a new instance to the database of `DUCTOR["DATABASE"]`, so that validation and save go there."""

    created = models.DateTimeField(_("created"), auto_now_add=True)
    updated = models.DateTimeField(_("updated"), auto_now=True)

    class Meta:
        abstract = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._state.db = settings.database


class PoolRows(models.QuerySet["Pool"]):
    """Whoever deletes many pools asks for each first, before any is gone."""

    def delete(self) -> tuple[int, dict[str, int]]:
        for pool in self:
            pool_deleting.send(sender=Pool, instance=pool, using=self.db)
        return super().delete()

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]


class PoolManager(OurManager["Pool"]):
    """See `OurManager`."""

    def get_queryset(self) -> PoolRows:
        return PoolRows(self.model, using=self._db or settings.database)


class Pool(OurModel):
    """A named queue with one policy and one configuration."""

    class Policy(models.TextChoices):
        TIERED = "tiered", _("tiered: fair turns by weight")
        FIFO = "fifo", _("fifo: order of submission")

    name = models.CharField(
        _("name"),
        max_length=64,
        unique=True,
        validators=[validators.pool_name],
        help_text=_("The queue_name of tasks, for example “emails”."),
        error_messages={"unique": _("name is taken: a pool of this name exists; edit that one.")},
    )
    code = models.CharField(
        _("code"),
        max_length=6,
        unique=True,
        editable=False,
        help_text=_("Six characters that stand for the pool in job ids and in the store's keys. Never changes."),
    )
    policy = models.CharField(
        _("policy"),
        max_length=16,
        choices=Policy,
        default=Policy.TIERED,
        help_text=_("Which job runs next. A change takes effect once nothing waits in the pool."),
    )
    paused = models.BooleanField(_("paused"), default=False, help_text=_("Jobs are accepted but none starts."))
    max_in_flight = models.PositiveIntegerField(
        _("ceiling"),
        null=True,
        blank=True,
        help_text=_("Most jobs that run at once in the whole pool. Empty = no limit, 0 = closed."),
    )
    default_weight = models.FloatField(
        _("default weight"),
        default=1.0,
        validators=[validators.weight],
        help_text=_("Of tenants without limits of their own. From 0.001 to 1000."),
    )
    cost_unit = models.CharField(
        _("cost unit"),
        max_length=32,
        default="ms",
        validators=[validators.cost_unit],
        help_text=_("“ms”: what a task costs is learnt from its run times. Any other word: costs are declared only."),
    )
    default_cost = models.FloatField(
        _("default cost"),
        default=50.0,
        validators=[validators.cost],
        help_text=_("Taken for a task that has not run yet, in cost units."),
    )

    objects = PoolManager()

    class Meta:
        verbose_name = _("pool")
        verbose_name_plural = _("pools")
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=Q(default_cost__gte=validators.COST_MIN, default_cost__lte=validators.COST_MAX),
                name="queueapp_pool_default_cost",
                violation_error_message=_("default cost must be a number from 1 to 1000000000."),
            ),
            models.CheckConstraint(
                condition=Q(default_weight__gte=validators.WEIGHT_MIN, default_weight__lte=validators.WEIGHT_MAX),
                name="queueapp_pool_default_weight",
                violation_error_message=_("default weight must be a number from 0.001 to 1000."),
            ),
        )

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self.code:
            self.code = pool_code(self.name)
        super().save(*args, **kwargs)

    def delete(self, using: str | None = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        # Not the signal pre_delete: what is raised there leaves the caller's transaction unusable.
        pool_deleting.send(sender=Pool, instance=self, using=using or self._state.db)
        return super().delete(using=using, keep_parents=keep_parents)

    def clean(self) -> None:
        super().clean()
        if self._state.adding and self.name:
            self.code = pool_code(self.name)
            other = Pool.objects.filter(code=self.code).exclude(name=self.name).first()
            if other is not None:
                raise ValidationError(
                    {
                        "name": _("name “%(value)s” has the same code as the pool “%(other)s”: choose another name.")
                        % {"value": self.name, "other": other.name}
                    }
                )


class Tenant(OurModel):
    """Who work is for. A row is needed only to give a tenant a name or limits."""

    key = models.CharField(
        _("key"),
        max_length=64,
        unique=True,
        validators=[validators.tenant_key],
        help_text=_("The tenant's id as tasks name it. Cannot be changed later."),
        error_messages={"unique": _("key is taken: a tenant with this key exists; edit that one.")},
    )
    name = models.CharField(_("name"), max_length=200, blank=True, help_text=_("For people; may be empty."))
    notes = models.TextField(_("notes"), blank=True)

    objects = OurManager["Tenant"]()

    class Meta:
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        ordering = ("key",)

    def __str__(self) -> str:
        return f"{self.key} ({self.name})" if self.name else self.key

    def clean(self) -> None:
        super().clean()
        if self._state.adding or self.pk is None:
            return
        stored = Tenant.objects.filter(pk=self.pk).values_list("key", flat=True).first()
        if stored is not None and stored != self.key:
            raise ValidationError(
                {
                    "key": _("key “%(value)s” is not allowed: a tenant's key stays “%(stored)s”; add another tenant.")
                    % {"value": self.key, "stored": stored}
                }
            )


class TenantLimits(OurModel):
    """What a tenant, or one lane of it, may do in one pool."""

    pool = models.ForeignKey(Pool, models.CASCADE, related_name="limits", verbose_name=_("pool"))
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="limits", verbose_name=_("tenant"))
    lane = models.CharField(
        _("lane"),
        max_length=64,
        blank=True,
        default="",
        validators=[validators.lane_name],
        help_text=_("Empty = the tenant itself."),
    )
    weight = models.FloatField(
        _("weight"),
        default=1.0,
        validators=[validators.weight],
        help_text=_("Share of service next to others: 2 gets twice what 1 gets. From 0.001 to 1000."),
    )
    max_in_flight = models.PositiveIntegerField(
        _("ceiling"),
        null=True,
        blank=True,
        help_text=_("Most jobs that run at once. Empty = no limit, 0 = closed."),
    )
    paused = models.BooleanField(_("paused"), default=False, help_text=_("Jobs are accepted but none starts."))

    objects = OurManager["TenantLimits"]()

    class Meta:
        verbose_name = _("limits")
        verbose_name_plural = _("limits")
        ordering = ("tenant__key", "pool__name", "lane")
        constraints = (
            models.UniqueConstraint(
                fields=("pool", "tenant", "lane"),
                name="queueapp_limits_scope",
                violation_error_message=_("This tenant has limits for this pool and lane already: edit those."),
            ),
            models.CheckConstraint(
                condition=Q(weight__gte=validators.WEIGHT_MIN, weight__lte=validators.WEIGHT_MAX),
                name="queueapp_limits_weight",
                violation_error_message=_("weight must be a number from 0.001 to 1000."),
            ),
        )

    def __str__(self) -> str:
        scope = f"{self.tenant.key} / {self.lane}" if self.lane else self.tenant.key
        return f"{scope} @ {self.pool.name}"


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


class NoRows(models.Manager[M]):
    """Of models without a table: whoever reads all models, such as `dumpdata`, finds nothing and no error."""

    def get_queryset(self) -> models.QuerySet[M]:
        return super().get_queryset().none()


class Operations(models.Model):
    """No table: the permissions to look at what runs and to act on it, and the admin's page of the pools."""

    objects = NoRows["Operations"]()

    class Meta:
        base_manager_name = "objects"
        managed = False
        default_permissions = ()
        verbose_name = _("operations")
        verbose_name_plural = _("operations")
        permissions = (
            ("view_operations", _("Can see what runs: pools, tenants, jobs without their contents")),
            ("view_payload", _("Can see arguments, results and tracebacks")),
            ("operate_pool", _("Can pause, resume and drain pools, tenants and lanes")),
            ("operate_job", _("Can cancel, retry and move jobs")),
            ("discard_job", _("Can discard dead letters")),
            ("view_all_tenants", _("Can use the REST API for every tenant")),
        )

    def __str__(self) -> str:
        return str(self._meta.verbose_name)


class Jobs(Operations):
    """The admin's pages of jobs, which are read from the store."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("job")
        verbose_name_plural = _("jobs")


class DeadLetters(Operations):
    """The admin's pages of dead letters, which are read from the store."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
