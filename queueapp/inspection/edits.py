"""Arguments as somebody has edited them, put together with those that are there; and what differs. Pure.

Whoever edits sees arguments as `masking` shows them: a hidden value as its mask, what JSON has no word for as text.
What they left as they saw it is taken from the job itself, so that a mask never becomes a value and a UUID stays one. A
mask stands for the value of its own place and of no other: moved, it would show a secret under another name, or give it
to another item of a list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from queueapp import tags
from queueapp.errors import InvalidOption
from queueapp.inspection.masking import HIDDEN


class _Absent:
    """Nothing stands there."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One place whose value differs. Both sides are masked; `ABSENT` where nothing stands."""

    place: str
    """`args[0]`, `kwargs.address.zip`."""
    before: Any
    after: Any

    @property
    def words(self) -> str:
        """Before and after, for people."""
        if self.before == HIDDEN == self.after:
            return f"{HIDDEN} → another hidden value"
        return f"{spelt(self.before)} → {spelt(self.after)}"


def parsed(text: str, place: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """Arguments as somebody typed them, as JSON. Raises InvalidOption, beginning with `place`."""
    what = 'a list, such as ["a", 1]' if kind is list else 'a mapping, such as {"amount": 5}'
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"{place} is no JSON: {error}. It must be {what}.") from None
    if not isinstance(value, kind):
        raise InvalidOption(f"{place} must be {what}.")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands there twice")
    return found


def spelt(value: Any, most: int = 200) -> str:
    """A masked value as JSON, cut where it is long."""
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def merged(given: Any, shown: Any, original: Any, place: str) -> Any:
    """What is meant by `given`, where `shown` was seen of `original`. Raises InvalidOption, naming the place."""
    if _same(given, shown):
        return original
    if given == HIDDEN:
        raise _misplaced(place)
    if isinstance(given, dict):
        known, values = (each if isinstance(each, dict) else {} for each in (shown, original))
        return {
            name: merged(item, known.get(name, ABSENT), values.get(name, ABSENT), f"{place}.{name}")
            for name, item in given.items()
        }
    if isinstance(given, list):
        return _merged_list(given, shown, original, place)
    if not isinstance(given, str):
        return given
    try:
        return tags.like(original, given)
    except ValueError as error:
        raise InvalidOption(f"{place} was a {type(original).__name__}, and now {error}: {spelt(given, 60)}.") from None


def _merged_list(given: list[Any], shown: Any, original: Any, place: str) -> list[Any] | tuple[Any, ...]:
    seen = shown if isinstance(shown, list) else []
    known = isinstance(original, (list, tuple)) and len(original) == len(seen)
    values: Sequence[Any] = original if known else [ABSENT] * len(seen)
    for position, item in enumerate(given):
        if not _has_mask(item):
            continue
        elsewhere = any(_same(item, other) for other in seen)
        if len(given) != len(seen) or (elsewhere and not _same(item, seen[position])):
            raise InvalidOption(
                f"{place} holds hidden values: its items must stay in their order and number, or be written out whole."
            )
    more = [ABSENT] * (len(given) - len(seen))
    sides = zip(given, [*seen, *more], [*values, *more], strict=False)
    items = [merged(item, seen_, value, f"{place}[{at}]") for at, (item, seen_, value) in enumerate(sides)]
    return tuple(items) if isinstance(original, tuple) else items


def differences(
    old: Any, new: Any, shown_old: Any, shown_new: Any, place: str = "", *, depth: int = 0
) -> Iterator[Change]:
    """Where two values differ, told by what may be shown of each."""
    old, new = tags.readable(old) if depth == 0 else old, tags.readable(new) if depth == 0 else new
    if _same(old, new):
        return
    told = HIDDEN not in (shown_old, shown_new)
    if told and isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            one, other = old.get(name, ABSENT), new.get(name, ABSENT)
            of_one, of_other = _part(name, shown_old), _part(name, shown_new)
            yield from differences(one, other, of_one, of_other, f"{place}.{name}", depth=depth + 1)
    elif told and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, (one, other) in enumerate(zip(old, new, strict=True)):
            of_one, of_other = _part(at, shown_old), _part(at, shown_new)
            yield from differences(one, other, of_one, of_other, f"{place}[{at}]", depth=depth + 1)
    else:
        yield Change(
            place=place,
            before=ABSENT if old is ABSENT else shown_old,
            after=ABSENT if new is ABSENT else shown_new,
        )


def _part(name: Any, shown: Any) -> Any:
    """What is shown at `name`; hidden where that is not told."""
    if isinstance(shown, dict):
        return shown.get(name, HIDDEN)
    return shown[name] if isinstance(shown, list) and isinstance(name, int) and name < len(shown) else HIDDEN


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON has them: 1, 1.0 and true are three values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(item, other[name]) for name, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _has_mask(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    if isinstance(value, list):
        return any(map(_has_mask, value))
    return bool(value == HIDDEN)


def _misplaced(place: str) -> InvalidOption:
    return InvalidOption(
        f"{place} is {HIDDEN}, which stands for a hidden value where one is. Nothing is hidden there: write the value."
    )
