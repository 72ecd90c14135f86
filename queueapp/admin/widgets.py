"""How fields look in the admin's tables."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db import models

NARROW_NUMBERS: dict[type[models.Field[Any, Any]], dict[str, Any]] = {
    models.FloatField: {"widget": forms.NumberInput(attrs={"class": "vIntegerField", "step": "any"})},
}
"""Weights as narrow as ceilings, so that a list with both, a pause and a filter fits a usual screen."""
