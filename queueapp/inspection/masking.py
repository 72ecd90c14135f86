"""What may be shown of a job's contents: nothing whose name is in `MASK`, nothing that its task calls sensitive.

Every skin shows contents through these functions. They give JSON's own types: what `typed` kept is shown as text
(`tags.readable`). What is sensitive is asked of the task and of the job itself, which says so, too: its task may have
left the code, or may not be installed in the process that shows it.

What this release cannot read (a newer one wrote it, or somebody else wrote into the store) shows as `UNREADABLE`: one
such job costs a page nothing but its own contents. What shows can always be written as JSON and as UTF-8.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeVar

from queueapp import tags
from queueapp.codec import CLOSED, decode_arguments, decode_result, well_formed
from queueapp.conf import settings
from queueapp.errors import UnknownTask
from queueapp.producer.saved import METADATA, PROGRESS, metadata_of
from queueapp.producer.task import DuctorTask, find
from queueapp.store.views import JobRecord

logger = logging.getLogger(__name__)

HIDDEN = "********"
UNREADABLE = "(this release cannot read it)"
DEPTH_SHOWN = 250
"""Lists and mappings nest 100 deep at most when Ductor writes them, and tags lie in between."""

T = TypeVar("T")


def masked(value: Any) -> Any:
    """The value with every member hidden whose name contains a word of `MASK`, at any depth."""
    return _without_secrets(tags.readable(value))


def masked_arguments(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], sensitive: Sequence[str] | bool = ()
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a job of the task called `name`, masked. `sensitive` is what the job itself says.

    A positional argument is hidden where the task's parameter of that place has a secret name or is sensitive. Where
    nobody knows the name of a place (the task is gone, or takes fewer), what stands there is hidden, too.
    """
    task = _task(name)
    hidden = _Hidden(task, sensitive)
    places = _parameters(task) if task is not None else iter(())
    shown = [HIDDEN if (place := next(places, None)) is None else hidden.argument(place, value) for value in args]
    return shown, {well_formed(key): hidden.argument(key, value) for key, value in kwargs.items()}


def shown_arguments(record: JobRecord) -> tuple[list[Any], dict[str, Any]] | None:
    """`(args, kwargs)` of a job, masked; None once it has ended."""
    payload = record.payload
    if payload is None:
        return None

    def read() -> tuple[list[Any], dict[str, Any]]:
        args, kwargs, options = decode_arguments(payload)
        return masked_arguments(record.task, args, kwargs, options.get("sensitive", ()))

    unreadable: tuple[list[Any], dict[str, Any]] = ([UNREADABLE], {})
    return _read(record, read, unreadable)


def shown_result(record: JobRecord) -> Any:
    """What the task returned, masked; hidden whole when the task is sensitive=True."""

    def read() -> Any:
        return masked(decode_result(record.result)) if record.result is None or not is_closed(record) else HIDDEN

    return _read(record, read, UNREADABLE)


def shown_saved(record: JobRecord) -> dict[str, Any]:
    """The progress that the task told and the job's metadata, where there are any, masked.

    When the task is sensitive=True, the numbers of the progress show, and nothing else.
    """

    def read() -> dict[str, Any]:
        progress: Any = decode_result(record.data.get(PROGRESS))
        metadata: Any = metadata_of(record)
        if is_closed(record):
            progress = progress and {**progress, "message": HIDDEN if progress.get("message") else ""}
            metadata = metadata and HIDDEN
        return {name: masked(value) for name, value in ((PROGRESS, progress), (METADATA, metadata)) if value}

    return _read(record, read, {})


def is_closed(record: JobRecord) -> bool:
    """Whether nothing of the job's contents may be shown: its task is sensitive=True, or was when the job ran."""
    task = _task(record.task)
    if task is not None and task.sensitive is True:
        return True
    if any(value.startswith(CLOSED) for value in (record.result or b"", *record.data.values())):
        return True
    return record.payload is not None and decode_arguments(record.payload)[2].get("sensitive") is True


def is_secret(name: str) -> bool:
    """Whether values of this name are hidden; `X-Api-Key` is an `api_key`."""
    plain = _plain(name)
    return any(_plain(word) in plain for word in settings.mask)


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


def _read(record: JobRecord, read: Callable[[], T], instead: T) -> T:
    try:
        return read()
    except Exception as error:
        # The class alone: what could not be read may be quoted in the message.
        facts = {"job_id": record.id, "task": record.task, "error": type(error).__name__}
        logger.warning("Contents of a job cannot be read by this release", extra=facts)
        return instead


def _without_secrets(value: Any, depth: int = 0) -> Any:
    if depth > DEPTH_SHOWN:
        raise ValueError(f"nested deeper than {DEPTH_SHOWN} levels")
    if isinstance(value, dict):
        return {
            well_formed(name): HIDDEN if is_secret(name) else _without_secrets(item, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(item, depth + 1) for item in value]
    if isinstance(value, str):
        return well_formed(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


class _Hidden:
    """What of a job's arguments is hidden."""

    def __init__(self, task: DuctorTask | None, sensitive: Sequence[str] | bool) -> None:
        declared = task.sensitive if task is not None else bool(sensitive)  # which of them `**rest` took, nobody knows
        self._all = declared is True or sensitive is True
        named = () if self._all else (names for names in (declared, sensitive) if not isinstance(names, bool))
        self._paths = [path.split(".") for path in sorted({path for names in named for path in names})]
        parameters = inspect.signature(task.func).parameters if task is not None and self._paths else {}
        self._kinds = {parameter.name: parameter.kind for parameter in parameters.values()}

    def argument(self, name: str, value: Any) -> Any:
        """The argument of this name, masked."""
        if self._all or is_secret(name):
            return HIDDEN
        value = tags.readable(value)
        for path in self._paths:
            if path[0] == name:
                value = _without(value, path[1:])
            elif self._kinds.get(path[0]) is inspect.Parameter.VAR_KEYWORD and name not in self._kinds:
                value = _without({name: value}, path[1:])  # `**rest` took it: a path may name it there
                value = value[name] if isinstance(value, dict) else HIDDEN
        return _without_secrets(value)


def _without(value: Any, path: list[str]) -> Any:
    """The value with what stands at the path hidden, in every item of a list. Where it leads nowhere, all is."""
    if not path:
        return HIDDEN
    if isinstance(value, dict):
        return {name: _without(item, path[1:]) if name == path[0] else item for name, item in value.items()}
    if isinstance(value, list):
        return [_without(item, path) for item in value]
    return value if value is None else HIDDEN


def _task(name: str) -> DuctorTask | None:
    try:
        return find(name)
    except UnknownTask:
        return None


def _parameters(task: DuctorTask) -> Iterator[str]:
    """The names of the places of the task's arguments; those of `*rest` are called `rest`, all of them."""
    parameters = iter(inspect.signature(task.func).parameters.values())
    if task.takes_context:
        next(parameters, None)
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from repeat(parameter.name)
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            yield parameter.name
