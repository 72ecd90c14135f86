"""What a step takes of its run: values that exist only when the run does, and conditions on them. Pure.

In a definition they are `Value` objects; what is kept of them is an *expression*, a JSON list whose first item says
what it is, so that a definition is data: it can be stored with its runs, compared, drawn and evaluated without the code
that declared it.

    ["value", 5]                              as it stands
    ["ref", "validate", "output", ["rows"]]   part of what a step left; of the step "" the run's own input
    ["list", [...]], ["map", {...}]           made of expressions
    ["either", [...]]                         the first that is there
    ["is", "<", a, b], ["all", [...]], ["any", [...]], ["not", a]
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from flows.errors import FlowInvalid, InvalidInput, InvalidValue

Json = Any
"""None, bool, int, float, str, and lists and dictionaries of them."""
Expression = list[Any]
Lookup = Callable[[str, str], Json]
"""(step, part) → value. Raises Absent for a step that left nothing."""

INPUT = ""
"""The step that stands for the run's own input."""
MAX_DEPTH = 100
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Withheld:
    """Stands for a value that was too large to be loaded for a tick, and for the results of a map."""

    def __bool__(self) -> bool:
        raise InvalidValue("A condition looks at a value that is too large for one: return what it needs by itself.")


WITHHELD = Withheld()


class Absent(Exception):
    """The step was skipped, or failed where it may: it left no value."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


class Value:
    """A value that a run will have. `[...]` takes a part of it; comparisons, `&`, `|` and `~` make conditions."""

    __slots__ = ("expression",)
    __hash__ = None  # type: ignore[assignment]  # `==` makes a condition

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __getitem__(self, key: str | int) -> Value:
        match self.expression:
            case ["ref", step, part, path] if part != "results":
                return Value(["ref", step, part, [*path, key]])
        raise FlowInvalid(f"{self!r}[{key!r}]: only what a plain step returned, an event or an input has parts.")

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: object) -> Value:
        return self._compared("<", other)

    def __le__(self, other: object) -> Value:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Value:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Value:
        return self._compared(">=", other)

    def __and__(self, other: object) -> Value:
        return Value(["all", [self.expression, to_expression(other, "&")]])

    def __or__(self, other: object) -> Value:
        return Value(["any", [self.expression, to_expression(other, "|")]])

    def __invert__(self) -> Value:
        return Value(["not", self.expression])

    # What Python would do at import, when there is no value yet. `__iter__`: or `[...]` would be asked without end.
    def __bool__(self) -> bool:
        self._refuse("asked whether it is true", "give the condition to the step: when=...")

    def __iter__(self) -> Iterator[Any]:
        self._refuse("iterated over", "use map_step(task, items)")

    def __len__(self) -> int:
        self._refuse("measured", "do it in a task")

    def __contains__(self, item: object) -> bool:
        self._refuse("searched", "do it in a task")

    def __str__(self) -> str:
        self._refuse("made a text", "give it to the task as an argument")

    def __repr__(self) -> str:
        return f"<{describe(self.expression)}>"

    def _compared(self, sign: str, other: object) -> Value:
        return Value(["is", sign, self.expression, to_expression(other, sign)])

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise FlowInvalid(f"{self!r} is {what} while the flow is defined, when there is no run: {remedy}.")


def either(*choices: object) -> Value:
    """The first of these that is there: a branch that was taken, the output of a step that has not failed, or a plain
    value at the end, for when none is."""
    if len(choices) < 2:
        raise FlowInvalid(f"either() was given {len(choices)} values: it chooses between two or more.")
    return Value(["either", [to_expression(choice, f"either[{index}]") for index, choice in enumerate(choices)]])


def to_expression(value: object, where: str, depth: int = 0) -> Expression:
    """What is kept of an argument: plain JSON, Values, or lists and dictionaries of both. Raises FlowInvalid."""
    if isinstance(value, Value):
        return value.expression
    if depth < MAX_DEPTH and isinstance(value, (list, tuple)):
        parts = [to_expression(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
        return ["value", [part[1] for part in parts]] if _plain(parts) else ["list", parts]
    if depth < MAX_DEPTH and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        named = {key: to_expression(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}
        if _plain(list(named.values())):
            return ["value", {key: part[1] for key, part in named.items()}]
        return ["map", named]
    return ["value", _scalar(value, where, FlowInvalid)]


def to_json(value: object, where: str, depth: int = 0) -> Json:
    """An input or an output as JSON has it. Raises InvalidInput with the path of what cannot be written."""
    if depth < MAX_DEPTH and isinstance(value, (list, tuple)):
        return [to_json(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    if depth < MAX_DEPTH and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {
            _scalar(key, where, InvalidInput): to_json(item, f"{where}[{key!r}]", depth + 1)
            for key, item in value.items()
        }
    return _scalar(value, where, InvalidInput)


def evaluate(expression: Expression, lookup: Lookup) -> Json:
    """The value. Raises Absent for a step that left none, InvalidValue for a part that is not there."""
    match expression:
        case ["value", value]:
            return value
        case ["ref", step, part, path]:
            return _walk(lookup(step, part), step, path)
        case ["list", parts]:
            return [evaluate(part, lookup) for part in parts]
        case ["map", parts]:
            return {key: evaluate(part, lookup) for key, part in parts.items()}
        case ["either", [*first, last]]:
            for choice in first:
                try:
                    return evaluate(choice, lookup)
                except Absent:
                    continue
            return evaluate(last, lookup)
        case ["is", sign, left, right]:
            pair = evaluate(left, lookup), evaluate(right, lookup)
            try:
                if WITHHELD in pair:
                    bool(WITHHELD)
                return COMPARISONS[sign](*pair)
            except TypeError:
                kinds = " and ".join(type(value).__name__ for value in pair)
                raise InvalidValue(f"{describe(expression)} cannot be told: it compares {kinds}.") from None
        case ["all", parts]:
            return all(evaluate(part, lookup) for part in parts)
        case ["any", parts]:
            return any(evaluate(part, lookup) for part in parts)
        case ["not", part]:
            return not evaluate(part, lookup)
    raise InvalidValue(f"{expression!r} is no expression that this version of Ductor can read.")


def references(expression: Expression) -> Iterator[tuple[str, str]]:
    """Each (step, part) that the expression takes something of, but for the run's input."""
    match expression:
        case ["ref", step, part, _]:
            if step != INPUT:
                yield step, part
        case ["list" | "either" | "all" | "any", parts]:
            for part in parts:
                yield from references(part)
        case ["map", parts]:
            for part in parts.values():
                yield from references(part)
        case ["is", _, left, right]:
            yield from references(left)
            yield from references(right)
        case ["not", part]:
            yield from references(part)


def describe(expression: Expression) -> str:
    """For people: `validate["rows"] > 0`."""
    match expression:
        case ["value", value]:
            return repr(value)
        case ["ref", step, part, path]:
            first = str(path[0]) if step == INPUT and path else step + ("" if part == "output" else f".{part}")
            return first + "".join(f"[{key!r}]" for key in (path[1:] if step == INPUT else path))
        case ["list", parts]:
            return f"[{', '.join(map(describe, parts))}]"
        case ["map", parts]:
            return "{" + ", ".join(f"{key!r}: {describe(part)}" for key, part in parts.items()) + "}"
        case ["either", parts]:
            return f"either({', '.join(map(describe, parts))})"
        case ["is", sign, left, right]:
            return f"{describe(left)} {sign} {describe(right)}"
        case ["all" | "any" as word, parts]:
            return "(" + f" {'and' if word == 'all' else 'or'} ".join(map(describe, parts)) + ")"
        case ["not", part]:
            return f"not {describe(part)}"
    return repr(expression)


def _walk(value: Json, step: str, path: list[str | int]) -> Json:
    for depth, key in enumerate(path):
        if value is WITHHELD:
            return value
        try:
            if isinstance(key, str) != isinstance(value, dict) or not isinstance(value, (dict, list)):
                raise KeyError(key)
            value = value[key]  # type: ignore[index]  # a text is a dictionary's key, a number a list's
        except LookupError:
            asked = describe(["ref", step, "output", path[: depth + 1]])
            raise InvalidValue(f"{asked} is not there: {step or 'the input'} gave {_shown(value)}.") from None
    return value


def _shown(value: Json) -> str:
    if isinstance(value, dict):
        return f"a dictionary with the keys {', '.join(sorted(value)[:10]) or 'none'}"
    return f"a list of {len(value)}" if isinstance(value, list) else f"a value of the type {type(value).__name__}"


def _plain(parts: list[Expression]) -> bool:
    return all(part[0] == "value" for part in parts)


def _scalar(value: object, where: str, error: type[FlowInvalid] | type[InvalidInput]) -> Json:
    finite = not isinstance(value, float) or math.isfinite(value)
    if isinstance(value, str) and ("\0" in value or not _is_utf8(value)):
        raise error(
            f"{where} has the character U+0000, or half of a surrogate pair, which databases do not take: clean the "
            "text first."
        )
    if value is None or (isinstance(value, (bool, int, float, str)) and finite):
        return value
    raise error(
        f"{where} is {value!r}: it must be JSON, that is text, numbers that are finite, true, false, null, lists, and "
        "dictionaries with keys that are text."
    )


def _is_utf8(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
