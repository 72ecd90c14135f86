"""`manage.py ductor doctor`: is everything fit to keep a queue, and what to do about what is not.

Exit code 0: well; 1: warnings; 2: errors, something does not work or may lose jobs.
"""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from queueapp.cli.console import Console, json_option
from queueapp.cli.diagnosis import examine
from queueapp.cli.table import as_json, printable, prose
from queueapp.store.fitness import Level, Remark

WORST: tuple[Level, ...] = ("error", "warning", "unknown", "note", "well")
WORDS: Mapping[Level, str] = {
    "error": "ERROR", "warning": "WARNING", "unknown": "could not be read", "note": "note", "well": "ok",
}  # fmt: skip
STYLES: Mapping[Level, str] = {
    "error": "bold red",
    "warning": "yellow",
    "unknown": "dim",
    "note": "cyan",
    "well": "green",
}
WARNINGS, ERRORS = 1, 2
OF_MAX = 24
"""Columns of the name of what is looked at; a pool's may be longer and goes on below."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "doctor",
        help="is everything fit to keep a queue, and what to do about what is not",
        description="Looks at settings, database, store, pools and outbox; changes nothing. Ends with 0 when all is "
        "well, 1 with warnings, 2 with errors.",
    )
    json_option(parser)


def run(options: Mapping[str, Any], console: Console) -> str:
    """What to print in the end; with warnings or errors, CommandError after printing."""
    found = list(examine())
    counted = Counter(remark.level for remark in found)
    code = ERRORS if counted["error"] else WARNINGS if counted["warning"] else 0
    if options["json"]:
        text = as_json({"exit": code, "remarks": [_mapping(remark) for remark in found]})
    else:
        shown = _rich(found, colour=not options.get("no_color")) if sys.stdout.isatty() else None
        text = shown or "\n".join(_line(remark) for remark in found)
    if not code:
        return text
    console.say(text)
    parts = [f"{counted[level]} {level}{'s' * (counted[level] != 1)}" for level in WORST[:2] if counted[level]]
    raise CommandError(f"{', '.join(parts)}.", returncode=code)


def _mapping(remark: Remark) -> dict[str, str]:
    return {name: value for name, value in asdict(remark).items() if name != "loses"}


def _line(remark: Remark) -> str:
    return prose(f"{WORDS[remark.level]}: {printable(remark.check)}: {printable(remark.sentence)}")


def _rich(found: Sequence[Remark], *, colour: bool) -> str | None:
    """A table, the worst first; what to do stands below what is so. None: rich is not installed."""
    try:
        from rich.console import Console as RichConsole
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold", max_width=OF_MAX)
    shown.add_column(overflow="fold")
    for remark in sorted(found, key=lambda remark: WORST.index(remark.level)):
        said = Text(printable(remark.text))
        if remark.remedy:
            said.append(f"\n→ {printable(remark.remedy)}", style="bold")
        shown.add_row(Text(WORDS[remark.level], style=STYLES[remark.level]), Text(printable(remark.check)), said)
    out = io.StringIO()
    RichConsole(file=out, force_terminal=True, no_color=not colour or None).print(shown)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
