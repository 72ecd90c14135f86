"""How long a failed job waits before another attempt. Public as `queueapp.backoff`.

A backoff is `(exception, errors) -> seconds or None`: `errors` counts the failed attempts so far, the last one
included; None asks for no other attempt. Whether one is left at all is decided by `max_attempts`, in the store.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from queueapp.conf import settings
from queueapp.errors import InvalidOption
from queueapp.setting_readers import Backoff, Delay

__all__ = ["Backoff", "Exponential", "Fixed", "Retry", "exponential", "fixed"]

DELAY_MAX_S = 10 * 365 * 86_400


class Retry(Exception):
    """Raised by a task that wants another attempt, after `delay` seconds (or a timedelta) if given.

    It counts as an error: it is an attempt of `max_attempts`. `raise Retry(delay=30) from error` keeps the cause.
    """

    def __init__(self, message: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(message or "another attempt was asked for")
        self.delay_s = None if delay is None else _seconds(delay, "Retry(delay=...)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """`first_s`, multiplied by `factor` after each error, never above `maximum_s`.

    With jitter a delay is drawn evenly from 0 to that bound, so that jobs that failed together do not return together.
    """

    first_s: float = 5.0
    factor: float = 2.0
    maximum_s: float = 600.0
    jitter: bool = True

    def __call__(self, exception: BaseException, errors: int) -> float:
        # The exponent is capped: a factor to the power of thousands overflows long after the maximum is reached.
        bound_s = min(self.maximum_s, self.first_s * self.factor ** min(max(errors, 1) - 1, 64))
        return random.uniform(0, bound_s) if self.jitter else bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The same delay every time."""

    delay_s: float

    def __call__(self, exception: BaseException, errors: int) -> float:
        return self.delay_s


def exponential(
    first: float | timedelta = 5, factor: float = 2, maximum: float | timedelta = 600, *, jitter: bool = True
) -> Exponential:
    """Delays of `first` seconds, times `factor` after each error, up to `maximum` seconds."""
    number: object = factor
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 1 <= number <= 100:
        raise InvalidOption(f"backoff.exponential(factor={factor!r}): it must be a number from 1 to 100.")
    flag: object = jitter
    if not isinstance(flag, bool):
        raise InvalidOption(f"backoff.exponential(jitter={jitter!r}): it must be True or False.")
    first_s, maximum_s = (
        _seconds(first, "backoff.exponential(first)"),
        _seconds(maximum, "backoff.exponential(maximum)"),
    )
    return Exponential(first_s=first_s, factor=float(factor), maximum_s=maximum_s, jitter=jitter)


def fixed(delay: float | timedelta) -> Fixed:
    """Always `delay` seconds."""
    return Fixed(delay_s=_seconds(delay, "backoff.fixed(delay)"))


def coerce(value: object, name: str = "backoff") -> Delay:
    """What a user gave as a backoff: seconds and timedelta become `Fixed`, a callable stays."""
    if callable(value):
        return cast("Delay", value)
    return Fixed(delay_s=_seconds(value, name))


def delay_s(backoff: Backoff | None, exception: BaseException, errors: int) -> float | None:
    """Seconds before another attempt of a job that failed `errors` times; None when the backoff asks for none.

    A `Retry` with a delay decides for itself. Without a backoff of the task the setting `BACKOFF` holds.
    """
    if isinstance(exception, Retry) and exception.delay_s is not None:
        return exception.delay_s
    chosen = backoff if backoff is not None else settings.backoff
    asked = coerce(chosen if chosen is not None else Exponential())(exception, errors)
    return None if asked is None else _seconds(asked, "the value of a backoff")


def to_options(backoff: Backoff) -> dict[str, Any] | None:
    """A backoff as JSON values, to travel with one job; None for a callable of the host's own."""
    match backoff:
        case Exponential():
            return {
                "first": backoff.first_s,
                "factor": backoff.factor,
                "maximum": backoff.maximum_s,
                "jitter": backoff.jitter,
            }
        case Fixed():
            return {"delay": backoff.delay_s}
    return None


def from_options(options: Mapping[str, Any]) -> Backoff:
    """The backoff that `to_options` was given. Raises InvalidOption for what it does not give."""
    known = {"delay"} if "delay" in options else {"first", "factor", "maximum", "jitter"}
    for name in options:
        if name not in known:
            raise InvalidOption(
                f"backoff has {name!r}: it must be an object of first, factor, maximum and jitter, or of delay alone."
            )
    return fixed(options["delay"]) if "delay" in options else exponential(**options)


def _seconds(value: object, name: str) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= DELAY_MAX_S:
        raise InvalidOption(f"{name} is {value!r}: it must be seconds (or a timedelta) from 0 to ten years.")
    return float(seconds)
