"""The form of our management commands: examples in `--help`, and every refusal as one clear line."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, DjangoHelpFormatter
from django.db import Error as DatabaseError

from queueapp.errors import DuctorError
from queueapp.extensions import our_labels

ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s\[\]:]*)):(?P<port>[0-9]{1,5})")


class ExampleFormatter(RawDescriptionHelpFormatter, DjangoHelpFormatter):
    """Django's order of options; examples keep their lines."""


class DuctorCommand(BaseCommand):
    """A command of ours. `perform` does the work and may raise DuctorError."""

    examples = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", ExampleFormatter)
        kwargs.setdefault("epilog", self.examples.replace("{command}", f"{prog_name} {subcommand}"))
        return super().create_parser(prog_name, subcommand, **kwargs)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.perform(**options)
        except (DuctorError, ImproperlyConfigured, DatabaseError) as error:
            raise CommandError(plain(error)) from error

    def perform(self, **options: Any) -> None:
        raise NotImplementedError


def plain(error: Exception) -> str:
    """An error as one line; one of the database about our tables names the usual remedy."""
    text = " ".join(str(error).split())
    if isinstance(error, DatabaseError) and any(f"{label}_" in text for label in our_labels()):
        return f"The database is not ready ({text}): run `manage.py migrate`."
    return text


def names(text: str) -> list[str]:
    """`a,b` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[IPv6]:PORT` or `:PORT` (every address of the machine) as a pair; port 0 takes a free one."""
    found = ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise ArgumentTypeError(f"{text!r} is no HOST:PORT, such as 127.0.0.1:9100 or :9100")
    return found["six"] or found["host"] or "0.0.0.0", int(found["port"])


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")
        return value

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """A number from `least` to `most`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise ArgumentTypeError(f"{text!r} is no number from {least:g} to {most:g}")
        return value

    return read
