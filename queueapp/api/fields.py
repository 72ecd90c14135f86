"""The fields of requests and answers: JSON's own types as they are, none of them standing for another."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.faults import shown

LATEST_S = 253_402_300_799
"""The last second of the year 9999, after which no datetime can say when."""


class Text(serializers.CharField):
    """Text of JSON, as it is; no number stands for it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False, "min_length": 1, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        if type(data) is not str:
            self.fail("invalid")
        return super().to_internal_value(data)


class Name(Text):
    """Text of one form. `remedy` says which."""

    def __init__(self, form: re.Pattern[str], remedy: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.form, self.remedy = form, remedy

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        if not self.form.fullmatch(name):
            raise serializers.ValidationError(self.remedy)
        return name


class Names(serializers.ListField):
    """Names, none of which may be wrong."""

    def run_child_validation(self, data: Any) -> list[Any]:
        try:
            return super().run_child_validation(data)
        except serializers.ValidationError as error:
            # DRF tells faults by the number of the item; here every field's faults are a list of texts.
            wrong = error.detail if isinstance(error.detail, dict) else {}
            raise serializers.ValidationError(
                [
                    _("Item %(number)s: %(fault)s") % {"number": int(at) + 1, "fault": fault}
                    for at, faults in list(wrong.items())[:20]
                    for fault in faults
                ]
            ) from None


class Flag(serializers.BooleanField):
    """true or false of JSON; no text or number stands for one."""

    def to_internal_value(self, data: Any) -> bool:
        if type(data) is not bool:
            self.fail("invalid", input=data)
        return super().to_internal_value(data)


class WholeNumber(serializers.IntegerField):
    """An integer of JSON; neither text nor a truth value stands for one."""

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return super().to_internal_value(data)


class Digits(serializers.IntegerField):
    """An integer of a query: digits, as the description says; not “1_0”, “5.0”, nor digits of other scripts."""

    def to_internal_value(self, data: Any) -> int:
        if not re.fullmatch(r"-?[0-9]+", str(data)):
            self.fail("invalid")
        return super().to_internal_value(data)


class Seconds(serializers.FloatField):
    """A number of JSON; neither text (such as "nan") nor a truth value stands for one."""

    def to_internal_value(self, data: Any) -> float:
        if type(data) not in (int, float):
            self.fail("invalid")
        return super().to_internal_value(data)


class Moment(serializers.DateTimeField):
    """A moment with its offset. One without would mean whatever zone the server has."""

    default_error_messages = {  # noqa: RUF012  (as in the class above it)
        "naive": _("“{value}” has no time zone: add an offset, as in 2030-01-31T09:00:00Z."),
        "range": _("“{value}” is not between the years 1970 and 9999."),
    }

    def enforce_timezone(self, value: datetime) -> datetime:
        if timezone.is_naive(value):
            self.fail("naive", value=value.isoformat())
        if not 0 < value.timestamp() < LATEST_S:
            self.fail("range", value=value.isoformat())
        return value


class Word(serializers.ChoiceField):
    """One of a list of words. `title` names the list."""

    def __init__(self, title: str, words: Iterable[str], **kwargs: Any) -> None:
        super().__init__(list(words), **kwargs)
        self.title = title

    def to_internal_value(self, data: Any) -> str:
        if type(data) is not str or data not in self.choices:
            self.fail("invalid_choice", input=shown(str(data)))
        return data
