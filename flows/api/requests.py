"""The shape of every request about runs. See `queueapp.api.requests`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from flows.checking import NAME_FORM
from flows.declaring import Flow
from flows.errors import InvalidInput
from flows.models import Run
from flows.values import Json, to_json
from queueapp.api.fields import Name, Text, Word
from queueapp.api.requests import NOTE_MAX, TENANT_REMEDY, JobRequest, OfTenant, PageQuery, Strict
from queueapp.codec import encode_arguments, encode_result
from queueapp.conf import settings
from queueapp.errors import PayloadTooLarge, UnserialisableArgument
from queueapp.names import TENANT_FORM

EVENT_ID_MAX = 200
SHOWN = 300
"""Characters of what is wrong with arguments; names of theirs stand in it."""
NAME_REMEDY = _("A name has 1 to 100 of A–Z, a–z, 0–9 and “_ . -”, a letter first.")


class Anything(serializers.JSONField):
    """Any value of JSON, as it is: what cannot be kept of it is told by whoever knows its name."""

    def to_internal_value(self, data: Any) -> Any:
        return data


class RunRequest(Strict):
    """A run to start."""

    args = serializers.ListField(required=False, default=list)
    kwargs = serializers.DictField(required=False, default=dict)
    tenant = Name(
        TENANT_FORM,
        TENANT_REMEDY,
        required=False,
        help_text=_("For whom; needed only by those who may speak for several."),
    )

    validate_kwargs = JobRequest.validate_kwargs


class CancelRun(Strict):
    """Why the run is cancelled."""

    reason = Text(required=False, max_length=NOTE_MAX, help_text=_("Kept with the run."))


class RunEventRequest(Strict):
    """An event for a run."""

    name = Name(NAME_FORM, NAME_REMEDY, help_text=_("What a step waits for."))
    payload = Anything(required=False, allow_null=True, default=None, help_text=_("What the step then gives."))
    id = Text(
        required=False,
        max_length=EVENT_ID_MAX,
        help_text=_("Sent twice with one id, an event is there once. Made up unless named."),
    )

    def validate_payload(self, payload: Any) -> Json:
        try:
            encoded = encode_result(payload, name="payload") or b""
            kept = to_json(payload, "payload")
        except (UnserialisableArgument, InvalidInput) as error:
            raise serializers.ValidationError(str(error)[:SHOWN]) from None
        _require_size("payload", len(encoded))
        return kept


class RunsQuery(PageQuery, OfTenant):
    """Which runs."""

    state = Word("RunState", Run.State.values, required=False, help_text=_("Only runs in this state."))
    flow = Name(NAME_FORM, NAME_REMEDY, required=False, help_text=_("Only runs of the flow of this name."))


def bound(flow: Flow[...], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Json]:
    """The input of a run with these arguments. Raises what becomes a 400 that names the field, and PayloadTooLarge."""
    # First what JSON text can carry at all (NaN, depth, lone surrogates): errors from here name field and path.
    encoded = encode_arguments(args, kwargs)
    try:
        given = flow.bind(*args, **kwargs)
    except InvalidInput as error:
        raise serializers.ValidationError({"kwargs": [str(error)[:SHOWN]]}) from None
    _require_size("arguments", len(encoded))
    return given


def _require_size(what: str, size: int) -> None:
    if size > settings.max_payload_bytes:
        raise PayloadTooLarge(
            f"The {what} as JSON: {size} bytes; MAX_PAYLOAD_BYTES allows {settings.max_payload_bytes}. Store large "
            "data elsewhere and pass where it is."
        )
