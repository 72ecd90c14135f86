"""What may be shown of arguments and results: values whose names are in `MASK` never are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
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
    """Positional arguments, hidden where the task's own parameter of that place has such a name.

    Where nobody knows the name of a place (the task is gone, or takes fewer), what stands there is hidden, too.
    """
    names = _parameters(task)
    return [HIDDEN if (name := next(names, None)) is None or is_secret(name) else masked(value) for value in args]


def is_secret(name: str) -> bool:
    """Whether values of this name are hidden; `X-Api-Key` is an `api_key`."""
    plain = _plain(name)
    return any(_plain(word) in plain for word in settings.mask)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _parameters(name: str) -> Iterator[str]:
    """The names of the places of the task's arguments; those of `*rest` are called `rest`, all of them."""
    try:
        task = find(name)
    except UnknownTask:
        return
    parameters = iter(inspect.signature(task.func).parameters.values())
    if task.takes_context:
        next(parameters, None)
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from repeat(parameter.name)
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            yield parameter.name
