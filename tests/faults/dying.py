"""An app that processes under test have: they die at a point of a run, once, and note what was recorded.

FLOW_DIES_AT names the point; of all the processes that come by, the first one that makes the file `died` in FLOW_NOTES
dies of SIGKILL, there. Nothing of it is in the product: the points are functions, surrounded here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.apps import AppConfig

POINTS = {
    # name: (where, function, after it rather than before)
    "before the body": ("flows.reports", "is_wanted", True),
    "before the report": ("flows.runtime", "report_and_advance", False),
    "before the commit of a report": ("flows.runtime", "_written", True),
    "after the commit, before the relay": ("flows.dispatch", "carry_out", False),
    "after the relay": ("flows.dispatch", "carry_out", True),
    "between two commands": ("flows.dispatch", "Carrier.do", True),
    "before a hand-over": ("flows.dispatch", "hand_over", False),
    "after a hand-over": ("flows.dispatch", "hand_over", True),
    "after items were marked": ("flows.dispatch", "Carrier._marked", True),
    "after items were listed": ("flows.dispatch", "Carrier._list", True),
    "before done commands leave": ("flows.commands", "done", False),
    "before a sub-run": ("flows.subflows", "SubFlows.begin", False),
    "before a sub-run tells": ("flows.subflows", "SubFlows.finished", False),
    "after a sub-run told": ("flows.subflows", "SubFlows.finished", True),
    "in a wake-up": ("flows.runtime", "look", False),
    "after a wake-up": ("flows.runtime", "look", True),
}
SWEEP = {
    "before the sweep wakes": ("flows.sweep", "wake", False),
    "after the sweep woke": ("flows.sweep", "wake", True),
}
"""Of the scheduler."""


def die() -> None:
    try:
        os.close(os.open(Path(os.environ["FLOW_NOTES"], "died"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def surround(where: str, name: str, surrounding: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    module: Any = __import__(where, fromlist=["*"])
    *owner, function = name.split(".")
    holder = getattr(module, owner[0]) if owner else module
    setattr(holder, function, surrounding(getattr(holder, function)))


def dying(after: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def surrounding(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if not after:
                die()
            value = function(*args, **kwargs)
            if after:
                die()
            return value

        return called

    return surrounding


def noting(completed: Callable[..., None]) -> Callable[..., None]:
    """What is known to be recorded: a body of that key has no business to begin any more."""

    def called(wrapper: object, facts: Any, value: object, *more: object) -> None:
        from flows.inputs import step_key
        from tests.faults.flow_jobs import note

        completed(wrapper, facts, value, *more)
        run_id, step, _, index = facts
        note("recorded", step_key(run_id, step, None if index < 0 else index))

    return called


class DyingConfig(AppConfig):
    name = "tests.faults.dying"
    label = "dying"

    def ready(self) -> None:
        surround("flows.steps", "StepWrapper._completed", noting)
        point = os.environ.get("FLOW_DIES_AT")
        if point:
            where, name, after = (POINTS | SWEEP)[point]
            surround(where, name, dying(after))
