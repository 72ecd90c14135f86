"""What `--json` wrote, as plots read it. No matplotlib."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queueapp.errors import DuctorError

MOST_BYTES = 64 * 1024 * 1024


class InvalidFigures(DuctorError, ValueError):
    """A file that is no figures of a benchmark."""

    code = "invalid_figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One file."""

    bench: str
    run: Mapping[str, Any]
    figures: Mapping[str, float | None]
    rows: Sequence[Mapping[str, Any]]

    def value(self, name: str) -> float | None:
        return self.figures.get(name)

    def conditions(self, *more: str) -> str:
        """What it was measured with."""
        run, aof = self.run, self.run.get("append_only_file")
        known = [
            *more,
            run.get("server"),
            None if aof is None else f"append-only file {'on' if aof else 'off'}",
            run.get("cpus") and f"{run['cpus']} processors",
            run.get("python") and f"Python {run['python']}",
            run.get("ductor") and f"Ductor {run['ductor']}",
        ]
        return " · ".join(str(part) for part in known if part)


def read(path: Path) -> Figures:
    """Raises InvalidFigures, which says what is wrong with the file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InvalidFigures(f"{path} is larger than {MOST_BYTES:,} bytes: name a file that --json has written.")
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidFigures):
            raise
        raise InvalidFigures(f"{path} cannot be read ({error}): name a file that --json has written.") from error
    parts = {"bench": str, "run": dict, "figures": dict}
    if not isinstance(told, dict) or any(not isinstance(told.get(name), kind) for name, kind in parts.items()):
        raise InvalidFigures(f"{path} has no bench, run and figures: name a file that --json has written.")
    rows = told.get("rows", [])
    if not isinstance(rows, list) or any(not isinstance(row, dict) for row in rows):
        raise InvalidFigures(f"{path}: rows are no list of objects: name a file that --json has written.")
    return Figures(bench=told["bench"], run=told["run"], figures=told["figures"], rows=rows)
