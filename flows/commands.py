"""Commands as rows: written with the change that they follow from, read by whoever carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from flows import models, statements
from flows.snapshot import Command

_KINDS: dict[str, type[Command]] = {kind.__name__: kind for kind in get_args(Command)}


def stored(run_id: str, commands: Sequence[Command], now_ms: int) -> list[tuple[int, Command]]:
    """Writes them, in their order; each with the id of its row."""
    if not commands:
        return []
    ids = statements.insert(
        models.FlowCommand,
        [{"run": run_id, "command": _spelt(command), "made_ms": now_ms} for command in commands],
    )
    if not ids:  # a database that does not tell the ids of rows that it takes in bulk
        return left(run_id)
    return list(zip(ids, commands, strict=True))


def left(run_id: str) -> list[tuple[int, Command]]:
    """Those of a run that have not been carried out, as far as their rows say, the first ones first."""
    rows = models.FlowCommand.objects.filter(run_id=run_id).order_by("id").values_list("id", "command")
    return [(row_id, _read(plain)) for row_id, plain in rows]


def done(row_ids: Sequence[int]) -> None:
    """These have been carried out."""
    statements.delete(models.FlowCommand, row_ids)


def _spelt(command: Command) -> dict[str, Any]:
    return {"do": type(command).__name__, **asdict(command)}


def _read(plain: dict[str, Any]) -> Command:
    return _KINDS[plain["do"]](**{name: value for name, value in plain.items() if name != "do"})
