"""The terminal that a verb of `manage.py ductor` speaks to: lines, questions, and how far a long work is."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Any, Protocol

from django.core.management.base import CommandError

QUIET_S = 1.0
"""Work that takes less says nothing of its progress; more says it as often."""


class Console:
    """`say` writes a line of the result, `note` one beside it (standard error)."""

    def __init__(self, say: Callable[[str], Any], note: Callable[[str], Any]) -> None:
        self.say = say
        self.note = note

    @property
    def user(self) -> str:
        """Who sits here, as the system knows them."""
        try:
            return getpass.getuser()
        except (KeyError, OSError):  # no name for this number, as in many containers
            return ""

    def confirm(self, question: str) -> bool:
        try:
            return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
        except EOFError:
            raise CommandError("There is nobody to ask; say --yes.") from None

    def ask(self, question: str, *, instead: str) -> str:
        """What was typed. `instead`: the option that answers where nobody can be asked."""
        try:
            return input(question).strip()
        except EOFError:
            raise CommandError(f"There is nobody to ask; say {instead}.") from None

    def progress(self, what: str) -> Progress:
        return Progress(self.note, what)

    @contextmanager
    def bar(self, total: int, what: str) -> Iterator[Bar]:
        """How far a long work is: a bar on a terminal (with rich, of the extra `cli`), else a line a second."""
        shown = _rich_bar(total, what) if sys.stderr.isatty() else None
        if shown is None:
            yield LineBar(self.progress(f"of {total:,} {what}"))
            return
        with shown as bar:
            yield bar


class Bar(Protocol):
    """Shows how far a work is."""

    def at(self, number: int, text: str) -> None: ...


class LineBar:
    """Plain lines."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def at(self, number: int, text: str) -> None:
        self._progress.add(number - self._progress.count)


def _rich_bar(total: int, what: str) -> AbstractContextManager[Bar] | None:
    """None: rich is not installed."""
    try:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
    except ImportError:
        return None

    @contextmanager
    def shown() -> Iterator[Bar]:
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(what),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
        )
        with RichProgress(*columns, console=RichConsole(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=total, said="")

            class OnTerminal:
                def at(self, number: int, text: str) -> None:
                    progress.update(task, completed=number, total=max(total, number), said=text)

            yield OnTerminal()

    return shown()


class Progress:
    """Counts, and says so once a second when it takes long."""

    def __init__(self, note: Callable[[str], Any], what: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._note = note
        self._what = what
        self._clock = clock
        self._said_at = clock()
        self.count = 0

    def add(self, number: int) -> int:
        """Counts `number` more, and answers it."""
        self.count += number
        now = self._clock()
        if now - self._said_at >= QUIET_S:
            self._said_at = now
            self._note(f"  {self.count:,} {self._what}")
        return number


def json_option(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
