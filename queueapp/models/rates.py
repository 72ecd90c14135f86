"""A rate at which jobs may come in, as fields of the rows that have one."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queueapp import validators
from queueapp.store.configuration import Rate


class Rated(models.Model):
    """What has a rate of its own."""

    rate = models.PositiveIntegerField(
        _("rate"),
        null=True,
        blank=True,
        validators=[validators.rate],
        help_text=_("So many jobs may come in during each period, evenly spread. Empty = any number."),
    )
    period_seconds = models.FloatField(
        _("period: seconds"),
        default=1.0,
        validators=[validators.period],
        help_text=_("What the rate counts in: 1 for jobs a second, 60 for jobs a minute. Up to 31 days."),
    )
    burst = models.PositiveIntegerField(
        _("burst"),
        default=1,
        validators=[validators.burst],
        help_text=_("How many may come at once after a rest. 1 = none sooner than the rate has it."),
    )

    class Meta:
        abstract = True

    @property
    def asked_rate(self) -> Rate | None:
        """What the store is told."""
        if self.rate is None:
            return None
        return Rate(rate=self.rate, period_ms=max(1, round(self.period_seconds * 1000)), burst=self.burst)


def constraints(prefix: str) -> tuple[models.CheckConstraint, ...]:
    """Those of the fields above, under names of the model's own."""
    return (
        models.CheckConstraint(
            condition=Q(rate__isnull=True) | Q(rate__gte=1, rate__lte=validators.RATE_MAX),
            name=f"{prefix}_rate",
            violation_error_message=_("rate must be a whole number from 1 to 1000000, or empty."),
        ),
        models.CheckConstraint(
            condition=Q(period_seconds__gte=validators.PERIOD_MIN, period_seconds__lte=validators.PERIOD_MAX),
            name=f"{prefix}_period",
            violation_error_message=_("period must be a number from 0.001 to 2678400."),
        ),
        models.CheckConstraint(
            condition=Q(burst__gte=1, burst__lte=validators.BURST_MAX),
            name=f"{prefix}_burst",
            violation_error_message=_("burst must be a whole number from 1 to 1000000."),
        ),
    )
