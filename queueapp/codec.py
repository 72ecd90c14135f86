"""Arguments and results as JSON bytes. Pure; used by the producer, the worker and whoever shows a payload.

Values follow Django's `normalize_json` (a tuple becomes a list, UTF-8 bytes become text). Whatever would change
silently beyond that is refused with the path of the value: keys that are not text, NaN and infinities, integers beyond
64 bits. The store never looks into a payload.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from queueapp.errors import ResultTooLarge, UnserialisableArgument

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
MAX_DEPTH = 100
"""How deep lists and mappings may nest; a value that contains itself ends here."""

Arguments = tuple[list[Any], dict[str, Any], dict[str, Any]]


def encode_arguments(
    args: Sequence[object], kwargs: Mapping[str, object], options: Mapping[str, object] | None = None
) -> bytes:
    """The payload of a job: `{"a": [...], "k": {...}, "o": {...}}`, parts that are empty left out.

    Raises UnserialisableArgument, which names the path of the value and what to pass instead.
    """
    payload: dict[str, object] = {}
    if args:
        payload["a"] = [_plain(value, f"args[{index}]", 1) for index, value in enumerate(args)]
    if kwargs:
        payload["k"] = {
            _text(name, "kwargs"): _plain(value, f"kwargs[{_short(name)}]", 1) for name, value in kwargs.items()
        }
    if options:
        payload["o"] = {name: _plain(value, f"options[{name}]", 1) for name, value in options.items()}
    return _dump(payload)


def decode_arguments(payload: bytes) -> Arguments:
    """`(args, kwargs, options)` of a payload."""
    parts = json.loads(payload)
    return parts.get("a", []), parts.get("k", {}), parts.get("o", {})


def encode_result(value: object, *, max_bytes: int | None = None) -> bytes | None:
    """What a task returned, as JSON; None for None. Raises UnserialisableArgument or ResultTooLarge."""
    if value is None:
        return None
    encoded = _dump(_plain(value, "result", 0))
    if max_bytes is not None and len(encoded) > max_bytes:
        raise ResultTooLarge(
            f"The result has {len(encoded)} bytes as JSON; MAX_RESULT_BYTES allows {max_bytes}. "
            "Store large results elsewhere and return where they are."
        )
    return encoded


def decode_result(encoded: bytes | None) -> Any:
    """The value that `encode_result` was given, in its JSON form."""
    return None if encoded is None else json.loads(encoded)


def fingerprint(task: str, payload: bytes, *, canonical: bool = False) -> str:
    """16 hex characters that stand for a task with its arguments.

    `canonical` makes two payloads equal that differ only in the order of keys or in their options; idempotency keys ask
    for it. It parses the payload, so that jobs without such a key do not pay for it.
    """
    if canonical:
        args, kwargs, _ = decode_arguments(payload)
        payload = json.dumps([args, kwargs], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return hashlib.blake2b(task.encode() + b"\0" + payload, digest_size=8).hexdigest()


def digest(text: str) -> str:
    """22 characters that stand for a text of any length: 128 bits of BLAKE2."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=16).digest())[:22].decode()


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _plain(value: object, path: str, depth: int) -> object:
    """`value` in JSON's own types, or UnserialisableArgument with the path at which it cannot be."""
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
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _refused(path, "bytes that are not UTF-8 text", "pass them base64-encoded") from None
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
                plain[_text(key, path)] = _plain(item, f"{path}[{_short(key)}]", depth + 1)
            return plain
        case Sequence():
            return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise _refused(path, f"{_kind(value)} cannot be written as JSON", _remedy(value))


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
    if hasattr(value, "isoformat"):
        return "pass value.isoformat()"
    if isinstance(value, (set, frozenset)):
        return "pass a sorted list"
    if hasattr(value, "hex") or hasattr(value, "as_tuple"):
        return "pass str(value)"
    return "pass text, numbers, lists and mappings"
