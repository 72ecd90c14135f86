"""How the tries of steps and items ended: written beside their rows, once for each try, whoever tells.

No lock of the run is asked for: the end of a body is recorded whether or not anybody is there to act on it. The first
to tell a try's end is believed.
"""

from __future__ import annotations

from typing import Any

from django.db import connections

from flows import models, statements
from flows.rows import size_of
from flows.snapshot import Ending
from flows.values import Json
from queueapp.codec import well_formed
from queueapp.conf import settings
from queueapp.moments import now_ms

ERROR_CHARACTERS = 16_000


def write(
    run_id: str, step: str, attempt: int, how: Ending, *, index: int = -1, output: Json = None, error: str = ""
) -> bool:
    """False when this try is not the current one, or its end is known."""
    # A text of whatever a body raised, as databases take it: PostgreSQL has no zeros, UTF-8 no lone surrogates.
    error = well_formed(error.replace("\0", ""))[-ERROR_CHARACTERS:]
    if index >= 0:
        ended = {"state": models.ItemRun.State.ENDED, "ending": how, "output": output, "error": error}
        steps = statements.select(models.StepRun, ("id",), {"run_id": run_id, "step": step})
        # Compared in the row that is written, not in one that a join found before: two who tell at once wait there.
        return any(statements.update(models.ItemRun, ended, _issued(row[0], index, attempt)) for row in steps)
    told = {"report_attempt": attempt, "report_ending": how, "report_error": error, "report_ms": now_ms()}
    if how == "completed":
        told |= {"output": output, "output_bytes": size_of(output)}
    current = {"run_id": run_id, "step": step, "attempt": attempt}
    return bool(statements.update(models.StepRun, told, current, unless={"report_attempt": attempt}))


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
