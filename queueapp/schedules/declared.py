"""Schedules that are declared in code: `schedule(task, cron=...)`, or `@schedule(cron=...)` above `@task`.

A declaration is checked when its module is imported, which may be before models can be, and kept in `registry`. A
scheduler that starts brings them into rows (`schedules.rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypeVar, overload

from queueapp.codec import decode_arguments, encode_arguments
from queueapp.compat import Task, is_task
from queueapp.errors import InvalidOption
from queueapp.firings import (
    CATCH_UP,
    EVERY_MAX_S,
    EVERY_MIN_S,
    JITTER_MAX_S,
    OVERLAP,
    read_cron,
    read_moment,
    read_zone,
)
from queueapp.producer import backoff
from queueapp.producer.discovery import registry as tasks
from queueapp.producer.signatures import misfit
from queueapp.producer.task import BoundTask, DuctorTask, adopt

T = TypeVar("T", bound=Task | BoundTask)
G = TypeVar("G")
R = TypeVar("R")
NAME_MAX = 100
GIVEN = frozenset({"name", "args", "kwargs", "cron", "every", "zone", "start", "end", "jitter", "catch_up", "overlap"})
OPTIONS = frozenset({"cost", "expires_after", "deadline", "max_attempts", "max_crashes", "backoff", "metadata"})
"""What may stand in a row's `options`; the others have fields of their own, or make no sense for a firing."""
COLUMNS = {"tenant": "tenant", "pool": "queue_name", "lane": "lane", "priority": "priority"}
"""Field of a row → option of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a row says that is declared in code; the names are those of its fields."""

    name: str
    task: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    tenant: str = ""
    pool: str = ""
    lane: str = ""
    priority: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    cron: str = ""
    every_seconds: int | None = None
    zone: str = ""
    start: datetime | None = None
    end: datetime | None = None
    jitter_seconds: int = 0
    catch_up: str = "one"
    overlap: str = "allow"

    def values(self) -> dict[str, Any]:
        """Field → value."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


registry: dict[str, Declaration] = {}
"""Name → what is declared under it. `schedule` writes it at import."""


@overload
def schedule(task: T, /, **given: Any) -> T: ...
@overload
def schedule(**given: Any) -> Callable[[T], T]: ...
def schedule(task: Any = None, /, **given: Any) -> Any:
    """Enqueue a task again and again: by `cron` in `zone`, or `every` so many seconds.

    `schedule(report.using(tenant="acme").bind("2026"), name="acme's report", cron="0 6 1 * *")` takes options and
    arguments from the task; as a decorator it stands above `@task`. Further: `name` (the task's own unless given),
    `args`, `kwargs`, `start`, `end`, `jitter`, `catch_up` ("skip", "one", "all"), `overlap` ("allow", "skip",
    "replace"). Raises InvalidOption at import, UnserialisableArgument for arguments that no row can keep.
    """
    refuse(given)
    if task is None:
        return lambda decorated: schedule(decorated, **given)
    made = _declaration(task, given)
    other = registry.get(made.name)
    if other is not None and other != made:
        raise InvalidOption(
            f"schedule(name={made.name!r}) is declared twice, for {other.task} and {made.task}: give one of them "
            "another name."
        )
    registry[made.name] = made
    return task


def refuse(given: Mapping[str, Any]) -> None:
    """Raises InvalidOption for the first name that is no option."""
    for name in given:
        if name in GIVEN:
            continue
        near = get_close_matches(name, GIVEN, n=1, cutoff=0.5)
        near = ["every"] if name in {"interval", "seconds", "every_seconds"} else near
        near = ["zone"] if name in {"tz", "timezone", "time_zone"} else near
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(GIVEN))}."
        if name in {*COLUMNS.values(), *OPTIONS}:
            hint = f"give it to the task: schedule(task.using({name}=...), ...)."
        raise InvalidOption(f"schedule({name}=...) is not an option; {hint}")


def _declaration(of: object, given: Mapping[str, Any]) -> Declaration:
    bound = of if isinstance(of, BoundTask) else None
    plain = bound.task if bound is not None else of
    if not is_task(plain):
        raise InvalidOption(f"schedule({of!r}): it must be a task of @task; as a decorator it stands above @task.")
    if bound is not None and ("args" in given or "kwargs" in given):
        raise InvalidOption("schedule(args=...) and .bind(...): give the arguments once.")
    task = adopt(plain)
    args, kwargs = _arguments(task, *((bound.args, bound.kwargs) if bound else _given_arguments(given)))
    columns, further = _options(task)
    start, end = _moment("start", given.get("start")), _moment("end", given.get("end"))
    if start is not None and end is not None and end < start:
        raise InvalidOption(f"schedule(start={start!r}, end={end!r}): end must not be before start.")
    jitter = _seconds("jitter", given.get("jitter", 0), 0, JITTER_MAX_S)
    require_jitter(jitter, task.expires_after)
    every = given.get("every")
    if (given.get("cron") is None) == (every is None):
        raise InvalidOption("schedule(cron=..., every=...): give one of the two.")
    return Declaration(
        name=_name(given.get("name", task.module_path)),
        task=task.module_path,
        args=args,
        kwargs=kwargs,
        **columns,
        options=further,
        cron=_read("cron", read_cron, given["cron"]) if every is None else "",
        every_seconds=None if every is None else _seconds("every", every, EVERY_MIN_S, EVERY_MAX_S),
        zone=_read("zone", read_zone, given["zone"]) if given.get("zone") is not None else "",
        start=start,
        end=end,
        jitter_seconds=jitter,
        catch_up=_word("catch_up", given.get("catch_up", "one"), CATCH_UP),
        overlap=_word("overlap", given.get("overlap", "allow"), OVERLAP),
    )


def require_jitter(jitter_s: int, expires_after: float | None) -> None:
    """Raises InvalidOption when a job could expire before its jitter lets it run: both count from its making."""
    if expires_after is not None and 0 < expires_after <= jitter_s:
        raise InvalidOption(
            f"jitter is {jitter_s} s and expires_after {expires_after:g} s: a job would expire before it may run. Make "
            "the jitter shorter than expires_after."
        )


def _given_arguments(given: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    args, kwargs = given.get("args", ()), given.get("kwargs", {})
    if isinstance(args, str) or not isinstance(args, Sequence) or not isinstance(kwargs, Mapping):
        raise InvalidOption("schedule(args=..., kwargs=...): args must be a list and kwargs a mapping.")
    return args, kwargs


def _arguments(task: DuctorTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """As a row keeps them: as JSON."""
    if why := misfit(task, args, kwargs):
        raise InvalidOption(f"schedule(args=..., kwargs=...) do not fit {task.module_path}: {why}.")
    return decode_arguments(encode_arguments(args, kwargs))[:2]


def _options(task: DuctorTask) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a copy of a task says beyond what the task itself does: for the fields of a row, and its `options`."""
    own = tasks.get(task.module_path)
    columns: dict[str, Any] = {}
    further: dict[str, Any] = {}
    for each in fields(DuctorTask):
        value = getattr(task, each.name)
        if own is None or each.name == "func" or value == getattr(own, each.name):
            continue
        column = next((name for name, option in COLUMNS.items() if option == each.name), None)
        if column is not None:
            columns[column] = value
        elif each.name == "backoff":
            further["backoff"] = backoff.to_options(value)
        elif each.name in OPTIONS and not (each.name == "deadline" and isinstance(value, datetime)):
            further[each.name] = dict(value) if isinstance(value, Mapping) else value
        else:
            raise InvalidOption(
                f"schedule(task.using({each.name}=...)): a schedule cannot keep it; leave it out, or give it to @task."
            )
    return columns, further


def _name(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_MAX or not value.isprintable():
        raise InvalidOption(f"schedule(name={value!r}): it must be text of 1 to {NAME_MAX} characters.")
    return value


def _read(name: str, read: Callable[[G], R], value: G) -> R:
    try:
        return read(value)
    except ValueError as error:
        raise InvalidOption(f"schedule({name}={value!r}): it must be {error}.") from None


def _seconds(name: str, value: object, least: int, most: int) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and least <= seconds <= most:
        whole = int(seconds)
        if whole == seconds:
            return whole
    raise InvalidOption(
        f"schedule({name}={value!r}): it must be whole seconds (or a timedelta) from {least:,} to {most:,}."
    )


def _moment(name: str, value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidOption(f"schedule({name}={value!r}): it must be an aware datetime, or None.")
    return _read(name, read_moment, value)


def _word(name: str, value: object, known: Sequence[str]) -> str:
    if value not in known:
        raise InvalidOption(f"schedule({name}={value!r}): it must be {' or '.join(map(repr, known))}.")
    return str(value)
