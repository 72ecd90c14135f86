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
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    """One for each cell of an experiment that has several."""
    missed: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """`{"bench", "run", "figures"}` and, if there are any, `"rows"` as JSON; no finite number becomes null."""
        written = {"bench": self.bench, "run": dict(self.run), "figures": _finite(self.figures)}
        if self.rows:
            written["rows"] = _finite(self.rows)
        path.write_text(json.dumps(written, indent=2) + "\n")


def _finite(value: Any) -> Any:
    """`value` for JSON: every number in it rounded, or None when it is not finite."""
    match value:
        case float():
            return round(value, 4) if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(part) for name, part in value.items()}
        case list():
            return [_finite(part) for part in value]
    return value


def identity(client: redis.Redis | None, **more: object) -> dict[str, object]:
    """Where, when and with what something was measured; without a `client`, on no server."""
    info: Any = client.info() if client is not None else {}
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["manage.py", *sys.argv[1:]]),
        "ductor": _version("django-ductor"),
        "revision": _revision(),
        "python": platform.python_version(),
        "django": django.get_version(),
        "redis_py": _version("redis"),
        "hiredis": _version("hiredis"),
        "server": _server(info) if info else None,
        "append_only_file": bool(info.get("aof_enabled")) if info else None,
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "machine": platform.machine(),
        "platform": platform.platform(),
        **more,
    }


def _server(info: Mapping[str, Any]) -> str:
    return f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str | None:
    """The processor's name, where Linux tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or None


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
