"""Pools: a policy with its parameters, and what holds where nothing else is configured."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queueapp import validators
from queueapp.conf import settings
from queueapp.models.base import OurManager, OurModel
from queueapp.signals import pool_deleting
from queueapp.store.keys import pool_code
from queueapp.store.records import described


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
        TIERED = "tiered", _("tiered: turns between tenants by weight and cost, in each between its lanes")
        WFQ = "wfq", _("wfq: shares between tenants by weight and cost, fixed when a job is accepted")
        RING = "ring", _("ring: one job of each tenant in turn, whatever weight or cost")
        FIFO = "fifo", _("fifo: the order of submission")
        PRIORITY = "priority", _("priority: the larger priority first; the smaller may wait for ever")
        AGING = "aging", _("aging: the larger priority first, and waiting counts as priority")
        EDF = "edf", _("edf: the earliest deadline first; jobs without one come last")

    class EdfBy(models.TextChoices):
        DEADLINE = "deadline", _("deadline: whose deadline is earliest")
        LATEST_START = "latest_start", _("latest start: whose deadline minus cost is earliest")

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
        help_text=_("Which job runs next. A change is saved at once and takes effect when nothing waits in the pool."),
    )
    edf_by = models.CharField(
        _("edf: by"),
        max_length=16,
        choices=EdfBy,
        default=EdfBy.DEADLINE,
        help_text=_(
            "What “edf” compares; other policies ignore it. “latest start” needs the cost unit “ms”. A change takes "
            "effect when nothing waits in the pool."
        ),
    )
    aging_step_seconds = models.FloatField(
        _("aging: seconds a step"),
        default=60.0,
        validators=[validators.aging_step],
        help_text=_(
            "How many seconds of waiting are worth one step of priority under “aging”, from 0.001 to 86400; other "
            "policies ignore it. A change takes effect when nothing waits in the pool."
        ),
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
            models.CheckConstraint(
                condition=Q(policy__in=["tiered", "wfq", "ring", "fifo", "priority", "aging", "edf"]),
                name="queueapp_pool_policy",
                violation_error_message=_("policy must be one of those that there are."),
            ),
            models.CheckConstraint(
                condition=Q(edf_by__in=["deadline", "latest_start"]),
                name="queueapp_pool_edf_by",
                violation_error_message=_("“edf: by” must be “deadline” or “latest_start”."),
            ),
            models.CheckConstraint(
                condition=~Q(policy="edf", edf_by="latest_start") | Q(cost_unit="ms"),
                name="queueapp_pool_latest_start",
                violation_error_message=_("“edf” by “latest_start” needs the cost unit “ms”."),
            ),
            models.CheckConstraint(
                condition=Q(
                    aging_step_seconds__gte=validators.AGING_STEP_MIN, aging_step_seconds__lte=validators.AGING_STEP_MAX
                ),
                name="queueapp_pool_aging_step",
                violation_error_message=_("aging step must be a number from 0.001 to 86400."),
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

    @property
    def aging_step_ms(self) -> int:
        return max(1, round(self.aging_step_seconds * 1000))

    @property
    def rule(self) -> str:
        """The policy with the parameter that it takes."""
        return described(self.policy, self.edf_by, self.aging_step_ms)

    def clean_fields(self, exclude: Collection[str] | None = None) -> None:
        """A planned policy is refused by its name, before it is only none of the choices."""
        faults: dict[str, Any] = {}
        left_out = {*(exclude or ())}
        if "policy" not in left_out:
            try:
                validators.policy(self.policy)
            except ValidationError as error:
                faults["policy"] = [error]
                left_out.add("policy")
        try:
            super().clean_fields(left_out)
        except ValidationError as error:
            faults = error.update_error_dict(faults)
        if faults:
            raise ValidationError(faults)

    def clean(self) -> None:
        super().clean()
        if self.policy == self.Policy.EDF and self.edf_by == self.EdfBy.LATEST_START and self.cost_unit != "ms":
            raise ValidationError(
                {
                    "edf_by": _(
                        "edf by “latest_start” subtracts costs from moments, and this pool counts costs in "
                        "“%(unit)s”: set the cost unit to “ms”, or order by “deadline”."
                    )
                    % {"unit": self.cost_unit}
                }
            )
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
