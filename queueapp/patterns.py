"""The form of a concurrency key's pattern, `customer:{customer_id}`: text, and fields in braces. Pure.

`producer.concurrency` fills the fields in; `validators` refuses rows of a form that no task could have.
"""

from __future__ import annotations

import string

PATTERN_MAX = 200
TEXT_MAX_BYTES = 256
"""Of a key whose fields are filled in."""
TENANT_FIELD = "tenant"
"""The field that stands for the job's tenant."""

FORM_WORDS = (
    f"text of 1 to {PATTERN_MAX} printable characters, with names of parameters in braces, "
    'such as "customer:{customer_id}"'
)

Parts = tuple[tuple[str, str | None], ...]
"""What stands before a field, and the field; None behind the last one."""


def parse(pattern: object) -> Parts:
    """The parts of a pattern. ValueError, in words that follow "it", says what no pattern may have."""
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= PATTERN_MAX or not pattern.isprintable():
        raise ValueError(f"must be {FORM_WORDS}")
    try:
        parts = [*string.Formatter().parse(pattern)]
    except ValueError:
        raise ValueError("has a brace without its other one; write {{ or }} for a brace that is meant") from None
    for _, name, spec, conversion in parts:
        if name is None:
            continue
        if spec or conversion:
            raise ValueError(f"formats the field {{{name}}}; a field stands alone, as in {{{name or 'name'}}}")
        if not name.isidentifier():
            raise ValueError(f"has {{{name}}}; a field is the name of a parameter, with no attribute, item or number")
    return tuple((text, name) for text, name, _, _ in parts)


def fields(parts: Parts) -> tuple[str, ...]:
    """The names of the fields, each once, in order."""
    return tuple(dict.fromkeys(name for _, name in parts if name is not None))
