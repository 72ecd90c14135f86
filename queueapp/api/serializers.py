"""The shape of a request for a job, and of what is said about one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from queueapp.api.faults import shown
from queueapp.codec import decode_result, encode_arguments
from queueapp.names import LANE_FORM, TENANT_FORM
from queueapp.policies.protocol import PRIORITY_MAX, PRIORITY_MIN
from queueapp.producer.discovery import load_tasks, registry
from queueapp.producer.options import EXPIRES_MAX_S
from queueapp.producer.task import DuctorTask
from queueapp.store.records import JobRecord

TASK_NAME_MAX = 512
IDEMPOTENCY_KEY_MAX = 255
LATEST_S = 253_402_300_799
"""The last second of the year 9999, after which no datetime can say when."""


class Text(serializers.CharField):
    """Text of JSON, as it is; no number stands for it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        if type(data) is not str:
            self.fail("invalid")
        return super().to_internal_value(data)


class Name(Text):
    """Text of one form. `remedy` says which."""

    def __init__(self, form: re.Pattern[str], remedy: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._form, self._remedy = form, remedy

    def to_internal_value(self, data: Any) -> str:
        name = super().to_internal_value(data)
        if not self._form.fullmatch(name):
            raise serializers.ValidationError(self._remedy)
        return name


class WholeNumber(serializers.IntegerField):
    """An integer of JSON; neither text nor a truth value stands for one."""

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
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


class JobRequest(serializers.Serializer[dict[str, Any]]):
    """What `POST jobs/` takes. Unknown fields are refused by name, so that a misspelt one is not ignored."""

    task = Text(max_length=TASK_NAME_MAX)
    args = serializers.ListField(required=False, default=list)
    kwargs = serializers.DictField(required=False, default=dict)
    tenant = Name(
        TENANT_FORM, _("A tenant's id has up to 64 of A–Z, a–z, 0–9 and “. _ : @ -”, and no “_” first."), required=False
    )
    pool = Text(max_length=64, required=False)
    lane = Name(LANE_FORM, _("A lane has up to 64 of A–Z, a–z, 0–9 and “. _ : @ -”."), required=False)
    priority = WholeNumber(required=False, min_value=PRIORITY_MIN, max_value=PRIORITY_MAX)
    run_after = Moment(required=False)
    expires_after = Seconds(required=False, min_value=0.001, max_value=EXPIRES_MAX_S)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        unknown = sorted(set(data) - set(self.fields))
        if unknown:
            known = ", ".join(self.fields)
            raise serializers.ValidationError(
                {shown(name): [_("Unknown field; known are: %(known)s.") % {"known": known}] for name in unknown[:20]}
            )
        values: dict[str, Any] = super().to_internal_value(data)
        return values

    def validate_kwargs(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        for name in kwargs:
            # `self` is the task in `task.enqueue(...)`.
            if not name.isidentifier() or name == "self":
                raise serializers.ValidationError(_("%(name)s cannot name an argument.") % {"name": shown(name)})
        return kwargs

    def validate_task(self, name: str) -> DuctorTask:
        """The task itself. Only what a module of the project has declared is looked at, and only `api=True` is told."""
        load_tasks()
        task = registry.get(name)
        if task is None or not task.api:
            raise serializers.ValidationError(_("No task of this name can be started here."))
        return task

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        task: DuctorTask = attrs["task"]
        # First what JSON text can carry at all (NaN, depth, lone surrogates): errors from here name field and path.
        encode_arguments(attrs["args"], attrs["kwargs"])
        # A task that takes its context gets it first, from the worker.
        context = (None,) if task.takes_context else ()
        try:
            inspect.signature(task.func).bind(*context, *attrs["args"], **attrs["kwargs"])
        except TypeError as error:
            raise serializers.ValidationError(
                {"kwargs": [_("The arguments do not fit the task: %(error)s.") % {"error": str(error)[:200]}]}
            ) from None
        return attrs


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """The header Idempotency-Key, checked; None without one."""
    key = headers.get("Idempotency-Key")
    if key is None:
        return None
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_MAX or not (key.isascii() and key.isprintable()):
        raise serializers.ValidationError(
            {"Idempotency-Key": [_("Use 1 to %(most)d printable ASCII characters.") % {"most": IDEMPOTENCY_KEY_MAX}]}
        )
    return key


def describe(job: JobRecord, public_id: str, pool: str, *, with_result: bool) -> dict[str, Any]:
    """What `GET jobs/{id}/` says: no arguments and no traceback, and the result only where asked for."""
    last = job.errors[-1].detail if job.errors else {}
    described: dict[str, Any] = {
        "id": public_id,
        "task": job.task,
        "pool": pool,
        "tenant": job.tenant,
        "lane": job.lane,
        "priority": job.priority,
        "state": job.state.value,
        "outcome": job.outcome.value if job.outcome else None,
        "reason": job.reason or None,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "crashes": job.crashes,
        "error": last.get("class"),
        "submitted": _moment(job.submitted_ms),
        "due": _moment(job.due_ms),
        "started": _moment(job.first_leased_ms),
        "ended": _moment(job.ended_ms),
    }
    if with_result:
        described["result"] = decode_result(job.result)
    return described


def _moment(ms: int) -> str | None:
    if not ms:
        return None
    moment = datetime.fromtimestamp(min(ms / 1000, LATEST_S), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
