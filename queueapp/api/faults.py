"""What each refusal becomes over HTTP. Each answer has a `detail` for people and a `code` for programs."""

from __future__ import annotations

import math

from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import APIException, NotFound, PermissionDenied, ValidationError

from queueapp.api.tenants import Closed
from queueapp.compat import InvalidTask
from queueapp.errors import (
    DuctorError,
    IdempotencyConflict,
    InvalidOption,
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
    "expires_after": "expires_after",
    "queue_name": "pool",
    "idempotency_key": "Idempotency-Key",
}
"""First word of an error's message → the field or header of the request that it is about."""


class Refused(APIException):
    """An answer with a code. `wait` (seconds) becomes the header Retry-After."""

    def __init__(self, http_status: int, code: str, detail: str, *, wait: float = 0) -> None:
        super().__init__({"detail": detail, "code": code}, code)
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
        case PayloadTooLarge():
            return TooLarge(str(error))
        case StoreError():
            # Its message names hosts and settings: for the log, not for callers.
            return Refused(
                status.HTTP_503_SERVICE_UNAVAILABLE,
                error.code,
                _("Jobs cannot be taken or looked up right now; nothing was changed. Try again later."),
                wait=RETRY_STORE_S,
            )
        case UnknownPool():
            return ValidationError({"pool": [_("No pool of this name takes jobs; leave it out for the task's own.")]})
        case UnknownTenant():
            return ValidationError({"tenant": [_("This tenant is not set up for jobs; ask for a row of it first.")]})
        case UnserialisableArgument() | InvalidOption() | InvalidTask():
            return ValidationError({_field_of(str(error)): [str(error)]})
    return error


def not_found() -> NotFound:
    """The same answer for what does not exist and for what is somebody else's."""
    return NotFound(_("Not found."))


def store_fault(error: Exception) -> DuctorError | None:
    """`error` when it is the store's, so that the view writes it to the log."""
    return error if isinstance(error, StoreError) else None


def shown(name: str) -> str:
    """A name that the caller gave, for an answer: not absurdly long, and text that UTF-8 can hold."""
    text = name.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 60 else f"{text[:57]}..."


def _field_of(message: str) -> str:
    word = message.replace("[", " ").split(" ", 1)[0]
    return FIELD_OF_OPTION.get(word, "non_field_errors")
