"""Arguments and results as JSON bytes. Pure; used by the producer, the worker and whoever shows a payload.

Values follow Django's `normalize_json` (a tuple becomes a list, UTF-8 bytes become text). Whatever would change
silently beyond that is refused with the path of the value: keys that are not text, NaN and infinities, integers beyond
64 bits. The store never looks into a payload.

With `typed`, tuples, bytes and the types of `tags` come back as they were. Whether a payload or a result has tags is
marked beside its values (`t` in a payload, `~` before a result) and never told from the values, so that no mapping of a
host can be taken for a tag. Values without any such type are written exactly as without `typed`: a task may take on the
option while its jobs and its idempotency keys live.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from queueapp import tags
from queueapp.errors import ResultTooLarge, UnserialisableArgument

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
TYPED = "declare the task with typed=True"
WHOLE_MAX, FRACTION_MAX = 18, 400
"""Numbers with fewer digits before and behind the point than these are spelled without exponents."""
MAX_DEPTH = 100
"""How deep lists and mappings may nest; a value that contains itself ends here."""

TAGGED, CLOSED = b"~", b"!"
"""Stand before a result that has tags, and before one of a task with `sensitive=True`; no JSON begins with them."""

Arguments = tuple[list[Any], dict[str, Any], dict[str, Any]]


def encode_arguments(
    args: Sequence[object],
    kwargs: Mapping[str, object],
    options: Mapping[str, object] | None = None,
    *,
    typed: bool = False,
) -> bytes:
    """The payload of a job: `{"t": 1, "a": [...], "k": {...}, "o": {...}}`, parts that are empty left out.

    Raises UnserialisableArgument, which names the path of the value and what to pass instead.
    """
    plain = _Plain(typed)
    payload: dict[str, object] = {}
    if args:
        payload["a"] = [plain.value(value, f"args[{index}]", 1) for index, value in enumerate(args)]
    if kwargs:
        named = {
            _text(name, "kwargs"): plain.value(value, f"kwargs[{_short(name)}]", 1) for name, value in kwargs.items()
        }
        payload["k"] = plain.mapping(named)
    if options:
        # Never tagged: whether arguments are must not hang on what else travels with them.
        payload["o"] = {name: _Plain(False).value(value, name, 1) for name, value in options.items()}
    if plain.escaped and not plain.tagged:
        return encode_arguments(args, kwargs, options)
    return _dump({"t": 1, **payload} if plain.tagged else payload)


def decode_arguments(payload: bytes) -> Arguments:
    """`(args, kwargs, options)` of a payload. Raises ValueError for what is none, and never quotes it."""
    try:
        parts = json.loads(payload)
        if not isinstance(parts, dict):
            raise ValueError("The payload is none that Ductor writes: it is no mapping.")
        args, kwargs, options = parts.get("a", []), parts.get("k", {}), parts.get("o", {})
        if "t" in parts:
            args, kwargs = tags.read(args), tags.read(kwargs)
    except RecursionError:
        raise ValueError("The payload nests deeper than any that Ductor writes.") from None
    if not (isinstance(args, list) and isinstance(kwargs, dict) and isinstance(options, dict)):
        raise ValueError("The payload is none that Ductor writes: it has no list of arguments, or no mapping of them.")
    return args, kwargs, options


def encode_result(
    value: object, *, max_bytes: int | None = None, typed: bool = False, closed: bool = False, name: str = "result"
) -> bytes | None:
    """What a task returned, as JSON; None for None. Raises UnserialisableArgument or ResultTooLarge.

    `closed` marks what may never be shown to people. `name` is what errors call the value: `metadata` and `progress`
    are written here, too.
    """
    if value is None:
        return None
    plain = _Plain(typed)
    written = plain.value(value, name, 0)
    if plain.escaped and not plain.tagged:
        written = _Plain(False).value(value, name, 0)
    encoded = TAGGED + _dump(written) if plain.tagged else _dump(written)
    if closed:
        encoded = CLOSED + encoded
    if max_bytes is not None and len(encoded) > max_bytes:
        raise ResultTooLarge(
            f"The {name} has {len(encoded)} bytes as JSON; MAX_RESULT_BYTES allows {max_bytes}. "
            f"Store large data elsewhere and {'return' if name == 'result' else 'keep'} where it is."
        )
    return encoded


def decode_result(encoded: bytes | None) -> Any:
    """The value that `encode_result` was given, in its JSON form but for what `typed` kept."""
    if encoded is None:
        return None
    encoded = encoded.removeprefix(CLOSED)
    if encoded.startswith(TAGGED):
        return tags.read(json.loads(encoded[len(TAGGED) :]))
    return json.loads(encoded)


def fingerprint(task: str, payload: bytes, *, canonical: bool = False) -> str:
    """16 hex characters that stand for a task with its arguments.

    `canonical` makes two payloads equal that differ only in the order of keys or in their options; idempotency keys ask
    for it. It parses the payload, so that jobs without such a key do not pay for it.
    """
    if canonical:
        parts = json.loads(payload)
        arguments = [parts.get("a", []), parts.get("k", {}), *(["t"] if "t" in parts else [])]
        payload = json.dumps(arguments, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return hashlib.blake2b(task.encode() + b"\0" + payload, digest_size=8).hexdigest()


def spelling(value: object) -> str:
    """One text for all values that mean the same, on every machine: text as it is, all else as JSON with sorted keys.

    A tuple is its list, a UUID, a date or a Decimal its text, a moment is in UTC, a whole float is an integer. What has
    no such form raises TypeError.
    """
    meaning = _meaning(value)
    return meaning if isinstance(meaning, str) else json.dumps(meaning, sort_keys=True, ensure_ascii=False)


def _meaning(value: object) -> object:
    match value:
        case None | bool() | str() | int():
            return value
        case float():  # `str` of an enumeration's member would be its name
            return _number(Decimal(float.__repr__(value)))
        case Decimal():
            return _number(Decimal(value))
        case bytes():
            return value.decode(errors="backslashreplace")
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo is not None else value).isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return _meaning(value.total_seconds())
        case UUID():
            return str(value)
        case Mapping():
            return {str(key): _meaning(item) for key, item in value.items()}
        case Sequence():
            return [_meaning(item) for item in value]
    raise TypeError(f"{_kind(value)} has no spelling")


def _number(number: Decimal) -> int | str:
    """1, 1.0 and Decimal("1.00") are equal in Python, and so is what they stand for."""
    if not number.is_finite() or not -FRACTION_MAX < number.adjusted() < WHOLE_MAX:
        return str(number)
    text = f"{number:f}"
    plain = text.rstrip("0").rstrip(".") if "." in text else text
    return plain if "." in plain else int(plain)


def digest(text: str) -> str:
    """22 characters that stand for a text of any length: 128 bits of BLAKE2."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=16).digest())[:22].decode()


def well_formed(text: str) -> str:
    """The text as UTF-8 can hold it: a lone surrogate, as in the name of a file that is not UTF-8, is spelled out."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


class _Plain:
    """Brings values to JSON's own types. Afterwards `tagged` says whether that took tags.

    `escaped` says whether mappings were guarded from being taken for some. Where only that is so, nothing needed it:
    whoever asked writes anew, untyped.
    """

    def __init__(self, typed: bool) -> None:
        self._typed = typed
        self.tagged = self.escaped = False

    def value(self, value: object, path: str, depth: int) -> object:
        """`value` as JSON has it, or UnserialisableArgument with the path at which it cannot be."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _text(value, path)
        if isinstance(value, int):
            if not INTEGER_MIN <= value <= INTEGER_MAX:
                raise _refused(path, f"the integer {_short(value)} does not fit in 64 bits", "pass it as text")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise _refused(path, f"JSON has no {value}", "pass None or text")
            return float(value)
        if self._typed and (tag := self._tag(value, path)) is not None:
            return tag
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise _refused(path, "bytes that are not UTF-8 text", f"pass them base64-encoded, or {TYPED}") from None
        if depth >= MAX_DEPTH:
            raise _refused(path[:200], f"nested deeper than {MAX_DEPTH} levels, or containing itself", "flatten it")
        match value:
            case bytearray() | memoryview():
                pass  # a Sequence, too: would become a list of numbers
            case Mapping():
                plain: dict[str, object] = {}
                for key, item in value.items():
                    if not isinstance(key, str):
                        raise _refused(path, f"the key {_short(key)} is {_kind(key)}, not text", "use text as keys")
                    # A path is built for every value below: with a long key whole, a small payload would take minutes.
                    plain[_text(key, path)] = self.value(item, f"{path}[{_short(key)}]", depth + 1)
                return self.mapping(plain)
            case Sequence():
                items = [self.value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
                if self._typed and isinstance(value, tuple):
                    self.tagged = True
                    return {tags.TUPLE: items}
                return items
        raise _refused(path, f"{_kind(value)} cannot be written as JSON", _remedy(value))

    def mapping(self, plain: dict[str, object]) -> dict[str, object]:
        """A mapping of plain values; escaped where a reader of tags could take it for one."""
        if not self._typed:
            return plain
        escaped = tags.escape(plain)
        self.escaped |= escaped is not plain
        return escaped

    def _tag(self, value: object, path: str) -> dict[str, Any] | None:
        try:
            tag = tags.write(value)
        except ValueError as error:
            raise _refused(path, f"{_kind(value)} cannot be written: {error}", "pass it in UTC") from None
        self.tagged |= tag is not None
        return tag


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _refused(path, "text with a lone surrogate, which UTF-8 cannot hold", "clean the text first") from None
    return str.__str__(value)


def _refused(path: str, fault: str, remedy: str) -> UnserialisableArgument:
    return UnserialisableArgument(f"{path}: {fault}; {remedy}.")


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _remedy(value: object) -> str:
    """What to pass instead, told by what the value offers, so that no library needs to be imported here."""
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return "pass its primary key and load it in the task"
    if isinstance(value, enum.Enum):
        return "pass its value"
    if hasattr(value, "isoformat"):
        return f"pass value.isoformat(), or {TYPED}"
    if isinstance(value, (set, frozenset)):
        return "pass a sorted list"
    if isinstance(value, (bytearray, memoryview)):
        return "pass bytes(value)"
    if hasattr(value, "total_seconds"):
        return f"pass value.total_seconds(), or {TYPED}"
    if hasattr(value, "hex") or hasattr(value, "as_tuple"):
        return f"pass str(value), or {TYPED}"
    if type(value).__name__ == "__proxy__":  # a text of Django's that is still to be translated
        return "pass str(value)"
    return "pass text, numbers, lists and mappings"
