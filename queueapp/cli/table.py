"""Plain tables, prose and JSON for the terminal, as wide as it is; for a file or a pipe, as wide as they are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

LEAST_ROOM = 24
"""Columns that prose has in any case."""


def table(header: Sequence[str], rows: Sequence[Sequence[object]], *, wraps: bool = False) -> str:
    """Aligned columns; numbers to the right. Control characters of foreign text do not reach the terminal.

    `wraps`: the last column is prose, which goes on below itself where a terminal is too narrow for it.
    """
    if not rows:
        return ""
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(header), *texts]) for column in range(len(header))]
    right = [all(isinstance(row[column], (int, float)) for row in rows) for column in range(len(header))]
    width = columns()
    if wraps and width is not None:
        room = max(LEAST_ROOM, width - sum(widths[:-1]) - 2 * len(widths[:-1]))
        texts = [line for text in texts for line in _below_itself(text, room)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(header), *texts]
    )


def _below_itself(texts: Sequence[str], room: int) -> Iterator[list[str]]:
    first, *others = wrap(texts[-1], room, break_on_hyphens=False) or [""]
    yield [*texts[:-1], first]
    for other in others:
        yield [*("" for _ in texts[:-1]), other]


def columns() -> int | None:
    """How wide the terminal is to which standard output goes; None: a file or a pipe, which takes every width."""
    return get_terminal_size().columns if sys.stdout.isatty() else None


def fits(text: str) -> bool:
    """Whether no line of it is broken by the terminal."""
    width = columns()
    return width is None or all(len(line) <= width for line in text.splitlines())


def prose(text: str) -> str:
    """Sentences, broken between words where a terminal would break one within; what is indented stays so."""
    width = columns()
    if width is None:
        return text
    return "\n".join("\n".join(_wrapped(line, width)) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip(" -"))]
    return wrap(line, width, break_on_hyphens=False, subsequent_indent=" " * len(indent))


def pairs(rows: Sequence[tuple[str, object]]) -> str:
    """Names and values below each other."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {printable(value)}".rstrip() for name, value in rows)


def printable(value: object) -> str:
    """One line of text for a value."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    text = str(value)
    return (
        text
        if text.isprintable()
        else "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)
    )


def printable_lines(text: str) -> str:
    """Text of several lines, such as a traceback, each made printable."""
    return "\n".join(printable(line.expandtabs(4)) for line in text.splitlines())


def as_json(value: Any) -> str:
    """Indented JSON; moments in ISO form."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)


def as_json_line(value: Any) -> str:
    """The same on one line."""
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else str(value)
