"""How values that JSON has no word for are written under `typed=True`: `{"$uuid": "8f0c..."}`. Pure; the codec's.

One mapping with one key stands for one value. A host's own mapping whose only key begins with `$` gets one `$` more, so
that reading is exact. An instance of a subclass is written as the type that it derives from: a named tuple comes back
as a tuple. A moment keeps its offset, and the name of its zone where that is a ZoneInfo; other zones become an offset.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, time, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

MARK = "$"
TUPLE = "$tuple"


def write(value: object) -> dict[str, Any] | None:
    """The tagged form of a value; None when it needs none (or is a tuple, whose items the codec writes first).

    Raises ValueError for a moment that no text can say.
    """
    for kind, tag, writer in _WRITERS:
        if isinstance(value, kind):
            return {tag: writer(value)}
    return None


def escape(value: dict[str, Any]) -> dict[str, Any]:
    """A host's mapping, so written that `read` does not take it for a tag."""
    if len(value) == 1:
        [(key, item)] = value.items()
        if key.startswith(MARK):
            return {MARK + key: item}
    return value


def read(value: Any) -> Any:
    """What tagged JSON stands for. Raises ValueError for a tag that is none."""
    if isinstance(value, list):
        return [read(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {name: read(item) for name, item in value.items()}
    if len(plain) != 1:
        return plain
    [(key, item)] = plain.items()
    if key.startswith(MARK * 2):
        return {key[1:]: item}
    if not key.startswith(MARK):
        return plain
    reader = _READERS.get(key)
    if reader is None:
        raise ValueError(f"{key} is no tag of this release of Ductor: a newer one has written it.")
    try:
        return reader(item)
    except Exception as error:
        # Without the library's words: they quote the value.
        raise ValueError(f"{key} has a value that cannot be read ({type(error).__name__}).") from None


def readable(value: Any) -> Any:
    """The value in JSON's own types, for people: what a tag stood for becomes text, a tuple a list."""
    if isinstance(value, dict):
        return {name: readable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [readable(item) for item in value]
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        return f"base64:{base64.b64encode(value).decode()}"
    if isinstance(value, (datetime, time)):
        return _moment(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (UUID, Decimal, timedelta)):
        return str(value)
    return value


def like(model: object, text: str) -> Any:
    """What `readable` made of a value of the type that `model` has, read back; text where JSON has a word for its type.

    Raises ValueError for text that is none of that type.
    """
    for kind, reader in _LIKE:
        if isinstance(model, kind):
            try:
                return reader(text)
            except Exception as error:  # Decimal's own is no ValueError
                raise ValueError(f"it is no {kind.__name__}") from error
    return text


def _read_bytes(text: str) -> bytes:
    head, mark, rest = text.partition("base64:")
    return base64.b64decode(rest, validate=True) if mark and not head else text.encode()


def _read_timedelta(text: str) -> timedelta:
    match = _TIMEDELTA.fullmatch(text)
    if match is None:
        raise ValueError("such as 1 day, 2:00:00")
    days, hours, minutes, seconds = match.groups()
    return timedelta(days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=float(seconds))


_TIMEDELTA = re.compile(r"(?:(-?\d+) days?, )?(\d{1,2}):(\d{2}):(\d{2}(?:\.\d{1,6})?)")


def _moment(value: datetime | time) -> str:
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    if value.tzinfo is not None and value.utcoffset() is None and zone is None:
        raise ValueError(f"{type(value.tzinfo).__qualname__} has no offset for it")
    return value.isoformat() + (f"[{zone}]" if zone else "")


def _read_datetime(text: str) -> datetime:
    stamp, bracket, key = text.rstrip("]").partition("[")
    moment = datetime.fromisoformat(stamp)
    zone = _zone(key) if bracket else None
    if zone is None:
        return moment
    for fold in (0, 1):  # which of the two hours before and after a change of the clocks it was
        local = moment.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == moment.utcoffset():
            return local
    return moment.astimezone(zone)  # the rules of the zone have changed since: the moment stands, not the hands


def _read_time(text: str) -> time:
    stamp, bracket, key = text.rstrip("]").partition("[")
    return time.fromisoformat(stamp).replace(tzinfo=ZoneInfo(key)) if bracket else time.fromisoformat(stamp)


def _zone(key: str) -> tzinfo | None:
    # Where the zone is not known here, the offset still says which moment is meant.
    with suppress(Exception):
        return ZoneInfo(key)
    return None


_WRITERS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (bytes, "$bytes", lambda value: base64.b64encode(value).decode()),
    (UUID, "$uuid", str),
    (datetime, "$datetime", _moment),  # before date, whose subclass it is
    (date, "$date", date.isoformat),
    (time, "$time", _moment),
    (timedelta, "$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (Decimal, "$decimal", str),
)
_READERS: dict[str, Callable[[Any], Any]] = {
    TUPLE: tuple,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$uuid": UUID,
    "$datetime": _read_datetime,
    "$date": date.fromisoformat,
    "$time": _read_time,
    "$timedelta": lambda parts: timedelta(*parts),
    "$decimal": Decimal,
}
_LIKE: tuple[tuple[type, Callable[[str], Any]], ...] = (
    (bytes, _read_bytes),
    (UUID, UUID),
    (datetime, _read_datetime),  # before date, whose subclass it is
    (date, date.fromisoformat),
    (time, _read_time),
    (timedelta, _read_timedelta),
    (Decimal, Decimal),
)
"""The inverse of `readable`, by type."""
