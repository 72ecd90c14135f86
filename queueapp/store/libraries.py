"""A transition as a library of server functions: what a script would make anew in every call is made once, at its load.

A script makes all its Lua functions each time it is called, which is most of the time of a small call. A library makes
them when the server loads it. The text is the same; `library` parts it in two:

    definitions   functions, constants (upper-case names with a plain value, or a table of such): made at the load
    the rest      variables and statements, which stand for one call: put into functions of their own (`R[1]`, `R[2]` …)
                  that run at the start of each call, in the order of the text

So a variable of the file is set anew in each call, whatever the last one left there. A table that has methods
(`function once.holders(…)`) is a new one, too, that finds them in the one that was made at the load (`M[n]`). Blocks
(`do … end`) are parted in the same way; their own names stay their own.

What the text must keep to, `tests/lua/test_libraries.py` sees to: a statement begins in column 0 of its block, and
nothing but a definition is expected to outlive a call. Pure; called by `scripts`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<comment>--\[\[.*?\]\]|--[^\n]*)
      | (?P<text>\[\[.*?\]\]|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<word>[A-Za-z_]\w*)
      | (?P<space>\s+)
      | (?P<other>\d[\w.]*|\.\.\.|\.\.|[=~<>]=|.)""",
    re.DOTALL | re.VERBOSE,
)
OPENS = frozenset({"function", "if", "repeat", "do", "(", "{", "["})
CLOSES = frozenset({"end", "until", ")", "}", "]"})
GOES_ON = frozenset({"end", "else", "elseif", "until", "then", "and", "or", "do"})
"""Words that go on with a statement where they stand in column 0."""
METHOD = re.compile(r"^function (\w+)\.", re.MULTILINE)
NAMED = re.compile(r"^function (\w+)\(", re.MULTILINE)
LOCAL = re.compile(r"local\s+([\w\s,]+?)\s*(?:=(?!=)\s*(.*))?$", re.DOTALL)
PLAIN = re.compile(r"""(?:'[^']*'|"[^"]*"|-?\d[\w.]*|true|false|\.\.|[\s+*])+""", re.DOTALL)
ITEM = rf"(?:\w+\s*=\s*)?(?:{PLAIN.pattern})"
TABLE = re.compile(rf"\{{\s*{ITEM}(?:,\s*{ITEM})*,?\s*\}}", re.DOTALL)
"""A table of plain values. Nothing may be put into one that is a constant."""
MOST = 40
"""Statements of one function: Lua allows it 60 names from outside."""


def without_comments(text: str) -> str:
    """The text without comments and empty lines."""
    kept = "".join("" if match["comment"] is not None else match[0] for match in TOKEN.finditer(text))
    return "\n".join(line.rstrip() for line in kept.split("\n") if line.strip())


def statements(text: str) -> Iterator[str]:
    """The statements of a chunk or of the inside of a block, without comments in it."""
    depth, starts = 0, []
    for match in TOKEN.finditer(text):
        if match["space"] is not None:
            continue
        at, token = match.start(), match[0]
        begins = match["word"] is not None and (token == "do" or token not in GOES_ON)
        if depth == 0 and begins and (at == 0 or text[at - 1] == "\n"):
            starts.append(at)
        if match["text"] is None:
            depth += (token in OPENS) - (token in CLOSES)
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield text[start:end].rstrip()


@dataclass(slots=True)
class Parted:
    """What becomes of a text: the definitions, and the calls that stand for the rest."""

    methods: frozenset[str]
    """Tables that have methods."""
    named: frozenset[str]
    """Functions that are defined apart from their declaration."""
    calls: list[str] = field(default_factory=list)
    tables: int = 0
    """How many tables with methods there are."""

    def part(self, text: str) -> str:
        """The definitions of a chunk, with the rest of it put into functions that `calls` calls."""
        out: list[str] = []
        rest: list[str] = []

        def close() -> None:
            if rest:
                number = len(self.calls) + 1
                out.append(f"R[{number}] = function()\n" + "\n".join(rest) + "\nend")
                refuses = any(re.search(r"\breturn\b", one) for one in rest)
                call = f"R[{number}]()"
                self.calls.append(f"do local r = {call} if r then return r end end" if refuses else call)
                rest.clear()

        for statement in statements(text):
            if re.match(r"do\s", statement):
                close()
                inside = statement[2:-3].strip("\n")
                out.append("do\n" + self.part(textwrap.dedent(inside)) + "\nend")
            elif re.match(r"(?:local )?function\b", statement):
                out.append(statement)
            elif (match := LOCAL.match(statement)) is not None:
                self._declare(match[1], match[2], out, rest)
            else:
                rest.append(statement)
            if len(rest) >= MOST:
                close()
        close()
        return "\n".join(out)

    def _declare(self, names: str, value: str | None, out: list[str], rest: list[str]) -> None:
        """A declaration of names, with a value or without."""
        if value is not None and names.isupper() and (PLAIN.fullmatch(value) or TABLE.fullmatch(value)):
            out.append(f"local {names} = {value}")
        elif names in self.methods:
            if value is None:
                raise ValueError(f"{names} has methods, and is made anew in each call: they would be gone")
            self.tables += 1
            out.append(f"local {names} = {{}}\n{names}.__index, M[{self.tables}] = {names}, {names}")
            rest.append(f"{names} = setmetatable({value}, M[{self.tables}])")
        else:
            out.append(f"local {names}")
            empty = [name for name in re.split(r"[\s,]+", names) if name not in self.named]
            if value is not None:
                rest.append(f"{names} = {value}")
            elif empty:
                rest.append(f"{', '.join(empty)} = nil")


def library(name: str, text: str, body: str, flags: Sequence[str]) -> str:
    """The library whose one function, called `name` like itself, does what the script `text` + `body` does.

    `text` holds the includes, `body` what the script itself does with them.
    """
    text = without_comments(text)
    methods = frozenset(METHOD.findall(text))
    parted = Parted(methods=methods, named=frozenset(NAMED.findall(text)))
    definitions = parted.part(text)
    listed = ", ".join(f"'{flag}'" for flag in flags)
    return "\n".join(
        [
            f"#!lua name={name}",
            "local KEYS, ARGV",
            "local R = {}",
            "local M = {}",
            definitions,
            f"redis.register_function{{function_name = '{name}', flags = {{{listed}}}, callback = function(keys, argv)",
            "KEYS, ARGV = keys, argv",
            *parted.calls,
            without_comments(body),
            "end}",
            "",
        ]
    )
