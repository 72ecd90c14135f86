"""Cursors as clients see them: sealed. Called by the lists of jobs and of dead letters.

A place in a list may be that of the last job that was looked at, or a number of jobs, of other tenants too: nobody
should read it, or make one up. What is sealed with SECRET_KEY is opened with it or with one of SECRET_KEY_FALLBACKS.
"""

from __future__ import annotations

import base64
import hmac

from django.conf import settings
from django.utils.crypto import salted_hmac

from queueapp.api import faults

TAG_BYTES = 12
SALT = "queueapp.api.cursors"


def sealed(place: str) -> str:
    """The cursor that stands for a place."""
    text = place.encode()
    tag = _tag(text, settings.SECRET_KEY)
    return base64.urlsafe_b64encode(tag + _mixed(text, tag, settings.SECRET_KEY)).decode().rstrip("=")


def opened(cursor: str) -> str:
    """The place that a cursor stands for. 400 for one that no page gave."""
    try:
        whole = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raise faults.wrong_cursor() from None
    tag, mixed = whole[:TAG_BYTES], whole[TAG_BYTES:]
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        text = _mixed(mixed, tag, secret)
        if hmac.compare_digest(_tag(text, secret), tag):
            return text.decode()
    raise faults.wrong_cursor()


def _tag(text: bytes, secret: str | bytes) -> bytes:
    return salted_hmac(f"{SALT}.tag", text, secret, algorithm="sha256").digest()[:TAG_BYTES]


def _mixed(text: bytes, tag: bytes, secret: str | bytes) -> bytes:
    """The text mixed with a stream that belongs to its tag; mixed once more, it is the text."""
    stream = bytearray()
    for number in range(0, len(text), 32):
        stream += salted_hmac(f"{SALT}.stream", tag + number.to_bytes(4, "big"), secret, algorithm="sha256").digest()
    return bytes(one ^ other for one, other in zip(text, stream, strict=False))
