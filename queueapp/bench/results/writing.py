"""Writes what a run leaves, cell by cell, into a directory of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from queueapp.bench.profiles import Profile
from queueapp.bench.results import columns
from queueapp.bench.results.cells import Cell
from queueapp.bench.results.manifest import Listed, Made, Manifest, made
from queueapp.bench.results.rows import InvalidResults, Value, write
from queueapp.bench.results.summary import Row, write_tables

AGGREGATE, TENANTS, PRIORITIES = "aggregate.csv", "tenants.csv", "priorities.csv"
RAW, DEAD_LETTERS = "raw", "dead_letters"
NAME_FORM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,199}")
"""Of a cell: it names files."""


def default_directory(bench: str, at: datetime | None = None) -> Path:
    """`results/<bench>-<date>-<time>`, below the current directory."""
    return Path("results") / f"{bench}-{(at or datetime.now(UTC)):%Y%m%d-%H%M%S}"


class Writer:
    """One run. `add` each cell as soon as it is done: what is broken off keeps those. As a context manager it closes
    itself, unless an error ends the block: then `manifest.json` goes on saying that the run is not finished.
    """

    def __init__(
        self, directory: Path, bench: str, identity: Mapping[str, object], *, profile: Profile | None = None
    ) -> None:
        """`identity`: of `harness.identity`, with the command's options. `profile`: as it is run, with what the options
        have instead; runs are merged only when it is the same. Raises InvalidResults for a directory that is not empty.
        """
        self._begin(directory, bench, [made(bench, identity, profile)])

    @classmethod
    def merging(cls, directory: Path, bench: str, runs: Sequence[Made]) -> Self:
        """A writer of cells that some earlier `runs` have made."""
        writer = cls.__new__(cls)
        writer._begin(directory, bench, runs)
        return writer

    def _begin(self, directory: Path, bench: str, runs: Sequence[Made]) -> None:
        self.directory = directory
        self._manifest = Manifest(bench=bench, runs=runs)
        self._means: list[Row] = []
        _create(directory)
        self._files = ExitStack()
        self._aggregate = self._table(AGGREGATE, columns.AGGREGATE)
        self._tenants = self._table(TENANTS, columns.TENANTS)
        self._priorities = self._table(PRIORITIES, columns.PRIORITIES)
        self._manifest.write(directory)

    @property
    def run(self) -> str:
        """The id of this run, which every row carries."""
        return self._manifest.runs[0].id

    def add(self, cell: Cell, run: str | None = None) -> None:
        """Writes all that is known of a cell, which `run` has made; None: this one. The manifest comes last."""
        name, run = cell.setting.name, run or self.run
        if NAME_FORM.fullmatch(name) is None:
            raise InvalidResults(f"cell is {name[:80]!r}, which names no file: use letters, digits, '.', '_' and '-'.")
        if any(listed.setting.name == name for listed in self._manifest.cells):
            raise InvalidResults(f"cell is {name!r}, which this run has already: give it another repetition.")
        figures = self._add_rows(cell, [run, name])
        self._means.append(
            Row(run=run, setting=cell.setting, state=cell.state, unfinished=cell.unfinished, figures=figures)
        )
        self._manifest.cells.append(Listed(run=run, state=cell.state, setting=cell.setting))
        self._manifest.write(self.directory)

    def _add_rows(self, cell: Cell, whose: list[Value]) -> Mapping[str, float]:
        """All but the manifest. Returns the figures."""
        name = cell.setting.name
        with (self.directory / RAW / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            write(file, [list(columns.RAW)])
            write(file, ([*whose, *columns.of_outcome(one)] for one in cell.outcomes))
        if cell.dead_letters:
            (self.directory / DEAD_LETTERS).mkdir(exist_ok=True)
            own = dict(zip(columns.RUN, whose, strict=True))
            told = json.dumps([{**own, **one} for one in cell.dead_letters], indent=1)
            (self.directory / DEAD_LETTERS / f"{name}.json").write_text(told + "\n", encoding="utf-8")
        found = cell.summary() if cell.outcomes else None
        tenants, priorities = columns.by_tenant(cell, found), columns.by_priority(found)
        write(self._tenants, ([*whose, who, *columns.of_times(times)] for who, times in tenants))
        write(self._priorities, ([*whose, who, *columns.of_times(times)] for who, times in priorities))
        figures = columns.figures(cell, found)
        facts = [*columns.of_setting(cell.setting), *columns.of_facts(cell)]
        write(self._aggregate, [[*whose, *facts, *figures.values()]])
        return figures

    def close(self) -> None:
        """Writes the tables, and that the run is finished."""
        self._files.close()
        write_tables(self.directory, self._manifest.bench, self._means)
        self._manifest.finished = True
        self._manifest.write(self.directory)

    def _table(self, name: str, names: Iterable[str]) -> TextIO:
        file = self._files.enter_context((self.directory / name).open("w", encoding="utf-8", newline=""))
        write(file, [list(names)])
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._files.close()


def _create(directory: Path) -> None:
    told = f"directory is {str(directory)!r}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise InvalidResults(f"{told}, which is not empty: name one that does not exist yet.")
        (directory / RAW).mkdir()
    except OSError as error:
        raise InvalidResults(f"{told}, which cannot be written ({error}): name one that can.") from error
