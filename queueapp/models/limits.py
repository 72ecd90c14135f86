"""Tenants, and what they, their lanes and concurrency keys may do in a pool."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q, Sum
from django.utils.translation import gettext_lazy as _

from queueapp import patterns, validators
from queueapp.models import rates, shapes
from queueapp.models.base import OurManager, OurModel
from queueapp.models.pools import Pool
from queueapp.models.rates import Rated


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


def minima_at_most(ceiling: int) -> int:
    """How much the guaranteed minima of a pool may add up to under its ceiling: a tenth is left for the turns."""
    return ceiling * 9 // 10


class TenantLimits(Rated, OurModel):
    """What a tenant, or one lane of it, may do in one pool."""

    pool = models.ForeignKey(Pool, models.CASCADE, related_name="limits", verbose_name=_("pool"))
    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="limits", verbose_name=_("tenant"))
    lane = shapes.name_or_empty(_("lane"), validators.lane_name, _("Empty = the tenant itself."))
    weight = models.FloatField(
        _("weight"),
        null=True,
        blank=True,
        default=1.0,
        validators=[validators.weight],
        help_text=_(
            "Share of service next to others: 2 gets twice what 1 gets. From 0.001 to 1000. Empty = as without limits: "
            "the pool's default weight, of a lane 1."
        ),
    )
    max_in_flight = shapes.ceiling(_("Most jobs that run at once. Empty = no limit, 0 = closed."))
    min_share = models.PositiveIntegerField(
        _("guaranteed minimum"),
        default=0,
        help_text=_(
            "So many jobs of the tenant run at once before others get a turn, as long as it has work. 0 = none; a lane "
            "has none."
        ),
    )
    paused = models.BooleanField(_("paused"), default=False, help_text=_("Jobs are accepted but none starts."))
    backlog_limit = models.PositiveIntegerField(
        _("most waiting"),
        null=True,
        blank=True,
        help_text=_(
            "Most jobs of the tenant that wait, in whatever state; further ones are refused. Empty = no limit; a lane "
            "has none."
        ),
    )

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
            shapes.within(
                "weight",
                validators.WEIGHT_MIN,
                validators.WEIGHT_MAX,
                "queueapp_limits_weight",
                _("weight must be a number from 0.001 to 1000."),
                empty=True,
            ),
            models.CheckConstraint(
                condition=Q(min_share=0) | Q(lane=""),
                name="queueapp_limits_min_of_tenant",
                violation_error_message=_("A guaranteed minimum is the tenant's: leave it at 0 for a lane."),
            ),
            models.CheckConstraint(
                condition=Q(max_in_flight__isnull=True) | Q(max_in_flight__gte=models.F("min_share")),
                name="queueapp_limits_min_below_max",
                violation_error_message=_("The guaranteed minimum must not be above the ceiling."),
            ),
            models.CheckConstraint(
                condition=Q(backlog_limit__isnull=True) | Q(lane=""),
                name="queueapp_limits_room_of_tenant",
                violation_error_message=_("“Most waiting” is the tenant's: leave it empty for a lane."),
            ),
            *rates.constraints("queueapp_limits"),
        )

    def clean(self) -> None:
        super().clean()
        unknown = not hasattr(self, "pool")  # the form has refused what was given for it
        if unknown or not self.min_share or not self.pool.max_in_flight:
            return
        others = TenantLimits.objects.filter(pool=self.pool).exclude(pk=self.pk).aggregate(all=Sum("min_share"))["all"]
        room = minima_at_most(self.pool.max_in_flight) - (others or 0)
        if self.min_share > room:
            raise ValidationError(
                {
                    "min_share": _(
                        "guaranteed minimum %(value)s is too much: all of a pool's minima together take 90%% of its "
                        "ceiling at most, and %(room)s of that is left."
                    )
                    % {"value": self.min_share, "room": max(0, room)}
                }
            )

    @property
    def asked_weight(self) -> float:
        """The weight that holds; its pool should be loaded."""
        if self.weight is not None:
            return self.weight
        return 1.0 if self.lane else float(self.pool.default_weight)

    def __str__(self) -> str:
        scope = f"{self.tenant.key} / {self.lane}" if self.lane else self.tenant.key
        return f"{scope} @ {self.pool.name}"


class KeyLimit(Rated, OurModel):
    """How many jobs of one pool may hold the same concurrency key at once, whatever tasks say, and come in with it."""

    pool = models.ForeignKey(Pool, models.CASCADE, related_name="key_limits", verbose_name=_("pool"))
    pattern = models.CharField(
        _("pattern"),
        max_length=patterns.PATTERN_MAX,
        validators=[validators.key_pattern],
        help_text=_("Letter for letter as tasks name it in Key(…), for example “customer:{customer_id}”."),
    )
    max_in_flight = shapes.ceiling(
        _("Most jobs that hold the same key at once, instead of what tasks say. Empty = no limit, 0 = closed.")
    )

    objects = OurManager["KeyLimit"]()

    class Meta:
        verbose_name = _("key limit")
        verbose_name_plural = _("key limits")
        ordering = ("pool__name", "pattern")
        constraints = (
            models.UniqueConstraint(
                fields=("pool", "pattern"),
                name="queueapp_keylimit_pattern",
                violation_error_message=_("This pattern has a limit for this pool already: edit that one."),
            ),
            *rates.constraints("queueapp_keylimit"),
        )

    def __str__(self) -> str:
        return f"{self.pattern} @ {self.pool.name}"
