"""`Debounce` and `Singleton`: options of tasks under which several calls make one run. Filled in for each job.

Both have a key: a text that may name parameters of the task's function, as a concurrency key does. It belongs to the
task and the tenant. What a parameter holds is spelled by its meaning (`codec.spelling`), so that any argument will do,
and the same one gives the same key in every process. What holds a key, and for how long, the store decides
(store/lua/include/front.lua, once.lua).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, cast, get_args

from queueapp import patterns
from queueapp.codec import digest, spelling
from queueapp.errors import InvalidOption
from queueapp.patterns import TENANT_FIELD, TEXT_MAX_BYTES, Parts
from queueapp.producer.concurrency import Key, bound, require_known
from queueapp.store.records import KEYS_MAX, DebounceUse, KeyUse, SingletonMode, SingletonUse

PERIOD_MAX_S = 366 * 86_400


@dataclass(frozen=True, slots=True)
class Debounce:
    """Calls with one key within `period` seconds of each other make one run, with the arguments of the newest.

    The job runs when no call has come for `period` seconds, and at the latest `max_wait` seconds after the first one.
    Without `max_wait` a key that is called all the time never runs.
    """

    key: str
    period: float | timedelta
    max_wait: float | timedelta | None = None
    parts: Parts = field(init=False, repr=False, compare=False)
    period_ms: int = field(init=False, repr=False, compare=False)
    most_ms: int = field(init=False, repr=False, compare=False)
    """0 = as long as it takes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", _parse("debounce", self.key))
        object.__setattr__(self, "period_ms", _milliseconds("period", self.period))
        most = 0 if self.max_wait is None else _milliseconds("max_wait", self.max_wait)
        if most and most < self.period_ms:
            raise InvalidOption(
                f"debounce has max_wait={self.max_wait!r} and period={self.period!r}: max_wait must be at least the "
                "period, or left out."
            )
        object.__setattr__(self, "most_ms", most)


@dataclass(frozen=True, slots=True)
class Singleton:
    """At most one job of the task with this key, from its acceptance to its end, retries included.

    `key` None: one for equal arguments. `mode` says what a further call does while there is such a job:
    skip     nothing; the job that is there stands for it
    replace  it takes the place of one that waits, and comes next after one that runs
    next     nothing while one waits; behind one that runs it comes next, so that one runs and one waits
    """

    key: str | None = None
    mode: SingletonMode = "skip"
    parts: Parts | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in get_args(SingletonMode):
            raise InvalidOption(f'singleton has mode={self.mode!r}: it must be "skip", "replace" or "next".')
        object.__setattr__(self, "parts", None if self.key is None else _parse("singleton", self.key))

    @property
    def waits(self) -> bool:
        """A job may have to wait for another one with its key."""
        return self.mode != "skip"


OnThrottle = Literal["reject", "park"]


def read_debounce(value: object) -> Debounce:
    """The option as a task keeps it. Raises InvalidOption."""
    if not isinstance(value, Debounce):
        raise InvalidOption(f"debounce is {value!r}: it must be queueapp.Debounce(key, period, max_wait).")
    return value


def read_singleton(value: object) -> Singleton:
    """The option as a task keeps it. Raises InvalidOption."""
    if not isinstance(value, Singleton):
        raise InvalidOption(f"singleton is {value!r}: it must be queueapp.Singleton(key, mode).")
    return value


def read_on_throttle(value: object) -> OnThrottle:
    """The option as a task keeps it. Raises InvalidOption."""
    if value not in get_args(OnThrottle):
        raise InvalidOption(
            f'on_throttle is {value!r}: it must be "reject" (a call above the rate raises Throttled) or "park" (its '
            "job waits in the backlog)."
        )
    return cast("OnThrottle", value)


def require_fields(
    function: Callable[..., Any], debounce: Debounce | None, singleton: Singleton | None, *, takes_context: bool
) -> None:
    """Raises InvalidOption for a field that cannot be filled in from the arguments of a job."""
    for option, given in (("debounce", debounce), ("singleton", singleton)):
        if given is not None and given.parts is not None:
            where = f"{option} has the key {given.key!r}"
            require_known(function, where, patterns.fields(given.parts), takes_context=takes_context)


def require_room(keys: Sequence[Key], singleton: Singleton | None) -> None:
    """Raises InvalidOption for more concurrency keys than a job has beside that of its singleton."""
    if singleton is not None and singleton.waits and len(keys) >= KEYS_MAX:
        raise InvalidOption(
            f"singleton has mode={singleton.mode!r}, which takes one of the {KEYS_MAX} concurrency keys of a job, and "
            f"concurrency has {len(keys)}: leave one of them out."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What one job has of both."""

    debounce: DebounceUse | None = None
    singleton: SingletonUse | None = None
    keys: tuple[KeyUse, ...] = ()
    """A concurrency key by which a job waits for the one before it; only of singletons that may."""


NONE = Filled()


def fill_in(
    function: Callable[..., Any],
    task: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    debounce: Debounce | None,
    singleton: Singleton | None,
    tenant: str,
    takes_context: bool = False,
    is_hidden: Callable[[str], bool] = lambda name: False,
) -> Filled:
    """Both options for one job. Raises InvalidOption for arguments that do not fit."""
    if debounce is None and singleton is None:
        return NONE
    option = "singleton" if debounce is None else "debounce"
    values = bound(function, args, kwargs, takes_context=takes_context, option=option)
    if takes_context:
        values.pop(next(iter(values)))
    keys: tuple[KeyUse, ...] = ()
    window = single = None
    if debounce is not None:
        text = _text("debounce", debounce.parts, values | {TENANT_FIELD: tenant})
        window = DebounceUse(digest=digest(f"{task}\n{text}"), period_ms=debounce.period_ms, most_ms=debounce.most_ms)
    if singleton is not None:
        if singleton.parts is None:
            text, shown = _all(values), "equal arguments"
        else:
            text = _text("singleton", singleton.parts, values | {TENANT_FIELD: tenant})
            hidden = {name: "********" for name in values if is_hidden(name)}
            shown = _text("singleton", singleton.parts, values | {TENANT_FIELD: tenant} | hidden)
        # A line end stands in no pattern and no text of a concurrency key: neither can be taken for a singleton's.
        single = SingletonUse(digest=digest(f"singleton\n{tenant}\n{task}\n{text}"), mode=singleton.mode)
        if singleton.waits:
            keys = (
                KeyUse(
                    digest=single.digest,
                    text=_shown(f"singleton of {task}: {shown}"),
                    limit=1,
                    pattern=SINGLETON_PATTERN,
                ),
            )
    return Filled(debounce=window, singleton=single, keys=keys)


SINGLETON_PATTERN = digest("singleton\n")
"""No pattern that an admin could type has it, so that no limit but 1 is ever configured."""


def _all(values: Mapping[str, Any]) -> str:
    try:
        return spelling(values)
    except (TypeError, ArithmeticError) as error:  # a default: what was given is JSON by now
        raise InvalidOption(
            f"singleton has no key, and the arguments of the job cannot stand for one: {error}. Give it a key that "
            "names the parameters that count."
        ) from None


def _text(option: str, parts: Parts, values: Mapping[str, Any]) -> str:
    return "".join(before + ("" if name is None else _spelt(option, name, values[name])) for before, name in parts)


def _spelt(option: str, name: str, value: object) -> str:
    try:
        return spelling(value)
    except (TypeError, ArithmeticError):  # a default: what was given is JSON by now
        raise InvalidOption(
            f"{option} has a key with the field {name!r}, whose value is of the type {type(value).__name__} here and "
            "cannot stand in a text: give the parameter another default, or leave it out of the key."
        ) from None


def _shown(text: str) -> str:
    plain = "".join(character if character.isprintable() else "?" for character in text).encode(errors="replace")
    return plain[:TEXT_MAX_BYTES].decode(errors="ignore")


def _parse(option: str, key: object) -> Parts:
    try:
        return patterns.parse(key)
    except ValueError as error:
        raise InvalidOption(f"{option} has the key {key!r}: it {error}.") from None


def _milliseconds(name: str, value: object) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds <= PERIOD_MAX_S:
        raise InvalidOption(
            f"debounce has {name}={value!r}: it must be seconds (or a timedelta) above 0 and up to a year."
        )
    return max(1, round(seconds * 1000))
