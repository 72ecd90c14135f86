"""Rates at which jobs may come in and start, as fields of the rows that have them."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from queueapp import validators
from queueapp.models import shapes
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

    dispatch_rate = models.PositiveIntegerField(
        _("dispatch rate"),
        null=True,
        blank=True,
        validators=[validators.dispatch_rate],
        help_text=_("So many jobs may start during each period, evenly spread; the others wait. Empty = any number."),
    )
    dispatch_period_seconds = models.FloatField(
        _("dispatch period: seconds"),
        default=1.0,
        validators=[validators.dispatch_period],
        help_text=_("What the dispatch rate counts in. Up to 31 days."),
    )
    dispatch_burst = models.PositiveIntegerField(
        _("dispatch burst"),
        default=1,
        validators=[validators.dispatch_burst],
        help_text=_("How many may start at once after a rest. 1 = none sooner than the rate has it."),
    )

    class Meta:
        abstract = True

    @property
    def asked_rate(self) -> Rate | None:
        """What the store is told of those who come in."""
        return _rate(self.rate, self.period_seconds, self.burst)

    @property
    def asked_dispatch_rate(self) -> Rate | None:
        """And of those who start."""
        return _rate(self.dispatch_rate, self.dispatch_period_seconds, self.dispatch_burst)


def _rate(rate: int | None, period_seconds: float, burst: int) -> Rate | None:
    if rate is None:
        return None
    return Rate(rate=rate, period_ms=max(1, round(period_seconds * 1000)), burst=burst)


def constraints(prefix: str) -> tuple[models.CheckConstraint, ...]:
    """Those of the fields above, under names of the model's own."""
    return (
        shapes.within(
            "rate",
            1,
            validators.RATE_MAX,
            f"{prefix}_rate",
            _("rate must be a whole number from 1 to 1000000, or empty."),
            empty=True,
        ),
        shapes.within(
            "period_seconds",
            validators.PERIOD_MIN,
            validators.PERIOD_MAX,
            f"{prefix}_period",
            _("period must be a number from 0.001 to 2678400."),
        ),
        shapes.within(
            "burst", 1, validators.BURST_MAX, f"{prefix}_burst", _("burst must be a whole number from 1 to 1000000.")
        ),
        shapes.within(
            "dispatch_rate",
            1,
            validators.RATE_MAX,
            f"{prefix}_dispatch_rate",
            _("dispatch rate must be a whole number from 1 to 1000000, or empty."),
            empty=True,
        ),
        shapes.within(
            "dispatch_period_seconds",
            validators.PERIOD_MIN,
            validators.PERIOD_MAX,
            f"{prefix}_dispatch_period",
            _("dispatch period must be a number from 0.001 to 2678400."),
        ),
        shapes.within(
            "dispatch_burst",
            1,
            validators.BURST_MAX,
            f"{prefix}_dispatch_burst",
            _("dispatch burst must be a whole number from 1 to 1000000."),
        ),
    )
