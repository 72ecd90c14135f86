"""The record of what people did in the admin: one LogEntry for each action, beside the rows of DeadLetterInspection."""

from __future__ import annotations

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.http import HttpRequest


def record(request: HttpRequest, model: type[Model], about: str, what: str, *, object_id: str | None = None) -> None:
    """`what` was done to `about`. With `object_id` the admin's list of recent actions leads to its page."""
    LogEntry.objects.create(
        user_id=str(request.user.pk),
        content_type=ContentType.objects.get_for_model(model, for_concrete_model=False),
        # PostgreSQL keeps no NUL: with one in a posted id or note, the action would stand without its record.
        object_id=object_id and object_id.replace("\0", ""),
        object_repr=about.replace("\0", "")[:200],
        action_flag=CHANGE,
        change_message=what.replace("\0", ""),
    )


def username(request: HttpRequest) -> str:
    return request.user.get_username()[:200]
