"""The terminal that a verb of `manage.py ductor` speaks to: lines, questions, and how far a long work is."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from time import monotonic
from typing import Any

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

    def progress(self, what: str) -> Progress:
        return Progress(self.note, what)


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
