"""What the models refuse. Each message names the field, the value and the remedy.

Plain functions, so that migrations refer to them by path and never change when a message does.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from queueapp import firings, patterns
from queueapp.names import LANE_FORM, POOL_FORM, TENANT_FORM

WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0
COST_UNIT_FORM = re.compile(r"\w{1,32}")
COST_MIN, COST_MAX = 1.0, 1_000_000_000.0
AGING_STEP_MIN, AGING_STEP_MAX = 0.001, 86_400.0
RATE_MAX, BURST_MAX = 1_000_000, 1_000_000
PERIOD_MIN, PERIOD_MAX = 0.001, 2_678_400.0
"""With these, burst times period in ms stays below 2^53, so that the store reckons rates exactly."""
CONTINUE_WEIGHT_MAX = 1000
WINDOW_MAX = 1_000_000


def pool_name(value: str) -> None:
    _matches(
        POOL_FORM, value, _("name"), _("use up to 64 of a–z, 0–9, “_” and “-”, beginning with a letter or a digit")
    )


def tenant_key(value: str) -> None:
    _matches(TENANT_FORM, value, _("key"), _("use up to 64 of A–Z, a–z, 0–9 and “. _ : @ -”, not beginning with “_”"))


def lane_name(value: str) -> None:
    _matches(LANE_FORM, value, _("lane"), _("use up to 64 of A–Z, a–z, 0–9 and “. _ : @ -”"))


def cost_unit(value: str) -> None:
    _matches(COST_UNIT_FORM, value, _("cost unit"), _("use one word, such as “ms” or “rows”"))


def weight(value: float) -> None:
    _between(WEIGHT_MIN, WEIGHT_MAX, value, _("weight"))


def cost(value: float) -> None:
    _between(COST_MIN, COST_MAX, value, _("default cost"))


def rate(value: int) -> None:
    _between(1, RATE_MAX, value, _("rate"))


def period(value: float) -> None:
    _between(PERIOD_MIN, PERIOD_MAX, value, _("period"))


def burst(value: int) -> None:
    _between(1, BURST_MAX, value, _("burst"))


def dispatch_rate(value: int) -> None:
    _between(1, RATE_MAX, value, _("dispatch rate"))


def dispatch_period(value: float) -> None:
    _between(PERIOD_MIN, PERIOD_MAX, value, _("dispatch period"))


def dispatch_burst(value: int) -> None:
    _between(1, BURST_MAX, value, _("dispatch burst"))


def continue_weight(value: int) -> None:
    _between(1, CONTINUE_WEIGHT_MAX, value, _("continuations for each start"))


def aging_step(value: float) -> None:
    _between(AGING_STEP_MIN, AGING_STEP_MAX, value, _("aging step"))


def dispatch_window(value: float) -> None:
    _between(0, WINDOW_MAX, value, _("dispatch window"))


def key_pattern(value: str) -> None:
    try:
        patterns.parse(value)
    except ValueError as error:
        raise ValidationError(
            _("pattern “%(value)s” is not allowed: it %(fault)s."),
            code="form",
            params={"value": value, "fault": str(error)},
        ) from None


def cron(value: str) -> None:
    _read(firings.read_cron, value, _("cron"))


def zone(value: str) -> None:
    _read(firings.read_zone, value, _("time zone"))


def every_seconds(value: int) -> None:
    _between(firings.EVERY_MIN_S, firings.EVERY_MAX_S, value, _("interval"))


def jitter_seconds(value: int) -> None:
    _between(0, firings.JITTER_MAX_S, value, _("jitter"))


def _read(read: Callable[[object], object], value: object, field: Promise) -> None:
    try:
        read(value)
    except ValueError as error:
        raise ValidationError(
            _("%(field)s “%(value)s” is not allowed: it must be %(words)s."),
            code="form",
            params={"field": field, "value": value, "words": str(error)},
        ) from None


def _matches(form: re.Pattern[str], value: str, field: Promise, remedy: Promise) -> None:
    if not form.fullmatch(value):
        raise ValidationError(
            _("%(field)s “%(value)s” is not allowed: %(remedy)s."),
            code="form",
            params={"field": field, "value": value, "remedy": remedy},
        )


def _between(least: float, most: float, value: float, field: Promise) -> None:
    # Written so that NaN, which compares false with everything, is refused too.
    if not least <= value <= most:
        raise ValidationError(
            _("%(field)s %(value)s is not allowed: use a number from %(least)s to %(most)s."),
            code="range",
            params={"field": field, "value": value, "least": f"{least:.12g}", "most": f"{most:.12g}"},
        )
