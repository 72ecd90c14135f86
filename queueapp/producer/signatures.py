"""Whether arguments fit the function of a task, asked of those that come from outside of the code: over REST, from the
row of a schedule, from who corrects a dead letter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueapp.producer.task import DuctorTask


@lru_cache(maxsize=1_000)
def signature(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a function."""
    return inspect.signature(function)


def misfit(task: DuctorTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Why the task's function does not take these, in Python's words; "" when it does."""
    # A task that takes its context gets it first, from the worker.
    context = (None,) if task.takes_context else ()
    try:
        signature(task.func).bind(*context, *args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""
