"""What the models refuse. Each message names the field, the value and the remedy.

Plain functions, so that migrations refer to them by path and never change when a message does.
"""

from __future__ import annotations

import re

from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from queueapp import patterns
from queueapp.names import LANE_FORM, POOL_FORM, TENANT_FORM

WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0
COST_UNIT_FORM = re.compile(r"\w{1,32}")
COST_MIN, COST_MAX = 1.0, 1_000_000_000.0
AGING_STEP_MIN, AGING_STEP_MAX = 0.001, 86_400.0
PLANNED_POLICIES = frozenset({"drr", "lottery"})
"""Policies that exist in Python only, so that a leader must dispatch, which none does yet."""


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


def aging_step(value: float) -> None:
    _between(AGING_STEP_MIN, AGING_STEP_MAX, value, _("aging step"))


def policy(value: str) -> None:
    if value in PLANNED_POLICIES:
        raise ValidationError(
            _("policy “%(value)s” is not there yet: it needs scheduled dispatch. Choose another one."),
            code="not_yet",
            params={"value": value},
        )


def key_pattern(value: str) -> None:
    try:
        patterns.parse(value)
    except ValueError as error:
        raise ValidationError(
            _("pattern “%(value)s” is not allowed: it %(fault)s."),
            code="form",
            params={"value": value, "fault": str(error)},
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
