"""Plain tables, and JSON, for the terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Aligned columns; numbers to the right. Control characters of foreign text do not reach the terminal."""
    if not rows:
        return ""
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in [list(header), *texts]) for column in range(len(header))]
    right = [all(isinstance(row[column], (int, float)) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in [list(header), *texts]
    )


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
