"""JSON into dataclasses by their types, every field looked at: missing, unknown, of another type, out of range."""

from __future__ import annotations

import collections.abc
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from queueapp.bench.results.rows import InvalidResults

MOST = 2**53
"""What every reader of JSON keeps exactly."""
Found = TypeVar("Found")


def load(path: Path) -> Any:
    """The JSON of a file. Raises InvalidResults."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except (OSError, ValueError, RecursionError) as error:
        told = f"{path} cannot be read ({error})"
        raise InvalidResults(f"{told}: name a directory that a run of the benchmarks has written.") from error


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def decode(kind: type[Found], value: Any, where: str) -> Found:
    """`value` as a `kind`, a dataclass. `where` names file and place. Raises InvalidResults with field and remedy."""
    found: Found = _dataclass(kind, value, f"{where}: ", "")
    return found


def _dataclass(kind: Any, value: Any, where: str, path: str) -> Any:
    if not isinstance(value, dict):
        raise refused(where, path or kind.__name__.lower(), value, "give an object")
    hints = get_type_hints(kind)
    for name in value:
        if name not in hints:
            raise refused(where, f"{path}{name}", value[name], f"there is no such field; there are {', '.join(hints)}")
    found = {}
    for one in fields(kind):
        if one.name in value:
            found[one.name] = _decode(hints[one.name], value[one.name], where, f"{path}{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise InvalidResults(f"{where}{path}{one.name} is missing: add it, or use the run as it was written.")
    return kind(**found)


def _decode(kind: Any, value: Any, where: str, path: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in parts:
            return None
        return _decode(next(part for part in parts if part is not types.NoneType), value, where, path)
    if origin is Literal:
        if value not in parts:
            raise refused(where, path, value, f"give one of {', '.join(parts)}")
        return value
    if origin is collections.abc.Sequence:
        if not isinstance(value, list):
            raise refused(where, path, value, "give a list")
        return tuple(_decode(parts[0], part, where, f"{path}[{place}]") for place, part in enumerate(value))
    if origin is collections.abc.Mapping:
        if not isinstance(value, dict):
            raise refused(where, path, value, "give an object")
        return {name: _decode(parts[1], part, where, f"{path}.{name[:80]}") for name, part in value.items()}
    if is_dataclass(kind):
        return _dataclass(kind, value, where, f"{path}.")
    if kind is Any:
        return value
    good, remedy = PLAIN[kind]
    if not good(value):
        raise refused(where, path, value, remedy)
    return kind(value)


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


PLAIN: Mapping[type, tuple[Callable[[Any], bool], str]] = {
    str: (lambda value: isinstance(value, str), "give a text"),
    bool: (lambda value: isinstance(value, bool), "give true or false"),
    int: (_is_whole, "give a whole number from 0 on"),
    float: (_is_number, "give a number from 0 on"),
}


def refused(where: str, path: str, value: Any, remedy: str) -> InvalidResults:
    return InvalidResults(f"{where}{path} is {repr(value)[:80]}: {remedy}.")
