"""What an experiment of `manage.py bench` is to its command line: a help, options, and a function that runs it."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queueapp.bench import SETTINGS
from queueapp.bench.harness import Progress, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of an experiment."""

    name: str
    default: Any
    help: str
    read: Callable[[str], Any] = str
    choices: Sequence[str] | None = None
    alone: Any = None
    """What the option means without a value; with False as default it takes none."""
    word: str = "N"
    """What stands for the value in `--help`."""
    bare: bool = False
    """The value comes without the option's name, and must be there."""
    several: bool = False
    """With `bare`: one value at least."""

    @property
    def key(self) -> str:
        """Under which name its value is found."""
        return self.name.replace("-", "_")

    def words(self, value: Any) -> list[str]:
        """The words of a command line that give it this value."""
        if self.bare:
            return [str(part) for part in value] if self.several else [str(value)]
        if value is None or value is False:
            return []
        return [f"--{self.name}"] if value is True else [f"--{self.name}", str(value)]

    def reading(self) -> dict[str, Any]:
        """How argparse is to read it."""
        if self.bare:
            more = {"nargs": "+"} if self.several else {}
            return {"type": self.read, "choices": self.choices, "metavar": self.word, "help": self.help, **more}
        if self.default is False:
            return {"action": "store_true", "help": self.help}
        told = "" if self.default is None else f" (default: {self.default})"
        return {
            "type": self.read,
            "default": self.default,
            "choices": self.choices,
            "metavar": None if self.choices else self.word,
            "help": self.help + told,
            **({} if self.alone is None else {"nargs": "?", "const": self.alone}),
        }


def checked(read: Callable[[str], object]) -> Callable[[str], str]:
    """Text as it is, once `read` has taken it: a program that starts itself again hands on text."""

    def words(text: str) -> str:
        try:
            read(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from error
        return text

    return words


Run = Callable[[Report, Mapping[str, Any], Progress, Path | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment. With `ground` it gets a directory with a server and a database of its own."""

    help: str
    options: Sequence[Option]
    run: Run
    ground: bool = True
    settings: str = SETTINGS
    """Those of the ground."""
    examples: Sequence[str] = ()
    """What follows `manage.py bench NAME`, for its `--help`."""
