"""What every benchmark shares: who measured (the run's identity), figures as JSON, progress on the terminal."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import django
import redis

Figure = float | int | None
"""A figure; None where the part that gives it was not run."""


@dataclass(slots=True, kw_only=True)
class Report:
    """What a benchmark found. `missed` holds one plain sentence per promise that was not kept."""

    bench: str
    run: Mapping[str, object]
    figures: dict[str, Figure] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """`{"bench", "run", "figures"}` as JSON; what is no finite number becomes null."""
        figures = {name: _finite(value) for name, value in self.figures.items()}
        text = json.dumps({"bench": self.bench, "run": dict(self.run), "figures": figures}, indent=2)
        path.write_text(text + "\n")


def _finite(value: Figure) -> Figure:
    if isinstance(value, float):
        return round(value, 4) if math.isfinite(value) else None
    return value


def identity(client: redis.Redis, **more: object) -> dict[str, object]:
    """Where, when and with what something was measured."""
    info: Any = client.info()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["manage.py", *sys.argv[1:]]),
        "ductor": _version("django-ductor"),
        "revision": _revision(),
        "python": platform.python_version(),
        "django": django.get_version(),
        "redis_py": _version("redis"),
        "hiredis": _version("hiredis"),
        "server": f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}",
        "append_only_file": bool(info.get("aof_enabled")),
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        **more,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> str | None:
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
        return answer.stdout.strip() or None
    return None


class Progress:
    """One line that moves on a terminal; elsewhere a new line every few seconds."""

    def __init__(self, out: TextIO, every_s: float = 5.0) -> None:
        self._out = out
        self._every_s = every_s
        self._told = time.monotonic()
        self._moving = out.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        """The state now. May be called as often as one likes."""
        if self._moving:
            self._out.write("\r" + text.ljust(self._width))
            self._out.flush()
            self._width = len(text)
        elif time.monotonic() - self._told >= self._every_s:
            self._told = time.monotonic()
            self._out.write(text + "\n")
            self._out.flush()

    def clear(self) -> None:
        """Takes the moving line away."""
        if self._moving and self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()
            self._width = 0

    def say(self, text: str = "") -> None:
        """A line that stays."""
        self.clear()
        self._out.write(text + "\n")
        self._out.flush()
        self._told = time.monotonic()
