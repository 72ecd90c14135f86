"""Loads the Lua transitions: expands their includes, reads their header contracts, makes functions of them.

A script is `lua/<name>.lua`. Its first comment lines are a contract, which `tests/lua/test_contract.py` compares with
the body, with `Store` and with `errors.REFUSALS`:

    #!lua flags=...            how the server may run it
    -- <name>: <from> → <to>   one sentence
    -- KEYS: prefix            always the shard's bare prefix
    -- ARGV: schema clock_ms … the single arguments, by name (`schema`: those that the caller works with, `accepted`)
    -- Groups: name(field …) … repeated rows at the end; their counts follow the single arguments
    -- Refusals: …             codes of `{0, code, …}`
    -- Events: …               what else it writes that somebody waits for

Callers pass arguments by name; a wrong or missing name is a TypeError before the server sees anything. Each is called
as a function of the server (`libraries`) or, where the server takes no functions, as a script (`sending`): one text.
What the server does not know (restart, failover, a flush) is loaded and called again; nothing has run by then.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from queueapp.store.libraries import library

SCHEMA = "1"
"""Number of the layout of rows and keys that this release writes into a new shard."""
EARLIER: tuple[str, ...] = ()
"""Layouts that its scripts still read and write: the one before, so that a new release works on a shard of the old one
until `manage.py ductor upgrade` has converted it (`upgrades.py`). A script branches on `pool.schema` where they differ.
"""


OBLITERATING = "obliterating"
"""Stands in place of a shard's schema while it is emptied; the script that does it is the only one that takes it."""


def accepted() -> str:
    """ARGV[1] of every script: the schemas that this release works with, its own first."""
    return " ".join((SCHEMA, *EARLIER))


Argument = str | bytes | int | float
PREFIX = "ductor_"
"""The names of all our libraries begin with it."""
INCLUDE = re.compile(r'^--- @include "([a-z_]+)"\n', re.MULTILINE)
CONTRACT = re.compile(r"^-- (KEYS|ARGV|Groups|Refusals|Events):[ ]?(.*)$", re.MULTILINE)
GROUP = re.compile(r"([a-z_]+)\(([a-z_ ]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One transition, ready to run: its assembled text and its contract."""

    name: str
    title: str
    text: bytes
    sha: str
    function: str
    """Its name as a function, and that of its library; no other text has the same."""
    library: bytes
    arguments: tuple[str, ...]
    """Names of ARGV after `schema` and `clock_ms`."""
    groups: Mapping[str, tuple[str, ...]]
    refusals: frozenset[str]

    def argv(
        self,
        clock_ms: int,
        arguments: Mapping[str, Argument],
        groups: Mapping[str, Sequence[Sequence[Argument]]],
    ) -> list[Argument]:
        """ARGV in the order of the contract. Raises TypeError for a missing or unknown name or a row of wrong width."""
        if set(arguments) != set(self.arguments) or set(groups) != set(self.groups):
            raise TypeError(
                f"{self.name} takes {sorted(self.arguments)} and groups {sorted(self.groups)}, "
                f"got {sorted(arguments)} and {sorted(groups)}"
            )
        schemas = f"{accepted()} {OBLITERATING}" if self.name == "obliterate" else accepted()
        argv: list[Argument] = [schemas, clock_ms]
        argv.extend(arguments[name] for name in self.arguments)
        argv.extend(len(groups[name]) for name in self.groups)
        for name, fields in self.groups.items():
            for row in groups[name]:
                if len(row) != len(fields):
                    raise TypeError(f"{self.name}: a row of {name} has {fields}, got {len(row)} values")
                argv.extend(row)
        return argv


def source(path: str) -> str:
    """Text of a file below `lua/`."""
    return resources.files("queueapp.store").joinpath("lua", path).read_text(encoding="utf-8")


def expand(text: str, included: set[str] | None = None) -> str:
    """`text` with each `--- @include "x"` replaced by that file, each file once."""
    seen = set() if included is None else included

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return expand(source(f"include/{name}.lua"), seen)

    return INCLUDE.sub(replacement, text)


def minify(text: str) -> str:
    """`text` without comment lines and indentation: the server hashes and keeps less. The shebang stays."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--")) + "\n"


@functools.cache
def script(name: str) -> Script:
    """The transition `name`, assembled. FileNotFoundError when there is none."""
    return assemble(name, source(f"{name}.lua"))


def assemble(name: str, text: str) -> Script:
    """The transition whose file has this text."""
    contract = {key: value.strip() for key, value in CONTRACT.findall(text)}
    assembled = minify(expand(text)).encode()
    sha = hashlib.sha1(assembled, usedforsecurity=False).hexdigest()
    function = f"{PREFIX}{name}_{sha[:12]}"
    return Script(
        name=name,
        title=text.splitlines()[1].removeprefix(f"-- {name}: "),
        text=assembled,
        sha=sha,
        function=function,
        library=library(function, *_parts(text)).encode(),
        arguments=tuple(contract["ARGV"].split()[2:]),
        groups={group: tuple(fields.split()) for group, fields in GROUP.findall(contract["Groups"])},
        refusals=frozenset(contract["Refusals"].split()),
    )


def _parts(text: str) -> tuple[str, str, list[str]]:
    """Of a script: what it includes before anything else, what it does with it, and its flags."""
    shebang, *lines = text.splitlines(keepends=True)
    first = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
    included: set[str] = set()
    before, body = (expand("".join(part), included) for part in (lines[:first], lines[first:]))
    flags = shebang.removeprefix("#!lua").strip().removeprefix("flags=")
    return before, body, flags.split(",") if flags else []


def names() -> list[str]:
    """Every transition, sorted."""
    folder = resources.files("queueapp.store").joinpath("lua")
    return sorted(entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua"))
