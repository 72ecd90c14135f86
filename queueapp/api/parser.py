"""The body of a request: one object of JSON, at most as large as a job may be.

Python's own parser takes more than JSON: NaN, numbers that overflow to infinity, text that no UTF-8 can hold, the same
name twice, and any depth until the interpreter's stack ends. Syntax and names are judged here; values are judged where
their field is known (`serializers`), so that the answer names it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import IO, Any

from django.utils.translation import gettext as _
from rest_framework import status
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from queueapp.api.faults import Refused, TooLarge, shown
from queueapp.codec import MAX_DEPTH
from queueapp.conf import settings

ROOM = 4
"""The body may be so many times as large as a payload: escapes such as `\\u00e9` take more than what they stand for."""
ROOM_BYTES = 64 * 1024
"""And so much for everything that is not arguments."""


class StrictJSONParser(BaseParser):
    """Gives an object, or an error that says what is wrong with the body."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        most = settings.max_payload_bytes * ROOM + ROOM_BYTES
        body = stream.read(most + 1)
        if len(body) > most:
            raise TooLarge(
                _("The body has more than %(most)d bytes. Store what is large and send where.") % {"most": most}
            )
        try:
            data = json.loads(body.decode("utf-8"), object_pairs_hook=_object)
        except UnicodeDecodeError as error:
            raise ParseError(_("The body is not UTF-8, from byte %(at)d on.") % {"at": error.start}) from None
        except RecursionError:
            raise ParseError(
                _("The body nests deeper than %(most)d levels; flatten it.") % {"most": MAX_DEPTH}
            ) from None
        except ValueError as error:
            # Also raised for integers of thousands of digits.
            raise ParseError(_("The body is not JSON: %(error)s.") % {"error": str(error)[:200]}) from None
        if not isinstance(data, dict):
            kinds = {list: _("a list"), str: _("text"), type(None): "null"}
            kind = kinds.get(type(data), _("a number or truth value"))
            raise ParseError(_("The body is %(kind)s; send an object such as {“task”: “…”}.") % {"kind": kind})
        return data


def require_length(request: Request) -> None:
    """Raises Refused (411) for a body whose length is not said: the framework would take it for none and go on."""
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = None
    # Of a length that is not said, the bytes are there under ASGI servers; under WSGI only a header tells of them.
    if length is None or (length == 0 and ("Transfer-Encoding" in request.headers or request._request.read(1))):
        raise Refused(
            status.HTTP_411_LENGTH_REQUIRED,
            "length_required",
            _("Say how long the body is: send Content-Length, not chunks."),
        )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(twice, _times)] = Counter(name for name, _value in pairs).most_common(1)
        raise ParseError(_("The name %(name)s stands twice in one object; leave one.") % {"name": shown(twice)})
    return found
