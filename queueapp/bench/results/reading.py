"""Reads what a run has left, every field looked at. What is large, the outcomes of single jobs, only when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from queueapp.bench.outcomes import Outcome, Times
from queueapp.bench.results import columns, rows
from queueapp.bench.results.cells import Cell, Setting, State
from queueapp.bench.results.decoding import decode, load, refused
from queueapp.bench.results.manifest import FORMAT, NAME, Listed, Made
from queueapp.bench.results.rows import InvalidResults, Value
from queueapp.bench.results.writing import AGGREGATE, DEAD_LETTERS, NAME_FORM, PRIORITIES, RAW, TENANTS


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """A row of aggregate.csv, with the setting in full."""

    run: str
    """The id of the run that made it (`RunResults.runs`)."""
    setting: Setting
    timed_out: bool
    unfinished: int
    lost: int
    recorded_twice: int
    dead_letters: int
    digest: str
    figures: Mapping[str, float]
    """`columns.FIGURES`; NaN where there is none, or too few jobs for it."""

    @property
    def name(self) -> str:
        return self.setting.name

    @property
    def state(self) -> State:
        return "timed_out" if self.timed_out else "unfinished" if self.unfinished else "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """A row of tenants.csv. Tenants that might have sent something and did not are there, too."""

    run: str
    cell: str
    tenant: str
    times: Times


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityRow:
    """A row of priorities.csv."""

    run: str
    cell: str
    priority: int
    times: Times


@dataclass(frozen=True, kw_only=True)
class RunResults:
    """A directory that `Writer` has written."""

    directory: Path
    manifest: Mapping[str, Any]
    """As it is in the file."""
    bench: str
    finished: bool
    """False: it was broken off, and what is here are the cells that it had."""
    runs: Sequence[Made]
    """One; several where they were merged."""
    cells: Sequence[CellRow]

    @cached_property
    def tenants(self) -> Sequence[TenantRow]:
        """In the order of the cells."""
        return [
            TenantRow(run=run, cell=cell, tenant=cast(str, row.pop("tenant")), times=Times(**cast(Any, row)))
            for run, cell, row in self._rows(TENANTS, columns.TENANTS)
        ]

    @cached_property
    def priorities(self) -> Sequence[PriorityRow]:
        """In the order of the cells."""
        return [
            PriorityRow(run=run, cell=cell, priority=cast(int, row.pop("priority")), times=Times(**cast(Any, row)))
            for run, cell, row in self._rows(PRIORITIES, columns.PRIORITIES)
        ]

    def outcomes(self, cell: CellRow) -> list[Outcome]:
        """Of each job of a cell, from its raw file."""
        path = self.directory / RAW / f"{cell.name}.csv"
        found = []
        for _, row in rows.read(path, columns.RAW, [cell.name], whole=True):
            del row["run"], row["cell"]
            found.append(Outcome(**cast(Any, row)))
        if len(found) != cell.setting.jobs - cell.unfinished:
            wanted = f"{AGGREGATE} has {cell.setting.jobs} jobs less {cell.unfinished} unfinished ones"
            raise InvalidResults(f"{path} has {len(found)} rows, but {wanted}: use the run as it was written.")
        return found

    def dead_letters(self, cell: CellRow) -> Sequence[Mapping[str, Any]]:
        """Of a cell, as they were given to the writer."""
        if not cell.dead_letters:
            return ()
        path = self.directory / DEAD_LETTERS / f"{cell.name}.json"
        found = load(path)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise InvalidResults(f"{path} is {repr(found)[:80]}: give a list of objects.")
        if len(found) != cell.dead_letters:
            told = f"{path} has {len(found)} dead letters, but {AGGREGATE} {cell.dead_letters}"
            raise InvalidResults(f"{told}: use the run as it was written.")
        return [{name: value for name, value in one.items() if name not in columns.RUN} for one in found]

    def cell(self, row: CellRow) -> Cell:
        """All of it again, as it was given to the writer."""
        return Cell(
            setting=row.setting,
            outcomes=self.outcomes(row),
            timed_out=row.timed_out,
            lost=row.lost,
            recorded_twice=row.recorded_twice,
            dead_letters=self.dead_letters(row),
            digest=row.digest,
        )

    def _rows(self, name: str, kinds: rows.Columns) -> Iterator[tuple[str, str, dict[str, Value]]]:
        """(run, cell, the rest) of each row."""
        whose, path = {cell.name: cell.run for cell in self.cells}, self.directory / name
        for place, row in rows.read(path, kinds, whose, whole=self.finished):
            run, cell = cast(str, row.pop("run")), cast(str, row.pop("cell"))
            _agree(f"{path}, line {place}: ", "run", run, whose[cell])
            yield run, cell, row


def read(directory: Path) -> RunResults:
    """Raises InvalidResults, which names file, place, field, value and remedy."""
    path = directory / NAME
    manifest = load(path)
    if not isinstance(manifest, dict) or manifest.get("ductor_results") != FORMAT:
        raise InvalidResults(f"{path} is no manifest of form {FORMAT}: name a directory that a run has written.")
    for name, kind in (("bench", str), ("finished", bool), ("runs", list), ("cells", list)):
        if not isinstance(manifest.get(name), kind):
            raise refused(f"{path}: ", name, manifest.get(name), "use the manifest as it was written")
    runs = [decode(Made, one, f"{path}, runs[{place}]") for place, one in enumerate(manifest["runs"])]
    listed = [_listed(one, f"{path}, cells[{place}]") for place, one in enumerate(manifest["cells"])]
    known = {run.id for run in runs}
    for cell in listed:
        if cell.run not in known:
            told = ", ".join(sorted(known))
            raise refused(f"{path}, cell {cell.setting.name}: ", "run", cell.run, f"give one of {told}")
    return RunResults(
        directory=directory,
        manifest=manifest,
        bench=manifest["bench"],
        finished=manifest["finished"],
        runs=runs,
        cells=_cells(directory / AGGREGATE, listed, manifest["finished"]),
    )


def _listed(value: Any, where: str) -> Listed:
    if not isinstance(value, dict) or "name" not in value:
        raise refused(f"{where}: ", "cell", value, "give an object with a name")
    found = decode(Listed, {name: part for name, part in value.items() if name != "name"}, where)
    name = found.setting.name
    _agree(f"{where}: ", "name", value["name"], name)
    if NAME_FORM.fullmatch(name) is None:
        raise refused(f"{where}: ", "name", name, "it must be fit for a file")
    return found


def _cells(path: Path, listed: Sequence[Listed], whole: bool) -> list[CellRow]:
    wanted = {cell.setting.name: cell for cell in listed}
    found: dict[str, CellRow] = {}
    for place, row in rows.read(path, columns.AGGREGATE, wanted, whole=whole):
        name, where = cast(str, row.pop("cell")), f"{path}, line {place}: "
        cell = wanted[name]
        _agree(where, "run", row.pop("run"), cell.run)
        for field, value in zip(columns.SETTING, columns.of_setting(cell.setting), strict=True):
            _agree(where, field, row.pop(field), value)
        if name in found:
            raise refused(where, "cell", name, "it was there before: take one of the two out")
        figures = {figure: cast(float, row.pop(figure)) for figure in columns.FIGURES}
        found[name] = CellRow(run=cell.run, setting=cell.setting, figures=figures, **cast(Any, row))
        _agree(where, "state", cell.state, found[name].state)
    for name in wanted:
        if name not in found:
            raise InvalidResults(f"{path} has no row of the cell {name!r}: use the run as it was written.")
    return [found[name] for name in wanted]


def _agree(where: str, field: str, value: object, wanted: object) -> None:
    if value != wanted:
        raise refused(where, field, value, f"by the manifest it is {wanted!r}; use the run as it was written")
