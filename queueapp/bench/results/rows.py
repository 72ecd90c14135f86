"""Rows of CSV files: each value as text and back, every field looked at. The one way in which tables are written here.

A spreadsheet takes a cell that begins with one of `RISKY` for a formula. What users name (tenants, lanes, errors) may
begin like that, so such text gets an apostrophe in front, which spreadsheets show as text and `original` takes away
again. Numbers are no text: negative ones stay what they are.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from queueapp.errors import DuctorError

Value = str | int | float | None
RISKY = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
"""An apostrophe is one of them so that `original` is exact."""
MOST_CELL = 1_000_000
"""Characters of one field: what is longer is no table of ours."""


class InvalidResults(DuctorError, ValueError):
    """Results of the benchmarks that cannot be written there, read, or put together."""

    code = "invalid_results"


def neutral(text: str) -> str:
    """`text` such that no spreadsheet runs it."""
    return f"'{text}" if text.startswith(RISKY) else text


def original(text: str) -> str:
    """What `neutral` was given."""
    return text.removeprefix("'")


def written(value: Value) -> str:
    """A cell: text neutralised, numbers to the bit, nothing for what is not a number."""
    match value:
        case str():
            return neutral(value)
        case bool():
            return "yes" if value else "no"
        case float():
            return "" if math.isnan(value) else repr(value)
    return "" if value is None else str(value)


def write(file: TextIO, rows: Iterable[Iterable[Value]]) -> None:
    """Adds rows, and hands them to the system."""
    # RFC 4180's end of a line. Before Python 3.13 a carriage return inside a text is quoted only if the end has one.
    csv.writer(file, lineterminator="\r\n").writerows(map(written, row) for row in rows)
    file.flush()


# -- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """What the cells of a column hold."""

    read: Callable[[str], Value]
    """ValueError for what is none."""
    remedy: str


def _whole(text: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,18}", text) is None:
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    if re.fullmatch(r"-?(inf|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]{1,3})?)|", text) is None:
        raise ValueError(text)
    return float(text) if text else math.nan


def _flag(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


TEXT = Kind(original, "give a text")
WHOLE = Kind(_whole, "give a whole number")
NUMBER = Kind(_number, "give a number, or nothing where there is none")
FLAG = Kind(_flag, "give yes or no")
Columns = Mapping[str, Kind]


def read(path: Path, columns: Columns, cells: Iterable[str], *, whole: bool) -> Iterator[tuple[int, dict[str, Value]]]:
    """(line, row by column) of the rows whose `cell` is one of `cells`.

    Rows of other cells are refused where the run is `whole`; in one that was broken off they are what it was writing.
    Raises InvalidResults, which names file, line, field, value and remedy.
    """
    known, names = frozenset(cells), list(columns)
    place = names.index("cell")
    csv.field_size_limit(MOST_CELL)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            if header != names:
                raise InvalidResults(f"{path}, line 1: {_difference(header, names)}.")
            for row in rows:
                cell = original(row[place]) if len(row) > place else ""
                if cell in known:
                    yield rows.line_num, _row(row, columns, f"{path}, line {rows.line_num}")
                elif whole:
                    told = f"{path}, line {rows.line_num}: cell is {cell[:80]!r}, which manifest.json does not have"
                    raise InvalidResults(f"{told}: take the row out, or use the run as it was written.")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidResults(f"{path} cannot be read ({error}): name a directory that a run has written.") from error


def _difference(header: list[str], names: list[str]) -> str:
    for name in names:
        if name not in header:
            return f"there is no column {name!r}: the columns must be {', '.join(names)}"
    for name in header:
        if name not in names:
            return f"there is no such column as {name[:80]!r}, take it out; there are {', '.join(names)}"
    return f"the columns are not in their order, or not once each: they must be {', '.join(names)}"


def _row(row: list[str], columns: Columns, where: str) -> dict[str, Value]:
    if len(row) != len(columns):
        raise InvalidResults(f"{where} has {len(row)} fields: give {len(columns)}, one for each column.")
    found: dict[str, Value] = {}
    for text, (name, kind) in zip(row, columns.items(), strict=True):
        try:
            found[name] = kind.read(text)
        except ValueError:
            raise InvalidResults(f"{where}: {name} is {text[:80]!r}: {kind.remedy}.") from None
    return found
