"""From a Schedule row to the job of one firing, checked exactly as an enqueue is.

The id of a firing's job is made from the schedule's name and the moment that it is for: whoever makes the firing, and
however often, it is the same job. An idempotency key says so for an hour, also when retention has taken the job away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db import Error as DatabaseError

from queueapp.codec import digest
from queueapp.conf import settings
from queueapp.errors import (
    InvalidOption,
    PayloadTooLarge,
    UnknownPool,
    UnknownTask,
    UnknownTenant,
    UnserialisableArgument,
)
from queueapp.firings import LATE_MS, jitter_ms
from queueapp.models import Schedule
from queueapp.patterns import PATTERN_MAX, TEXT_MAX_BYTES
from queueapp.producer import backoff, rows
from queueapp.producer.concurrency import Key
from queueapp.producer.discovery import find
from queueapp.producer.preparation import Prepared, prepare
from queueapp.producer.signatures import misfit
from queueapp.producer.task import DuctorTask, adopt
from queueapp.schedules.declared import COLUMNS, OPTIONS, require_jitter
from queueapp.schedules.words import why
from queueapp.signals import schedule_cleaning
from queueapp.store import shards
from queueapp.store.ids import fixed_id
from queueapp.store.records import KEYS_MAX

NAME, FOR, LATE = "schedule", "scheduled_for", "late"
"""In the metadata of each job: the schedule, the moment that the firing is for, and True when it was made late."""
KNOWN_MS = 3_600_000
"""How long the store remembers a firing, also when retention has taken its job away."""


def known(schedule: Schedule) -> DuctorTask:
    """The task as the code has it. Raises UnknownTask, in words that may be shown to anybody."""
    try:
        return adopt(find(schedule.task))
    except UnknownTask:
        # Why a module cannot be imported is the host's, and may hold a secret: the log and the checks tell it.
        raise UnknownTask(
            f"No task is called {schedule.task!r} here: correct the name. If its module cannot be imported, "
            "`manage.py check` says why."
        ) from None


def task_of(schedule: Schedule) -> DuctorTask:
    """The task with the options of a schedule. Raises UnknownTask, and InvalidOption for an option that is refused."""
    task = known(schedule)
    given = {option: getattr(schedule, field) for field, option in COLUMNS.items()}
    chosen: dict[str, Any] = {option: value for option, value in given.items() if value not in ("", None)}
    if "tenant" not in chosen and task.tenant is None:
        chosen["tenant"] = settings.tenant_default
    return task.using(**chosen, **further(schedule.options))


def further(options: Mapping[str, Any]) -> dict[str, Any]:
    """A row's `options` as `.using()` takes them."""
    for name in options:
        if name not in OPTIONS:
            raise InvalidOption(
                f"options has {name!r}: it must be made of {', '.join(sorted(OPTIONS))}; tenant, pool, lane and "
                "priority have fields of their own."
            )
    found = dict(options)
    if isinstance(found.get("backoff"), Mapping):
        found["backoff"] = backoff.from_options(found["backoff"])
    if isinstance(found.get("deadline"), datetime | str):
        raise InvalidOption(f"deadline is {found['deadline']!r}: it must be seconds, counted from each firing.")
    return found


def job_id(schedule: Schedule, moment_ms: int) -> str:
    """The inner id of the job of one firing."""
    return fixed_id(moment_ms, f"schedule {schedule.name}")


def prepared(schedule: Schedule, moment_ms: int, now_ms: int, task: DuctorTask | None = None) -> Prepared:
    """The job of the firing for `moment_ms`, made at `now_ms`. Raises what `prepare` raises, and UnknownTask.

    `task` is what `task_of` gives, for who makes several.
    """
    due_ms = moment_ms + jitter_ms(schedule.name, moment_ms, schedule.jitter_seconds * 1000)
    run_after = datetime.fromtimestamp(due_ms / 1000, UTC)
    late = now_ms - moment_ms > LATE_MS
    task = task or task_of(schedule)
    require_jitter(schedule.jitter_seconds, task.expires_after)
    task = marked(task, schedule, moment_ms, late=late, run_after=run_after)
    made = prepare(task, schedule.args, schedule.kwargs)
    rows.require_pool(made.pool)
    rows.require_tenant(made.job.tenant)
    job = replace(
        made.job,
        id=job_id(schedule, moment_ms),
        due_ms=due_ms,
        idempotency=digest(f"schedule {schedule.name} {moment_ms}"),
        idempotency_ttl_ms=KNOWN_MS,
    )
    return replace(made, job=job)


def own_key(schedule: Schedule) -> Key:
    """The concurrency key of all jobs of a schedule whose new one waits for the last to stop (overlap `replace`)."""
    text = f"schedule {schedule.name}"
    pattern = text.replace("{", "{{").replace("}", "}}")
    if len(pattern) > PATTERN_MAX or len(text.encode()) > TEXT_MAX_BYTES:
        pattern = f"schedule {digest(schedule.name)}"
    return Key(pattern, limit=1)


def waits_for(schedule: Schedule, public_id: str) -> bool:
    """Whether a job that runs has that key: one that was made before the rule was `replace` has not."""
    place = shards.locate(public_id)
    text = "".join(part for part, _ in own_key(schedule).parts)
    return place is not None and shards.reads(place[0]).has_key(place[1], digest(text))


def marked(
    task: DuctorTask, schedule: Schedule, moment_ms: int, *, late: bool = False, run_after: datetime | None = None
) -> DuctorTask:
    """The task with metadata that say which firing it is, and with what makes it wait for the last one to stop."""
    about: dict[str, Any] = {NAME: schedule.name, FOR: datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat()}
    if late:
        about[LATE] = True
    task = task.using(metadata={**(task.metadata or {}), **about}, run_after=run_after)
    if schedule.overlap != Schedule.Overlap.REPLACE:
        return task
    if len(task.concurrency) == KEYS_MAX:
        raise InvalidOption(
            f"overlap is “replace”, which takes one of the {KEYS_MAX} concurrency keys of a job, and concurrency has "
            f"{KEYS_MAX}: leave one of them out."
        )
    return task.using(concurrency=[*task.concurrency, own_key(schedule)])


def faults_of(schedule: Schedule) -> dict[str, list[str]]:
    """What an enqueue of this schedule would be refused for, by field."""
    try:
        task = known(schedule)
    except UnknownTask as error:
        return {"task": [f"task “{schedule.task}” is not known. {error}"]}
    faults: dict[str, list[str]] = {}
    for field, option in COLUMNS.items():
        value = getattr(schedule, field)
        if value not in ("", None):
            _try(faults, field, lambda given={option: value}: task.using(**given))
    _try(faults, "options", lambda: task.using(**further(schedule.options)))
    if not faults:
        _try(faults, "jitter_seconds", lambda: require_jitter(schedule.jitter_seconds, task_of(schedule).expires_after))
    if wrong := misfit(task, schedule.args, schedule.kwargs):
        faults["kwargs"] = [f"The arguments do not fit {schedule.task}: {wrong}. Correct args or kwargs."]
    _try(faults, "overlap", lambda: marked(task, schedule, 0))
    if not faults:
        _try(faults, "args", lambda: prepared(schedule, 0, 0))
    return faults


def _try(faults: dict[str, list[str]], field: str, make: Any) -> None:
    try:
        make()
    except UnserialisableArgument as error:
        faults[field] = [f"{error}"]
    except PayloadTooLarge as error:
        faults["args"] = [f"{error}"]
    except UnknownPool as error:
        faults["pool"] = [f"{error}"]
    except UnknownTenant as error:
        faults["tenant"] = [f"{error}"]
    except DatabaseError:
        raise
    except Exception as error:  # whatever its values, or code of the host that is asked about them, may raise
        faults[field] = [why(error)]


def _on_cleaning(*, instance: Schedule, faults: dict[str, Any], **_: Any) -> None:
    faults.update(faults_of(instance))


def connect() -> None:
    """Each validation of a row asks whether its job would be accepted."""
    schedule_cleaning.connect(_on_cleaning, sender=Schedule, dispatch_uid="queueapp.schedules.jobs")
