"""`manifest.json`: who measured what with what, complete enough to repeat it."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from queueapp.bench.intervals import CONFIDENCE
from queueapp.bench.profiles import Profile
from queueapp.bench.results.cells import Setting, State

NAME = "manifest.json"
FORMAT = 1
IDENTITY = (
    "at",
    "command",
    "ductor",
    "revision",
    "python",
    "django",
    "redis_py",
    "hiredis",
    "server",
    "append_only_file",
    "cpus",
    "processor",
    "machine",
    "platform",
)
"""What `harness.identity` says of every run; all else in it are options of the command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One run of the benchmarks, on one machine. Several are in what was merged."""

    id: str
    """Stands in every row. Unique, so that rows can be told apart whatever they are put beside."""
    bench: str
    identity: Mapping[str, Any]
    options: Mapping[str, Any]
    profile: Mapping[str, Any] | None = None
    """All that the profile says, with what the options have instead."""


def made(bench: str, identity: Mapping[str, object], profile: Profile | None) -> Made:
    """A new run."""
    known = _plain(identity)
    at = str(known.get("at") or datetime.now(UTC).isoformat(timespec="seconds"))
    moment = at[:19].replace("-", "").replace(":", "").replace("T", "-")
    return Made(
        id=f"{bench}-{moment}-{secrets.token_hex(3)}",
        bench=bench,
        identity={name: known.get(name) for name in IDENTITY},
        options={name: value for name, value in known.items() if name not in IDENTITY},
        profile=None if profile is None else _plain(profile),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A cell in the manifest."""

    run: str
    state: State
    setting: Setting


@dataclass(slots=True, kw_only=True)
class Manifest:
    """All of it. It is written anew after each cell: a run that is broken off keeps what it had."""

    bench: str
    runs: Sequence[Made]
    cells: list[Listed] = field(default_factory=list)
    finished: bool = False

    def write(self, directory: Path) -> None:
        """Replaces the file as a whole: whoever reads it sees the old one or the new one."""
        told = {
            "ductor_results": FORMAT,
            "bench": self.bench,
            "finished": self.finished,
            "confidence": CONFIDENCE,
            "warm_up_jobs": 0,
            "runs": [asdict(run) for run in self.runs],
            "cells": [
                {"name": cell.setting.name, "run": cell.run, "state": cell.state, "setting": _plain(cell.setting)}
                for cell in self.cells
            ],
        }
        fresh = directory / f"{NAME}.new"
        fresh.write_text(json.dumps(told, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(fresh, directory / NAME)


def _plain(value: Any) -> Any:
    """`value` as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    match value:
        case Mapping():
            return {str(name): _plain(part) for name, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(part) for part in value]
        case str() | int() | float() | None:
            return value
    return str(value)
