"""How the tries of steps and items ended: written beside their rows, once for each try, whoever tells.

`write` asks for no lock of the run: the end of a body is recorded whether or not anybody is there to act on it. The
first to tell a try's end is believed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from flows import models, statements
from flows.snapshot import Ending
from flows.values import Json
from queueapp.codec import well_formed
from queueapp.conf import settings
from queueapp.moments import now_ms

ERROR_CHARACTERS = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How one try of a step or an item ended."""

    run_id: str
    step: str
    attempt: int
    ending: Ending
    index: int = -1
    output: Json = None
    output_bytes: int = field(init=False)
    """As JSON."""
    error: str = ""
    """As databases take it, whatever a body raised: PostgreSQL has no zeros, UTF-8 no lone surrogates."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_bytes", size_of(self.output))
        object.__setattr__(self, "error", well_formed(self.error.replace("\0", ""))[-ERROR_CHARACTERS:])

    def write(self, row_id: int, changes: Mapping[str, Any]) -> bool:
        """Of a step, with other changes of its row. False, and nothing is written: see `write`."""
        where = {"id": row_id, "attempt": self.attempt}
        return bool(statements.update(models.StepRun, {**changes, **_columns(self)}, where, _untold(self)))


def write(end: End) -> bool:
    """False when this try is not the current one, or its end is known."""
    if end.index >= 0:
        ended = {"state": models.ItemRun.State.ENDED, "ending": end.ending, "output": end.output, "error": end.error}
        steps = statements.select(models.StepRun, ("id",), {"run_id": end.run_id, "step": end.step})
        # Compared in the row that is written, not in one that a join found before: two who tell at once wait there.
        return any(statements.update(models.ItemRun, ended, _issued(row[0], end.index, end.attempt)) for row in steps)
    current = {"run_id": end.run_id, "step": end.step, "attempt": end.attempt}
    return bool(statements.update(models.StepRun, _columns(end), current, _untold(end)))


def hold(run_id: str, step: str, attempt: int, index: int = -1) -> bool:
    """See `is_wanted`; until this transaction ends nobody calls the step off. Where rows cannot be locked whoever wrote
    before in it has the database to itself."""
    if connections[settings.database].features.has_select_for_update:
        list(models.StepRun.objects.select_for_update().filter(run_id=run_id, step=step).values_list("pk"))
    return is_wanted(run_id, step, attempt, index)


def is_wanted(run_id: str, step: str, attempt: int, index: int = -1) -> bool:
    """Whether a body of this try is still to run: nobody has told its end, and neither step nor run was called off."""
    if index >= 0:
        steps = statements.select(models.StepRun, ("id",), {"run_id": run_id, "step": step, "state": "running"})
        return any(statements.select(models.ItemRun, ("id",), _issued(row[0], index, attempt)) for row in steps)
    current = {"run_id": run_id, "step": step, "state": "running", "attempt": attempt}
    return bool(statements.select(models.StepRun, ("id",), current, unless={"report_attempt": attempt}))


def _issued(step_id: int, index: int, attempt: int) -> dict[str, Any]:
    """The row of an item while this try of it is with the queue."""
    return {"step_run_id": step_id, "index": index, "attempt": attempt, "state": models.ItemRun.State.ISSUED}


def _columns(end: End) -> dict[str, Any]:
    """What is kept of it beside the row of its step."""
    told: dict[str, Any] = {"report_attempt": end.attempt, "report_ending": end.ending}
    told |= {"report_error": end.error, "report_ms": now_ms()}
    if end.ending == "completed":
        told |= {"output": end.output, "output_bytes": end.output_bytes}
    return told


def _untold(end: End) -> dict[str, Any]:
    """What rows have in which this end was told."""
    return {"report_attempt": end.attempt}


def size_of(output: Any) -> int:
    """In bytes of JSON."""
    return 0 if output is None else len(json.dumps(output))
