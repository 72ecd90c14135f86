"""What each setting may be: one reader per name, which checks a value and converts it to what `Settings` holds.

Pure apart from the names it knows; used by `conf.load` alone. The number of a reader is part of the id of its system
check (`queueapp.E1nn`) and never changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, TypeGuard

from django.core.exceptions import ImproperlyConfigured

from queueapp.names import NAMESPACE_FORM, POOL_FORM, TENANT_FORM

URL_SCHEMES = ("redis", "rediss", "unix")

Delay = Callable[[BaseException, int], float | None]
"""(exception, errors) → seconds before another attempt; None = no further one."""
Backoff = float | Delay
TenantSource = str | Callable[..., object]
"""A callable, or the dotted path of one."""
Read = Callable[[object], object]
"""Converts a value; raises ValueError with the words that finish "it must be ..."."""


class SettingFault(ImproperlyConfigured):
    """A setting that is unknown, not there yet, or has a value that Ductor refuses. `id` is that of its check."""

    def __init__(self, name: str, id: str, message: str, hint: str) -> None:
        super().__init__(f"{message} {hint}")
        self.name, self.id, self.message, self.hint = name, id, message, hint


@dataclass(frozen=True, slots=True)
class Reader:
    """How one setting is read. `field` is its name in `Settings`."""

    number: int
    field: str
    read: Read


def read(raw: object) -> tuple[dict[str, object], list[SettingFault]]:
    """Field → value for each valid setting in `raw`, and a fault for each other one."""
    if not isinstance(raw, Mapping):
        hint = 'Write DUCTOR = {"REDIS_URL": "redis://..."}.'
        return {}, [SettingFault("DUCTOR", "queueapp.E100", f"DUCTOR is {_shown(raw)}, not a dictionary.", hint)]
    values: dict[str, object] = {}
    faults: list[SettingFault] = []
    for name, value in raw.items():
        reader = READERS.get(name)
        if reader is None:
            faults.append(_not_known(name))
            continue
        try:
            values[reader.field] = reader.read(value)
        except ValueError as error:
            message = f'DUCTOR["{name}"] is {_shown(value, name)}.'
            faults.append(SettingFault(name, f"queueapp.E{reader.number}", message, f"It must be {error}."))
    return values, faults


def _not_known(name: object) -> SettingFault:
    if name in NOT_YET:
        return SettingFault(
            str(name), "queueapp.E102", f'DUCTOR["{name}"] is planned but not there yet.', "Remove it for now."
        )
    near = get_close_matches(str(name).upper(), [*READERS, *NOT_YET], n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(sorted(READERS))}."
    return SettingFault(str(name), "queueapp.E101", f"DUCTOR[{name!r}] is not a setting of Ductor.", hint)


def _shown(value: object, name: str = "") -> str:
    """A value for a message: short, and without the credentials of a URL. Of the store's address only its form."""
    if name == "REDIS_URL":
        scheme = re.match(r"[a-z+]{1,12}(?=://)", value) if isinstance(value, str) else None
        return f"a URL that begins with {scheme[0]}://" if scheme else f"a {type(value).__name__} of another form"
    text = re.sub(r"//[^@/\s]*@", "//***@", repr(value))
    text = re.sub(r"(['\"][^'\"]*(?:password|secret)[^'\"]*['\"]:\s*)('[^']*'|\"[^\"]*\")", r"\1***", text, flags=re.I)
    return text if len(text) <= 120 else f"{text[:117]}..."


# -- readers by kind ---------------------------------------------------------------------------------------------


def _whole(least: int, most: int) -> Read:
    def read_whole(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"a whole number from {least:,} to {most:,}")
        return value

    return read_whole


def _whole_or_none(least: int, most: int) -> Read:
    read_whole = _whole(least, most)

    def read_number(value: object) -> object:
        try:
            return None if value is None else read_whole(value)
        except ValueError as error:
            raise ValueError(f"{error}, or None") from None

    return read_number


def _duration(least_s: float, most_s: float) -> Read:
    def read_duration(value: object) -> int:
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not least_s <= seconds <= most_s:
            raise ValueError(f"a duration in seconds (or a timedelta) from {least_s:,} to {most_s:,}")
        return round(seconds * 1000)

    return read_duration


def _seconds_or_none(least_s: float, most_s: float) -> Read:
    read_duration = _duration(least_s, most_s)

    def read_seconds(value: object) -> float | None:
        if value is None:
            return None
        try:
            return int(str(read_duration(value))) / 1000
        except ValueError as error:
            raise ValueError(f"{error}, or None") from None

    return read_seconds


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


def _form(form: re.Pattern[str], words: str) -> Read:
    def read_form(value: object) -> str:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise ValueError(words)
        return value

    return read_form


def _choice(*choices: str) -> Read:
    def read_choice(value: object) -> str:
        if value not in choices:
            raise ValueError(" or ".join(repr(choice) for choice in choices))
        return str(value)

    return read_choice


def _name_or_none(words: str) -> Read:
    def read_name(value: object) -> str | None:
        if value is not None and (not isinstance(value, str) or not value):
            raise ValueError(words)
        return value

    return read_name


# -- readers of one setting --------------------------------------------------------------------------------------


def _redis_url(value: object) -> str | Mapping[str, object] | None:
    if value is None or value == "embedded:":
        return value
    if isinstance(value, str) and value.partition("://")[0] in URL_SCHEMES and len(value.partition("://")[2]) > 0:
        return value
    if isinstance(value, Mapping):
        sentinels = value.get("SENTINELS")
        if isinstance(sentinels, (list, tuple)) and sentinels and isinstance(value.get("MASTER_NAME"), str):
            return dict(value)
    raise ValueError(
        'a URL "redis://host:6379/0" ("rediss://", "unix://"), "embedded:", None, '
        'or {"SENTINELS": [("host", 26379), ...], "MASTER_NAME": "..."}'
    )


def _backoff(value: object) -> Backoff | None:
    if value is None or callable(value):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds < math.inf:
        raise ValueError("seconds, a timedelta, queueapp.backoff.exponential(...), or a callable (exception, errors)")
    return float(seconds)


def _tenant_source(value: object) -> TenantSource | None:
    if value is None or callable(value) or (isinstance(value, str) and "." in value):
        return value
    raise ValueError("a callable (request) that returns tenant ids, its dotted path, or None")


def _is_callable(value: object) -> bool:
    return callable(value) or (isinstance(value, str) and "." in value)


def _callables(value: object) -> tuple[Any, ...]:
    if isinstance(value, (list, tuple)) and all(map(_is_callable, value)):
        return tuple(value)
    raise ValueError("a list of callables (request) that return a tenant or None, or of their dotted paths")


def _callable_or_none(value: object) -> Any:
    if value is None or _is_callable(value):
        return value
    raise ValueError("a context manager (tenant id), its dotted path, or None")


def _mask(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(name, str) and name for name in value):
        return tuple(sorted(name.lower() for name in value))
    raise ValueError("a list of names of arguments")


POOL_VALUES: dict[str, tuple[Callable[[object], bool], str]] = {
    "POLICY": (lambda value: isinstance(value, str) and value != "", "the name of a policy"),
    "EDF_BY": (lambda value: value in ("deadline", "latest_start"), '"deadline" or "latest_start"'),
    "AGING_STEP_SECONDS": (
        lambda value: _is_number(value) and 0.001 <= value <= 86_400,
        "seconds (or a timedelta) from 0.001 to 86,400",
    ),
    "DISPATCH": (lambda value: value in ("direct", "scheduled"), '"direct" or "scheduled"'),
    "DISPATCH_WINDOW": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000,
        "a whole number up to 1,000,000, or 0 for as many as live workers have slots",
    ),
    "PAUSED": (lambda value: isinstance(value, bool), "True or False"),
    "MAX_IN_FLIGHT": (
        lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0),
        "a whole number, 0 for closed, or None for no limit",
    ),
    "BACKLOG_LIMIT": (
        lambda value: value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0),
        "a whole number, or None for what DUCTOR says for all pools",
    ),
    "CONTINUE_WEIGHT": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000,
        "a whole number from 1 to 1,000",
    ),
    "COST_UNIT": (lambda value: isinstance(value, str) and 0 < len(value) <= 32, 'a word such as "ms"'),
    "DEFAULT_COST": (lambda value: _is_number(value) and 1 <= value <= 1e9, "a number of at least 1"),
    "DEFAULT_WEIGHT": (lambda value: _is_number(value) and 0.001 <= value <= 1000, "0.001 to 1000"),
}
"""What `POOLS[name]` may hold: name → (test, words for a value that fails it)."""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(name: str, value: object) -> object:
    """A duration as its seconds; anything else as it is."""
    return value.total_seconds() if name.endswith("_SECONDS") and isinstance(value, timedelta) else value


def _pools(value: object) -> dict[str, dict[str, object]]:
    if not isinstance(value, Mapping):
        raise ValueError('a dictionary such as {"emails": {"POLICY": "tiered"}}')
    pools: dict[str, dict[str, object]] = {}
    for name, values in value.items():
        if not isinstance(name, str) or not POOL_FORM.fullmatch(name):
            raise ValueError(
                f"keyed by names of 1 to 64 of a-z 0-9 _ - that begin with a letter or digit, not {name!r}"
            )
        if not isinstance(values, Mapping):
            raise ValueError(f"a dictionary for each pool; that of {name!r} is {_shown(values)}")
        for key, item in values.items():
            if key not in POOL_VALUES:
                raise ValueError(f"made of {', '.join(POOL_VALUES)}; the pool {name!r} has {key!r}")
            holds, words = POOL_VALUES[key]
            if not holds(_plain(key, item)):
                raise ValueError(f"right in every pool: {key} of {name!r} is {_shown(item)} and must be {words}")
        pools[name] = {str(key).lower(): _plain(key, item) for key, item in values.items()}
    return pools


def _policies(value: object) -> dict[str, str]:
    if isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(path, str) and "." in path for name, path in value.items()
    ):
        return dict(value)
    raise ValueError('a dictionary of names and dotted paths, such as {"head_start": "shop.policies.HeadStart"}')


_DAY_S = 86_400
READERS: dict[str, Reader] = {
    "REDIS_URL": Reader(110, "redis_url", _redis_url),
    "CACHE_ALIAS": Reader(111, "cache_alias", _name_or_none("an alias of CACHES, or None")),
    "NAMESPACE": Reader(112, "namespace", _form(NAMESPACE_FORM, "1 to 32 of a-z 0-9 _ -")),
    "DEFAULT_ALIAS": Reader(113, "default_alias", _name_or_none("an alias of TASKS, or None")),
    "POOLS": Reader(114, "pools", _pools),
    "ENQUEUE_ON_COMMIT": Reader(115, "enqueue_on_commit", _switch),
    "ON_COMMIT_FAILURE": Reader(116, "on_commit_failure", _choice("outbox", "log")),
    "MAX_PAYLOAD_BYTES": Reader(117, "max_payload_bytes", _whole(64, 8 * 2**20)),
    "MAX_RESULT_BYTES": Reader(118, "max_result_bytes", _whole(64, 8 * 2**20)),
    "IDEMPOTENCY_TTL": Reader(119, "idempotency_ttl_ms", _duration(1, 365 * _DAY_S)),
    "MAX_ATTEMPTS": Reader(120, "max_attempts", _whole(1, 1_000_000)),
    "MAX_CRASHES": Reader(121, "max_crashes", _whole(1, 1_000_000)),
    "BACKOFF": Reader(122, "backoff", _backoff),
    "UNKNOWN_TASK_GRACE": Reader(123, "unknown_task_grace_ms", _duration(0, 365 * _DAY_S)),
    "TENANT_DEFAULT": Reader(
        124, "tenant_default", _form(TENANT_FORM, "1 to 64 of A-Z a-z 0-9 . _ : @ - that do not begin with _")
    ),
    "UNKNOWN_TENANTS": Reader(125, "unknown_tenants", _choice("accept", "reject")),
    "LEASE_SECONDS": Reader(126, "lease_ms", _duration(0.1, _DAY_S)),
    "GRACE_SECONDS": Reader(127, "grace_ms", _duration(0, _DAY_S)),
    "LEADER_TTL_SECONDS": Reader(128, "leader_ttl_ms", _duration(0.2, 60)),
    "LEADER_RENEW_SECONDS": Reader(129, "leader_renew_ms", _duration(0.05, 60)),
    "LEADER_RETRY_SECONDS": Reader(130, "leader_retry_ms", _duration(0.05, 60)),
    "LEADER_PRESENCE": Reader(131, "leader_presence", _choice("auto", "pubsub", "shard", "off")),
    "REPLAY_WINDOW_SECONDS": Reader(132, "replay_window_ms", _duration(1, _DAY_S)),
    "RESULT_TTL": Reader(133, "result_ttl_ms", _duration(0, 3650 * _DAY_S)),
    "RESULT_MAX": Reader(134, "result_max", _whole(0, 100_000_000)),
    "DEAD_TTL": Reader(135, "dead_ttl_ms", _duration(0, 3650 * _DAY_S)),
    "DEAD_MAX": Reader(136, "dead_max", _whole(0, 100_000_000)),
    "API_TENANTS": Reader(137, "api_tenants", _tenant_source),
    "MASK": Reader(138, "mask", _mask),
    "DATABASE": Reader(139, "database", _form(re.compile(r".+"), "an alias of DATABASES")),
    "METRICS_TENANTS": Reader(140, "metrics_tenants", _whole(0, 10_000)),
    "TENANT_RESOLVERS": Reader(141, "tenant_resolvers", _callables),
    "TENANT_CONTEXT": Reader(142, "tenant_context", _callable_or_none),
    "POLICIES": Reader(143, "policies", _policies),
    "BACKLOG_LIMIT": Reader(144, "backlog_limit", _whole_or_none(0, 2**31 - 1)),
    "RECORDS_TTL": Reader(145, "records_ttl_ms", _duration(1, 3650 * _DAY_S)),
    "TIMEOUT": Reader(146, "timeout_s", _seconds_or_none(0.001, 30 * _DAY_S)),
    "RUNS_TTL": Reader(147, "runs_ttl_ms", _duration(0, 3650 * _DAY_S)),
}
"""Setting → how it is read."""

NOT_YET = frozenset({"READY_TTL_SECONDS"})
"""Settings of later releases, refused by name until something honours them."""
