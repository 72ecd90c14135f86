"""Shapes that fields and constraints of several models have. Used by the modules beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Q
from django.db.models.expressions import Combinable
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:  # Django's own fields take no parameters at run time
    from django.utils.functional import _StrPromise

    Text = str | _StrPromise
    Name = models.CharField[str | int | Combinable, str]
    Ceiling = models.PositiveIntegerField[float | int | str | Combinable | None, int | None]


def name_or_empty(label: Text, check: Callable[[str], None], help_text: Text) -> Name:
    """The name of a tenant, a pool or a lane; empty says something of its own."""
    return models.CharField(label, max_length=64, blank=True, default="", validators=[check], help_text=help_text)


def ceiling(help_text: Text) -> Ceiling:
    """Most jobs at once: empty is no limit, 0 is closed."""
    return models.PositiveIntegerField(_("ceiling"), null=True, blank=True, help_text=help_text)


def within(
    field: str, least: float, most: float, name: str, message: Text, *, empty: bool = False
) -> models.CheckConstraint:
    """A number from `least` to `most`, or with `empty` none."""
    condition = Q(**{f"{field}__gte": least, f"{field}__lte": most})
    if empty:
        condition = Q(**{f"{field}__isnull": True}) | condition
    return models.CheckConstraint(condition=condition, name=name, violation_error_message=message)
