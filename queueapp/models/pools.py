"""Pools: a policy with its parameters, and what holds where nothing else is configured."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queueapp import validators
from queueapp.conf import SettingFault, settings
from queueapp.errors import InvalidPolicy
from queueapp.models import shapes
from queueapp.models.base import OurManager, OurModel
from queueapp.policies import custom
from queueapp.policies.registry import DIRECT
from queueapp.signals import pool_deleting
from queueapp.store.configuration import described
from queueapp.store.keys import pool_code


def policy_choices() -> list[tuple[str, Any]]:
    """Our policies, and those of `DUCTOR["POLICIES"]`. Migrations name this function."""
    try:
        own = sorted(settings.policies.items())
    except SettingFault:
        own = []  # Django's own checks ask, and ours must be reached to name the fault
    return [
        *Pool.Policy.choices,
        *((name, _("%(name)s: a policy of your own, %(path)s") % {"name": name, "path": path}) for name, path in own),
    ]


class PoolRows(models.QuerySet["Pool"]):
    """Whoever deletes many pools asks for each first, before any is gone."""

    def delete(self) -> tuple[int, dict[str, int]]:
        for pool in self:
            pool_deleting.send(sender=Pool, instance=pool, using=self.db)
        return super().delete()

    # attr-defined: marks that Django reads off the method.
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
        DRR = "drr", _("drr: rounds in which each tenant may spend a share of cost by weight; needs scheduled dispatch")
        LOTTERY = "lottery", _("lottery: each job is a draw, with tickets by weight; needs scheduled dispatch")

    class Dispatch(models.TextChoices):
        DIRECT = "direct", _("direct: the store itself chooses when a worker asks; no leader is needed")
        SCHEDULED = "scheduled", _("scheduled: the leader ranks and chooses; without a scheduler nothing starts")

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
        max_length=32,
        choices=policy_choices,
        default=Policy.TIERED,
        help_text=_(
            "Which job runs next. A change is saved at once, and all that waits is ranked anew while work goes on."
        ),
    )
    edf_by = models.CharField(
        _("edf: by"),
        max_length=16,
        choices=EdfBy,
        default=EdfBy.DEADLINE,
        help_text=_(
            "What “edf” compares; other policies ignore it. “latest start” needs the cost unit “ms”. After a change "
            "all that waits is ranked anew while work goes on."
        ),
    )
    aging_step_seconds = models.FloatField(
        _("aging: seconds a step"),
        default=60.0,
        validators=[validators.aging_step],
        help_text=_(
            "How many seconds of waiting are worth one step of priority under “aging”, from 0.001 to 86400; other "
            "policies ignore it. After a change all that waits is ranked anew while work goes on."
        ),
    )
    dispatch = models.CharField(
        _("dispatch"),
        max_length=16,
        choices=Dispatch,
        default=Dispatch.DIRECT,
        help_text=_(
            "Who chooses the next job. “scheduled” is for policies that are written in Python, and needs a running "
            "“manage.py scheduler”. A change takes effect at once, also for what waits."
        ),
    )
    dispatch_window = models.PositiveIntegerField(
        _("dispatch window"),
        default=0,
        validators=[validators.dispatch_window],
        help_text=_(
            "Most jobs that are chosen and not yet done, under scheduled dispatch. 0 = as many as live workers have "
            "slots. A larger one keeps workers busier with tiny jobs, and decides their order earlier."
        ),
    )
    paused = models.BooleanField(_("paused"), default=False, help_text=_("Jobs are accepted but none starts."))
    max_in_flight = shapes.ceiling(_("Most jobs that run at once in the whole pool. Empty = no limit, 0 = closed."))
    backlog_limit = models.PositiveIntegerField(
        _("most waiting"),
        null=True,
        blank=True,
        help_text=_(
            "Most jobs that wait in the whole pool, in whatever state; further ones are refused. Empty = what the "
            "setting BACKLOG_LIMIT says, which is no limit unless set."
        ),
    )
    continue_weight = models.PositiveIntegerField(
        _("continuations for each start"),
        default=10,
        validators=[validators.continue_weight],
        help_text=_(
            "Of jobs that were parked above a rate and are due: so many that continue begun work leave the backlog for "
            "each that starts new work. From 1 to 1000."
        ),
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
            shapes.within(
                "default_cost",
                validators.COST_MIN,
                validators.COST_MAX,
                "queueapp_pool_default_cost",
                _("default cost must be a number from 1 to 1000000000."),
            ),
            shapes.within(
                "continue_weight",
                1,
                validators.CONTINUE_WEIGHT_MAX,
                "queueapp_pool_continue_weight",
                _("continuations for each start must be a whole number from 1 to 1000."),
            ),
            shapes.within(
                "default_weight",
                validators.WEIGHT_MIN,
                validators.WEIGHT_MAX,
                "queueapp_pool_default_weight",
                _("default weight must be a number from 0.001 to 1000."),
            ),
            models.CheckConstraint(
                condition=Q(policy__in=["tiered", "wfq", "ring", "fifo", "priority", "aging", "edf"])
                | Q(dispatch="scheduled"),
                name="queueapp_pool_policy",
                violation_error_message=_("a policy that is written in Python needs scheduled dispatch."),
            ),
            models.CheckConstraint(
                condition=Q(dispatch__in=["direct", "scheduled"]),
                name="queueapp_pool_dispatch",
                violation_error_message=_("dispatch must be “direct” or “scheduled”."),
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
            shapes.within(
                "aging_step_seconds",
                validators.AGING_STEP_MIN,
                validators.AGING_STEP_MAX,
                "queueapp_pool_aging_step",
                _("aging step must be a number from 0.001 to 86400."),
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

    def clean(self) -> None:
        super().clean()
        self._clean_policy()
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

    def _clean_policy(self) -> None:
        if self.policy not in DIRECT and self.dispatch == self.Dispatch.DIRECT:
            raise ValidationError(
                {
                    "dispatch": _(
                        "dispatch “direct” has no policy “%(policy)s”, which is written in Python, so that a leader "
                        "must choose. Set dispatch to “scheduled”, or take one of %(direct)s."
                    )
                    % {"policy": self.policy, "direct": ", ".join(sorted(DIRECT))}
                }
            )
        if self.policy in settings.policies:
            try:
                custom.load(self.policy, settings.policies[self.policy])
            except InvalidPolicy as error:
                raise ValidationError(
                    {"policy": _("policy “%(policy)s” cannot run: %(fault)s") % {"policy": self.policy, "fault": error}}
                ) from error
