"""The options of `@task` and `.using()`: which there are and what each may be. Faults name option, value and remedy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypedDict

from django.conf import settings as django_settings
from django.db import connections
from django.utils import timezone

from queueapp.codec import decode_result, encode_result
from queueapp.compat import InvalidTask
from queueapp.errors import InvalidOption, NotYet, UnknownPool, UnserialisableArgument
from queueapp.names import LANE_FORM
from queueapp.producer import concurrency, once
from queueapp.producer.backoff import coerce
from queueapp.producer.concurrency import Key
from queueapp.producer.once import Debounce, OnThrottle, Singleton
from queueapp.producer.tenancy import tenant_id
from queueapp.setting_readers import Backoff

COST_MAX = 1_000_000_000
IDEMPOTENCY_KEY_MAX = 1024
METADATA_MAX_BYTES = 16 * 1024
EXPIRES_MAX_S = 10 * 365 * 86_400
DEADLINE_MAX_S = EXPIRES_MAX_S
DELAY_MAX_S = EXPIRES_MAX_S
TIMEOUT_MAX_S = 30 * 86_400
SENSITIVE_FORM = re.compile(r"[^\W\d]\w*(\.[^.]+)*")
TASK_NAME_FORM = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class _Both(TypedDict, total=False):
    """The options that `@task` and `.using()` share."""

    priority: int | None
    queue_name: str | None
    backend: str | None
    tenant: object
    lane: str | None
    cost: float | None
    expires_after: float | timedelta | None
    concurrency: Key | Sequence[Key] | None
    debounce: Debounce | None
    singleton: Singleton | None
    on_throttle: OnThrottle | None
    idempotency_key: str | None
    max_attempts: int | None
    max_crashes: int | None
    backoff: Backoff | float | timedelta | None
    timeout: float | timedelta | None
    soft_timeout: float | timedelta | None
    on_commit: bool | None
    database: str | None
    metadata: Mapping[str, Any] | None
    typed: bool | None


class Using(_Both, total=False):
    """The options of `.using()`. None leaves an option as it is."""

    run_after: datetime | None
    delay: float | timedelta | None
    deadline: datetime | float | timedelta | None


class Declared(_Both, total=False):
    """The options of `@task`, beside `takes_context`. None leaves an option at its default."""

    deadline: float | timedelta | None
    sensitive: Iterable[str] | bool | None
    api: bool | None
    aliases: Iterable[str] | None


USING = tuple(Using.__annotations__)
TASK = (*Declared.__annotations__, "takes_context")
NOT_YET = frozenset({"durable"})
"""Options of later releases, refused by name until something honours them."""
ELSEWHERE = {
    "bind": "takes_context",
    "countdown": "delay",
    "eta": "run_after",
    "expires": "expires_after",
    "max_retries": "max_attempts",
    "pool": "queue_name",
    "queue": "queue_name",
    "retries": "max_attempts",
    "retry": "max_attempts",
    "retry_backoff": "backoff",
    "soft_time_limit": "soft_timeout",
    "time_limit": "timeout",
    "ttl": "expires_after",
}
"""What other queues call it, and we elsewhere → our option."""


class InvalidTaskOption(InvalidOption, InvalidTask):
    """An option that Ductor refuses; django.tasks' InvalidTask, too."""


class OptionNotYet(NotYet, InvalidTask):
    """An option of a later release; django.tasks' InvalidTask, too."""


class UnknownQueue(UnknownPool, InvalidTask):
    """A `queue_name` that is no pool; django.tasks' InvalidTask, too."""

    def __init__(self, name: object, known: Iterable[str], remedy: str) -> None:
        super().__init__(f"queue_name {name!r} is not a known pool; known: {', '.join(sorted(known))}. {remedy}")


def refuse(given: Mapping[str, object], known: Iterable[str], where: str) -> None:
    """Raise for the first of the given names that is no option of `where`."""
    for name in given:
        if name in known:
            continue
        if name in NOT_YET:
            raise OptionNotYet(f"{where}({name}=...) is planned but not there yet; leave it out.")
        if name in {"cron", "schedule"}:
            raise InvalidTaskOption(
                f"{where}({name}=...) is not an option; give it to @schedule above @task, or to queueapp.schedule()."
            )
        if name in {"rate", "rate_limit"}:
            raise InvalidTaskOption(
                f"{where}({name}=...) is not an option: a rate is set in the admin, for a tenant, a lane or a "
                "concurrency key; on_throttle says what becomes of a job above it."
            )
        if name == "dispatch_rate":
            raise InvalidTaskOption(
                f"{where}({name}=...) is not an option: a dispatch rate is set in the admin, for a tenant, a lane or a "
                "concurrency key; a job above it waits for its turn."
            )
        if name == "run_after":
            raise InvalidTaskOption("@task(run_after=...) would fix one moment for every job; give it to .using().")
        if name == "delay":
            raise InvalidTaskOption(f"{where}(delay=...) is an option of one job; give it to .using().")
        if name in TASK:
            raise InvalidTaskOption(f"{where}({name}=...) belongs to the task; give it to @task.")
        near = [ELSEWHERE[name]] if name in ELSEWHERE else get_close_matches(name, [*known, *NOT_YET], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}."
        raise InvalidTaskOption(f"{where}({name}=...) is not an option; {hint}")


def _whole(name: str, least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidTaskOption(f"{name} is {value!r}: it must be a whole number from {least} to {most}.")
        return int(value)

    return read


def _switch(name: str) -> Callable[[object], bool]:
    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise InvalidTaskOption(f"{name} is {value!r}: it must be True or False.")
        return value

    return read


def _lane(value: object) -> str:
    if not isinstance(value, str) or not LANE_FORM.fullmatch(value):
        raise InvalidTaskOption(f"lane is {value!r}: it must be 1 to 64 of A-Z a-z 0-9 . _ : @ -")
    return value


def _cost(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= COST_MAX:
        raise InvalidTaskOption(
            f"cost is {value!r}: it must be a number from 1 to {COST_MAX}; leave it out to have it learnt."
        )
    return float(value)


def _expires_after(value: object) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= EXPIRES_MAX_S:
        raise InvalidTaskOption(
            f"expires_after is {value!r}: it must be seconds (or a timedelta) above 0 and up to ten years."
        )
    return float(seconds)


def _delay(value: object) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= DELAY_MAX_S:
        raise InvalidTaskOption(f"delay is {value!r}: it must be seconds (or a timedelta) from 0 to ten years.")
    return float(seconds)


def _timeout(name: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= TIMEOUT_MAX_S:
            raise InvalidTaskOption(f"{name} is {value!r}: it must be seconds (or a timedelta) above 0, up to 30 days.")
        return float(seconds)

    return read


def require_warning(soft_timeout: float | None, timeout: float | None) -> None:
    """Raises InvalidTaskOption for a warning that would come only when the body has been given up."""
    if soft_timeout is not None and timeout is not None and soft_timeout >= timeout:
        raise InvalidTaskOption(
            f"soft_timeout is {soft_timeout:g} and timeout is {timeout:g}: the soft one warns a body before the other "
            "one gives it up; make it the smaller one."
        )


def require_one_start(run_after: datetime | None, delay: float | None) -> None:
    """Raises InvalidTaskOption for a job that is given both a moment and a delay."""
    if run_after is not None and delay is not None:
        raise InvalidTaskOption(
            f"delay is {delay:g} and run_after is {run_after.isoformat()}: a job has one of them. delay counts from "
            "the call, by the server's clock; run_after is a moment."
        )


def _deadline(value: object) -> datetime | float:
    if isinstance(value, datetime):
        if django_settings.USE_TZ and not timezone.is_aware(value):
            raise InvalidTaskOption(
                f"deadline is {value!r}: it must be an aware datetime, such as timezone.now() + timedelta(hours=1)."
            )
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= DEADLINE_MAX_S:
        raise InvalidTaskOption(
            f"deadline is {value!r}: it must be an aware datetime, or seconds (or a timedelta) above 0 and up to ten "
            "years, counted from when the job may first run."
        )
    return float(seconds)


def require_duration(deadline: object) -> None:
    """Raises InvalidTaskOption for a moment, which belongs to a job and not to a task."""
    if isinstance(deadline, datetime):
        raise InvalidTaskOption(
            "@task(deadline=...) with a moment would fix that moment for every job; give seconds or a timedelta, or "
            "give the moment to .using()."
        )


def _idempotency_key(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= IDEMPOTENCY_KEY_MAX:
        shown = value if not isinstance(value, str) else f"text of {len(value)} characters"
        raise InvalidTaskOption(
            f"idempotency_key is {shown!r}: it must be text of 1 to {IDEMPOTENCY_KEY_MAX} characters."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidTaskOption("idempotency_key has a lone surrogate, which UTF-8 cannot hold.") from None
    return value


def _aliases(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidTaskOption(f"aliases is {value!r}: it must be a list of dotted names.")
    for name in value:
        if not isinstance(name, str) or not TASK_NAME_FORM.fullmatch(name):
            raise InvalidTaskOption(f"aliases has {name!r}: it must be a dotted name such as 'shop.tasks.old_name'.")
    return tuple(value)


def _database(value: object) -> str:
    if not isinstance(value, str) or value not in connections.settings:
        known = ", ".join(sorted(connections.settings))
        raise InvalidTaskOption(f"database is {value!r}: it must be an alias of DATABASES; known: {known}.")
    return value


def _metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidTaskOption(f"metadata is {value!r}: it must be a mapping that can be written as JSON.")
    try:
        # Through JSON: a copy that whoever gave it can change no more, as its readers will get it.
        encoded = encode_result(value, name="metadata") or b""
        written: dict[str, Any] = decode_result(encoded)
    except UnserialisableArgument as error:
        raise InvalidTaskOption(f"metadata must be a mapping that can be written as JSON. {error}") from None
    if len(encoded) > METADATA_MAX_BYTES:
        raise InvalidTaskOption(
            f"metadata has {len(encoded)} bytes as JSON: it must be at most {METADATA_MAX_BYTES}. Pass large data as "
            "arguments."
        )
    return written


def _sensitive(value: object) -> tuple[str, ...] | bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidTaskOption(f"sensitive is {value!r}: it must be a list of the names of parameters, or True.")
    for name in value:
        if not isinstance(name, str) or not SENSITIVE_FORM.fullmatch(name):
            raise InvalidTaskOption(
                f"sensitive has {name!r}: it must be the name of a parameter, or a path into one, as in 'card.number'."
            )
    return tuple(sorted(value)) if isinstance(value, (set, frozenset)) else tuple(value)


def require_parameters(function: Callable[..., object], sensitive: tuple[str, ...] | bool) -> None:
    """Raises InvalidTaskOption for a name in `sensitive` that no parameter has: what it means to hide would show."""
    if isinstance(sensitive, bool) or not sensitive:
        return
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for path in sensitive:
        if path.partition(".")[0] not in parameters:
            raise InvalidTaskOption(
                f"sensitive has {path!r}: {function.__name__} must have a parameter of this name; it has "
                f"{', '.join(parameters) or 'none'}."
            )


def require_fields(
    function: Callable[..., object],
    keys: Sequence[Key],
    debounce: Debounce | None,
    singleton: Singleton | None,
    *,
    takes_context: bool,
) -> None:
    """Raises InvalidTaskOption for a key with a field that is no parameter: it could never be filled in."""
    try:
        concurrency.require_fields(function, keys, takes_context=takes_context)
        once.require_fields(function, debounce, singleton, takes_context=takes_context)
        once.require_room(keys, singleton)
    except InvalidOption as error:
        raise InvalidTaskOption(str(error)) from None


READERS: dict[str, Callable[[object], object]] = {
    "tenant": tenant_id,
    "lane": _lane,
    "cost": _cost,
    "expires_after": _expires_after,
    "delay": _delay,
    "deadline": _deadline,
    "concurrency": concurrency.read,
    "debounce": once.read_debounce,
    "singleton": once.read_singleton,
    "on_throttle": once.read_on_throttle,
    "idempotency_key": _idempotency_key,
    "max_attempts": _whole("max_attempts", 1, 1_000_000),
    "max_crashes": _whole("max_crashes", 1, 1_000_000),
    "backoff": coerce,
    "timeout": _timeout("timeout"),
    "soft_timeout": _timeout("soft_timeout"),
    "on_commit": _switch("on_commit"),
    "database": _database,
    "metadata": _metadata,
    "typed": _switch("typed"),
    "sensitive": _sensitive,
    "api": _switch("api"),
    "aliases": _aliases,
}
"""Option of ours → what checks and converts it. Those of django.tasks are the backend's (`validate_task`)."""


def read(name: str, value: object) -> object:
    """The option as a task keeps it. Raises InvalidTaskOption."""
    try:
        return READERS[name](value)
    except InvalidTaskOption:
        raise
    except InvalidOption as error:  # from those that stand for themselves elsewhere: tenants, backoffs
        raise InvalidTaskOption(str(error)) from None
