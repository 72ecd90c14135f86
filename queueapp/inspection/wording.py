"""How sentences about jobs spell numbers, moments and spans. Pure; in English, as logs and notes are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

UNITS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def ordinal(number: int) -> str:
    """`1st`, `12th`, `1,003rd`."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def lasting(span_ms: float) -> str:
    """A span in the two largest units that matter: `80 ms`, `3.2 s`, `2 min 5 s`, `3 d 4 h`."""
    if span_ms < 1_000:
        return f"{max(0, span_ms):.0f} ms"
    if span_ms < 60_000:
        return f"{span_ms / 1_000:.1f} s"
    seconds = round(span_ms / 1_000)
    size, large, unit, small = next(each for each in UNITS if seconds >= each[0])
    rest = seconds % size // unit
    return f"{seconds // size} {large}" + (f" {rest} {small}" if rest else "")


def moment_words(at_ms: int) -> str:
    """`2026-11-29 18:54:12 UTC`: a sentence may be read in any time zone."""
    try:
        return datetime.fromtimestamp(at_ms // 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):  # a moment that nobody here wrote
        return "a moment that no calendar has"


def ahead_words(at_ms: int, now_ms: int) -> str:
    """`in 3.2 s (2026-11-29 18:54:12 UTC)`, `now`, or for what has passed `3.2 s ago (…)`."""
    if at_ms == now_ms:
        return "now"
    if at_ms > now_ms:
        return f"in {lasting(at_ms - now_ms)} ({moment_words(at_ms)})"
    return ago_words(at_ms, now_ms)


def ago_words(at_ms: int, now_ms: int) -> str:
    """`3.2 s ago (2026-11-29 18:54:09 UTC)`."""
    return f"{lasting(now_ms - at_ms)} ago ({moment_words(at_ms)})"


def listed(words: list[Any], most: int, total: int | None = None) -> str:
    """`a, b and 3 more`."""
    shown, count = words[:most], len(words) if total is None else max(total, len(words))
    text = ", ".join(str(word) for word in shown)
    return f"{text} and {count - len(shown):,} more" if count > len(shown) and shown else text
