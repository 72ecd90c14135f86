"""What the steps of a run left, for the arguments of those that follow: from the rows that were read, or the database.

A large output, and the results of a map, are loaded when somebody asks for them. They never change once the step has
completed, so the last list that a map runs over is kept in memory while its pages are handed over.
"""

from __future__ import annotations

from collections.abc import Mapping

from flows import models
from flows.definition import UNDO, Definition, StepDefinition
from flows.inputs import items
from flows.snapshot import Run, StepRun
from flows.values import INPUT, WITHHELD, Absent, Json


class Outputs:
    """The values of one run."""

    def __init__(self, run: Run, steps: Mapping[str, StepRun]) -> None:
        self._run = run
        self._steps = steps
        self._loaded: dict[tuple[str, str], Json] = {}

    def __call__(self, step: str, part: str) -> Json:
        """What a step left, as `values.Lookup`. Raises Absent."""
        if step == INPUT:
            return self._run.input
        row = self._steps.get(step)
        if part == "error":
            return (row.error if row is not None else "") or None
        if row is None or row.state != "completed":
            raise Absent(step)
        if part == "counts":
            return {"total": row.total or 0, "completed": row.completed, "failed": row.failed}
        if part == "output" and row.output is not WITHHELD:
            return row.output
        if (step, part) not in self._loaded:
            self._loaded[step, part] = (
                _results(self._run.id, step) if part == "results" else _output(self._run.id, step)
            )
        return self._loaded[step, part]


def _output(run_id: str, step: str) -> Json:
    return models.StepRun.objects.filter(run_id=run_id, step=step).values_list("output", flat=True).first()


def _results(run_id: str, step: str) -> Json:
    """In the order of the items; null for one that did not complete."""
    rows = models.ItemRun.objects.filter(step_run__run_id=run_id, step_run__step=step).order_by("index")
    return [output if ending == "completed" else None for ending, output in rows.values_list("ending", "output")]


def _completed(run_id: str, step: str) -> list[Json]:
    """In the order of the items, those that completed alone."""
    rows = models.ItemRun.objects.filter(step_run__run_id=run_id, step_run__step=step, ending="completed")
    return list(rows.order_by("index").values_list("output", flat=True))


_last: tuple[tuple[str, Definition, str, int], list[Json]] | None = None


def items_of(run: Run, definition: Definition, step: StepDefinition, attempt: int, outputs: Outputs) -> list[Json]:
    """The list that a map runs over in this try. Raises InvalidValue."""
    global _last
    key = run.id, definition, step.name, attempt
    kept = _last
    if kept is not None and kept[0][0] == run.id and kept[0][1] is definition and kept[0][2:] == key[2:]:
        return kept[1]
    # Undoing runs over what those items returned that completed: the map may have failed by the others.
    undone = step.name.removeprefix(UNDO)
    listed = items(step, outputs) if undone == step.name else _completed(run.id, undone)
    _last = key, listed
    return listed
