"""What `bench flows` is asked for. Pure: read before the settings have flows at all."""

from __future__ import annotations

from dataclasses import dataclass

PARTS = ("overhead", "crowd", "fan")
ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which parts, and of what size."""

    parts: str = ALL
    rounds: int = 50
    steps: int = 20
    runs: int = 200
    flood: int = 2_000
    slots: int = 16
    items: int = 20_000


def parts_of(text: str) -> list[str]:
    """The parts of `a,b` or `all`. ValueError names the one that does not exist, and those that do."""
    found = list(PARTS) if text == ALL else list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in found:
        if name not in PARTS:
            raise ValueError(f"{name!r} is no part: give some of {', '.join(PARTS)}, or {ALL}")
    return found
