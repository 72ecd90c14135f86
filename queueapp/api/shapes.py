"""What the shapes of all answers have in common, and those of refusals, for the OpenAPI document. Shapes of jobs, of
pools, of schedules and of what operators are told stand beside it; views and `answers` fill them, and a test compares
the two.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.fields import Word
from queueapp.states import Outcome, State


class Shape(serializers.Serializer[Any]):
    """What the shapes have in common: they describe, and nothing is read or written through them."""


class Fault(Shape):
    """Why a request was refused."""

    detail = serializers.CharField(help_text=_("For people, in the language of the request."))
    code = serializers.CharField(help_text=_("For programs; stays the same."))


class Conflict(Fault):
    """Why the state of a job, or what an Idempotency-Key stands for, does not allow what was asked."""

    state = Word("State", State, required=False, help_text=_("Where the job stands now."))
    outcome = Word("Outcome", Outcome, required=False, allow_null=True, help_text=_("How it ended."))


class Page(Shape):
    """The end of every list."""

    next = serializers.URLField(allow_null=True, help_text=_("The next page; null on the last one."))
