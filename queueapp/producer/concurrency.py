"""`Key`: at most so many jobs at once that share a value of their arguments. Declared on tasks, filled in at enqueue.

A key belongs to the pool: jobs of different tasks, or of different tenants, whose keys read the same share its slots.
A pattern with `{tenant}` keeps tenants apart. `options` reads the option `concurrency` through this module, and
`preparation` fills the keys of a job in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from queueapp import patterns
from queueapp.codec import digest, spelling
from queueapp.errors import InvalidOption
from queueapp.patterns import TENANT_FIELD, TEXT_MAX_BYTES, Parts
from queueapp.producer.signatures import signature
from queueapp.store.records import KEYS_MAX, KeyUse

LIMIT_MAX = 1_000_000
HIDDEN = "********"
"""What stands for a value that nobody is shown; the digest is that of the value all the same."""
SINGLE = (str, int, float, UUID, Decimal, date, time)
"""Types of values that a key may have. A datetime is a date, a bool an int; an enumeration may derive from one."""


@dataclass(frozen=True, slots=True)
class Key:
    """At most `limit` jobs at once whose `pattern` reads the same with its fields filled in.

    A field is a parameter of the task's function, or `tenant`: `Key("customer:{customer_id}", limit=2)`.
    """

    pattern: str
    limit: int
    parts: Parts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            parts = patterns.parse(self.pattern)
        except ValueError as error:
            raise InvalidOption(f"concurrency has the pattern {self.pattern!r}: it {error}.") from None
        limit: object = self.limit
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIMIT_MAX:
            raise InvalidOption(
                f"concurrency has Key({self.pattern!r}, limit={limit!r}): limit must be a whole number from 1 to "
                f"{LIMIT_MAX}. To close a key for a while, give it the limit 0 in the admin."
            )
        object.__setattr__(self, "parts", parts)


def read(value: object) -> tuple[Key, ...]:
    """The option as a task keeps it. Raises InvalidOption."""
    keys = (value,) if isinstance(value, Key) else value
    if not isinstance(keys, (list, tuple)) or not all(isinstance(key, Key) for key in keys) or len(keys) > KEYS_MAX:
        raise InvalidOption(
            f"concurrency is {value!r}: it must be queueapp.Key(pattern, limit), or a list of up to {KEYS_MAX} of them."
        )
    found = [key.pattern for key in keys]
    for pattern in found:
        if found.count(pattern) > 1:
            raise InvalidOption(
                f"concurrency has the pattern {pattern!r} twice: it must be there once, with one limit."
            )
    return tuple(keys)


def require_fields(function: Callable[..., Any], keys: Sequence[Key], *, takes_context: bool) -> None:
    """Raises InvalidOption for a field that cannot be filled in from the arguments of a job."""
    if not keys:
        return
    for key in keys:
        where = f"concurrency has the pattern {key.pattern!r}"
        require_known(function, where, patterns.fields(key.parts), takes_context=takes_context)


def require_known(function: Callable[..., Any], where: str, names: Sequence[str], *, takes_context: bool) -> None:
    """Raises InvalidOption, beginning with `where`, for a field that is no parameter of the function, nor `tenant`."""
    parameters = signature(function).parameters
    context = next(iter(parameters), None) if takes_context else None
    named = {
        name
        for name, parameter in parameters.items()
        if name != context and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    for name in names:
        if name == TENANT_FIELD and name in named:
            raise InvalidOption(
                f"{where} with the field {name!r}, which is the job's tenant and also a parameter of "
                f"{function.__name__}: rename the parameter; it must be clear which of them is meant."
            )
        if name != TENANT_FIELD and name not in named:
            known = ", ".join(sorted(named)) or "none"
            raise InvalidOption(
                f"{where} with the field {name!r}: it must be a parameter of {function.__name__}, or 'tenant'. "
                f"Parameters that hold one value: {known}."
            )


def fill_in(
    function: Callable[..., Any],
    keys: Sequence[Key],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    tenant: str,
    takes_context: bool = False,
    is_hidden: Callable[[str], bool] = lambda name: False,
) -> tuple[KeyUse, ...]:
    """The keys of one job. Raises InvalidOption for arguments that do not fit, or give no text for a field.

    Of keys that read the same the least limit holds. `is_hidden` says of which parameters nobody is shown the value.
    """
    if not keys:
        return ()
    values = bound(function, args, kwargs, takes_context=takes_context)
    values[TENANT_FIELD] = tenant
    uses: dict[str, KeyUse] = {}
    for key in keys:
        text = shown = ""
        for before, name in key.parts:
            value = "" if name is None else _text(key, name, values[name])
            text += before + value
            shown += before + (HIDDEN if name not in (None, TENANT_FIELD) and is_hidden(name) else value)
        if not 1 <= len(text.encode(errors="surrogatepass")) <= TEXT_MAX_BYTES or not text.isprintable():
            raise InvalidOption(
                f"concurrency has the key {key.pattern!r}, which reads {shown[:80]!r} here: filled in, it must be 1 to "
                f"{TEXT_MAX_BYTES} bytes of printable text. Use an id, or a digest of what is longer."
            )
        if len(shown.encode()) > TEXT_MAX_BYTES:  # many short values that are hidden
            shown = HIDDEN
        use = KeyUse(digest=digest(text), text=shown, limit=key.limit, pattern=digest(key.pattern))
        known = uses.get(use.digest)
        if known is None or use.limit < known.limit:
            uses[use.digest] = use
    return tuple(uses[name] for name in sorted(uses))


def _text(key: Key, name: str, value: object) -> str:
    """The value as JSON has it, text and what JSON has no word for without quotes: who calls in Python and who calls
    over REST mean the same key, and so do 1, 1.0 and Decimal("1.00")."""
    if not isinstance(value, SINGLE):
        what = "None" if value is None else f"of the type {type(value).__name__}"
        if isinstance(value, Enum):
            what += ", whose value is to be the default instead,"
        raise InvalidOption(
            f"concurrency has the key {key.pattern!r}, whose field {name!r} is {what} here: it must be one value "
            "(text, a number, a UUID, a moment). Jobs that need no key take .using(concurrency=[])."
        )
    if isinstance(value, str):
        return str.__str__(value)  # of an enumeration its value, as the payload has it
    try:
        spelt = spelling(value)
    except (TypeError, ArithmeticError):
        raise InvalidOption(
            f"concurrency has the key {key.pattern!r}, whose field {name!r} is of the type {type(value).__name__} here "
            "and has a value that cannot stand in a text. Jobs that need no key take .using(concurrency=[])."
        ) from None
    return str(json.loads(spelt)) if spelt.startswith('"') else spelt


def bound(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    takes_context: bool,
    option: str = "concurrency",
) -> dict[str, Any]:
    """Parameter → its value, defaults included. Raises InvalidOption for arguments that do not fit the function."""
    try:
        found = signature(function).bind(*((None,) if takes_context else ()), *args, **kwargs)
    except TypeError as error:
        raise InvalidOption(
            f"{option} has keys that cannot be filled in: the arguments do not fit {function.__name__}: {error}."
        ) from None
    found.apply_defaults()
    return dict(found.arguments)
