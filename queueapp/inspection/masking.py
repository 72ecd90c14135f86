"""What may be shown of arguments and results: values whose names are in `MASK` never are."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from queueapp.conf import settings
from queueapp.errors import UnknownTask
from queueapp.producer.task import find

HIDDEN = "********"


def masked(value: Any) -> Any:
    """The JSON value with every member hidden whose name contains a word of `MASK`, at any depth."""
    if isinstance(value, Mapping):
        return {name: HIDDEN if is_secret(name) else masked(item) for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return value


def masked_args(task: str, args: Sequence[Any]) -> list[Any]:
    """Positional arguments, hidden where the task's own parameter of that place has such a name."""
    names = _parameters(task)
    return [
        HIDDEN if place < len(names) and is_secret(names[place]) else masked(value) for place, value in enumerate(args)
    ]


def is_secret(name: str) -> bool:
    """Whether values of this name are hidden."""
    lowered = name.lower()
    return any(word.lower() in lowered for word in settings.mask)


def _parameters(name: str) -> list[str]:
    try:
        task = find(name)
    except UnknownTask:
        return []
    parameters = list(inspect.signature(task.func).parameters)
    return parameters[1:] if task.takes_context else parameters
