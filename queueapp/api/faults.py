"""What each refusal becomes over HTTP: a `detail` for people and a `code` for programs, or, for a request with wrong
fields, what is wrong with each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import TooManyFieldsSent
from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import (
    APIException,
    ErrorDetail,
    NotFound,
    ParseError,
    PermissionDenied,
    Throttled,
    ValidationError,
)
from rest_framework.response import Response
from rest_framework.views import exception_handler

from queueapp import errors
from queueapp.api.grants import Closed
from queueapp.compat import InvalidTask
from queueapp.errors import (
    CountChanged,
    DuctorError,
    EditedMeanwhile,
    IdempotencyConflict,
    InvalidOption,
    KeysWouldChange,
    PayloadTooLarge,
    StoreError,
    UnknownPool,
    UnknownTenant,
    UnserialisableArgument,
)

RETRY_STORE_S = 5
"""When to ask again while the store is away."""
FIELD_OF_OPTION = {
    "args": "args",
    "kwargs": "kwargs",
    "tenant": "tenant",
    "lane": "lane",
    "priority": "priority",
    "run_after": "run_after",
    "delay": "delay",
    "expires_after": "expires_after",
    "deadline": "deadline",
    # A key that the arguments do not fill in.
    "concurrency": "kwargs",
    "debounce": "kwargs",
    "singleton": "kwargs",
    "queue_name": "pool",
    "metadata": "metadata",
    "idempotency_key": "Idempotency-Key",
}
"""First word of an error's message → the field or header of the request that it is about."""


class Refused(APIException):
    """An answer with a code. `wait` (seconds) becomes the header Retry-After, whole and rounded up; 0 = none."""

    def __init__(
        self, http_status: int, code: str, detail: str, *, wait: float = 0, more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail, code)
        # As it is: APIException would make text of every part, and "None" of null.
        self.body = {"detail": detail, "code": code, **(more or {})}
        self.status_code = http_status
        self.wait = math.ceil(wait)


class TooLarge(Refused):
    """The body, or the arguments in it, are larger than allowed."""

    def __init__(self, detail: str) -> None:
        super().__init__(status.HTTP_413_REQUEST_ENTITY_TOO_LARGE, "payload_too_large", detail)


def translate(error: Exception) -> Exception:
    """The HTTP error for one of Ductor's; anything else as it is."""
    match error:
        case Closed():
            return PermissionDenied(str(error), code="closed")
        case IdempotencyConflict():
            return Refused(
                status.HTTP_409_CONFLICT,
                error.code,
                _("The Idempotency-Key stands for a job with another task or other arguments. Use a new key."),
            )
        case CountChanged():
            return Refused(
                status.HTTP_409_CONFLICT,
                error.code,
                _("More jobs match now. Nothing was changed; ask again with this number."),
                more={"expected": error.expected, "matching": error.number, "exact": error.exact},
            )
        case EditedMeanwhile():
            return Refused(
                status.HTTP_409_CONFLICT,
                error.code,
                _("It was edited meanwhile. Nothing was changed; look at it, and ask again with this number."),
                more={"edits": error.edits},
            )
        case KeysWouldChange():
            return Refused(status.HTTP_409_CONFLICT, error.code, str(error))
        case PayloadTooLarge():
            return TooLarge(str(error))
        case Throttled():
            wait = getattr(error, "wait", None) or 1
            return Refused(
                status.HTTP_429_TOO_MANY_REQUESTS,
                "throttled",
                _("More requests than are allowed. Ask again in %(wait)d seconds.") % {"wait": wait},
                wait=wait,
            )
        case errors.Throttled():
            return Refused(
                status.HTTP_429_TOO_MANY_REQUESTS,
                error.code,
                _("More jobs than the rate allows. The job was not taken; ask again when Retry-After has passed."),
                wait=error.retry_after,
            )
        case errors.BacklogFull():
            return Refused(
                status.HTTP_429_TOO_MANY_REQUESTS,
                error.code,
                _("As many jobs wait as may. The job was not taken; ask again when Retry-After has passed."),
                wait=error.retry_after,
            )
        case TooManyFieldsSent():
            return ParseError(_("The request has more parameters than are read here."))
        case StoreError():
            # Its message names hosts and settings: for the log, not for callers.
            return Refused(
                status.HTTP_503_SERVICE_UNAVAILABLE,
                error.code,
                _(
                    "Jobs cannot be taken or looked up right now. Try again later; with an Idempotency-Key a repeat "
                    "makes no second job."
                ),
                wait=RETRY_STORE_S,
            )
        case UnknownPool():
            return ValidationError({"pool": [_("No pool of this name is known here.")]})
        case UnknownTenant():
            return ValidationError({"tenant": [_("This tenant is not set up for jobs; ask for a row of it first.")]})
        case UnserialisableArgument() | InvalidOption() | InvalidTask():
            return ValidationError({_field_of(str(error)): [str(error)]})
    return error


def answer(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer for an error that `translate` gave; None for one that is nobody's to answer."""
    response = exception_handler(error, context)
    if response is None:
        return None
    response.data = body_of(error, response.data)
    return response


def data_of(error: APIException) -> Any:
    """What the framework would say of an error."""
    return error.detail if isinstance(error.detail, (dict, list)) else {"detail": error.detail}


def body_of(error: Exception, data: Any) -> Any:
    """The body of a refusal, given what the framework would say."""
    if isinstance(error, Refused):
        return error.body
    if isinstance(data, dict) and isinstance(detail := data.get("detail"), ErrorDetail):
        return {"detail": str(detail), "code": detail.code}
    return data


def not_found() -> NotFound:
    """The same answer for what does not exist and for what is somebody else's."""
    return NotFound(_("Not found."))


def wrong_cursor() -> ValidationError:
    """For a cursor that no page gave."""
    return ValidationError({"cursor": [_("This is no cursor of ours: take “next” of the page before.")]})


def store_fault(error: Exception) -> DuctorError | None:
    """`error` when it is the store's, so that the view writes it to the log."""
    return error if isinstance(error, StoreError) else None


def shown(name: str) -> str:
    """A name that the caller gave, for an answer: not absurdly long, and text that UTF-8 can hold."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _field_of(message: str) -> str:
    word = re.split(r"[ .\[]", message, maxsplit=1)[0]
    return FIELD_OF_OPTION.get(word, "non_field_errors")
