"""Tables of a profile, read with every field looked at: each error names the field, its value and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from queueapp.errors import DuctorError

MOST_MS = 3_600_000
"""An hour."""


class InvalidProfile(DuctorError, ValueError):
    """A profile of the benchmarks that has a field it should not have, or a value that is none."""

    code = "invalid_profile"


class Table:
    """One table of the file. Each read takes its field out; `close` refuses what nobody has read."""

    def __init__(self, source: str, fields: Mapping[str, Any], path: str = "") -> None:
        self._source = source
        self._path = path
        self._fields = dict(fields)
        self._known: list[str] = []

    def table(self, name: str) -> Table:
        """The table of this name; an empty one where there is none."""
        fields = self._take(name, {})
        if not isinstance(fields, dict):
            raise self.refused(name, fields, f"make it a table: [{self._path}{name}]")
        return Table(self._source, fields, f"{self._path}{name}.")

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number between the two, both included."""
        value = self._take(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.refused(name, value, f"give a whole number from {least} to {most}")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number between the two, both included."""
        value = self._take(name, default)
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.refused(name, value, f"give a number from {least:g} to {most:g}")
        return float(value)

    def word(self, name: str, default: str, words: Sequence[str]) -> str:
        """One of `words`."""
        value = self._take(name, default)
        if value not in words:
            raise self.refused(name, value, f"give one of {', '.join(words)}")
        return str(value)

    def shares(self, name: str, default: Mapping[str, int], form: re.Pattern[str], least: int = 0) -> Mapping[str, int]:
        """Name → whole number from `least` to a million; one at least is not 0."""
        value = self._take(name, default)
        if not isinstance(value, Mapping) or not any(value.values()):
            raise self.refused(name, value, "make it a table of names and whole numbers, not all of them 0")
        for key, share in value.items():
            if form.fullmatch(key) is None:
                raise self.refused(f"{name}.{key}", share, f"give it a name of the form {form.pattern}")
            if type(share) is not int or not least <= share <= 1_000_000:
                raise self.refused(f"{name}.{key}", share, f"give a whole number from {least} to 1000000")
        return dict(value)

    def weights(self, name: str, default: Sequence[int], most: int) -> Sequence[int]:
        """One to `most` whole numbers from 0 to a million, not all of them 0."""
        value = self._take(name, list(default))
        good = isinstance(value, list) and all(type(part) is int and 0 <= part <= 1_000_000 for part in value)
        if not good or not any(value) or len(value) > most:
            raise self.refused(name, value, f"give a list of 1 to {most} whole numbers from 0 on, not all of them 0")
        return tuple(value)

    def names(self) -> list[str]:
        """The fields that are left."""
        return list(self._fields)

    def close(self) -> None:
        """Raises for a field that there is not."""
        for name, value in self._fields.items():
            raise self.refused(name, value, f"there is no such field here, leave it out; there are {self._told()}")

    def refused(self, name: str, value: object, remedy: str) -> InvalidProfile:
        return InvalidProfile(f"{self._source}: {self._path}{name} is {repr(value)[:80]}: {remedy}.")

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def _take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._fields.pop(name, default)

    def _told(self) -> str:
        return ", ".join(self._known)
