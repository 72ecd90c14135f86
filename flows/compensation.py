"""Undoing: what was done is taken back, the last first, one after the other. Pure; part of a tick.

A step that undoes is a step run as any other, under the name `undo:<step>`; that of a map is a map over the items that
completed. One that fails ends the run as failed, with the rest not undone: what comes next in line may lean on it, and
a person has to look. `resume` goes on there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flows.definition import UNDO, StepDefinition
from flows.draft import Draft

Act = Callable[[Draft, StepDefinition], None]


def advance(draft: Draft, *, begin: Act, settle: Act) -> None:
    """The next one starts when the one before it has ended."""
    for name in line(draft):
        step = draft.definition.undoing(name)
        if draft.row(step.name).state == "waiting":
            begin(draft, step)
        else:
            settle(draft, step)
        match draft.row(step.name).state:
            case "completed":
                continue
            case "failed" | "cancelled":
                draft.change_run(cause=step.name)
                draft.finish("failed")
        return
    draft.finish("compensated")


def line(draft: Draft) -> list[str]:
    """What has to be undone, in order: against the order of completion, so never before what was built on it.

    A map that did not get to its end comes first: some of its items completed, and nothing was built on them.
    """
    rows = [draft.row(step.name) for step in draft.definition.steps if step.undo]
    done = [row for row in rows if row.state == "completed" or row.completed]
    return [
        row.step for row in sorted(done, key=lambda row: math.inf if row.place is None else row.place, reverse=True)
    ]


def has_begun(draft: Draft) -> bool:
    """Something was undone or was to be: the way forward is closed."""
    return any(name.startswith(UNDO) for name in draft.snapshot.steps)
