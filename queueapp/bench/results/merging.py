"""Puts runs together that were made at other times or on other machines, such as one half of the repetitions each.

What is in them must be comparable: whatever matters to a figure is the same in all, and no cell is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from queueapp.bench.results.reading import CellRow, RunResults, read
from queueapp.bench.results.rows import InvalidResults
from queueapp.bench.results.summary import Arm, arm
from queueapp.bench.results.writing import Writer

REVISION = ("ductor", "revision")
"""Of a run's identity: which code it measured."""
PLACE = (
    "python",
    "django",
    "redis_py",
    "hiredis",
    "server",
    "append_only_file",
    "cpus",
    "processor",
    "machine",
)
"""Of a run's identity: on what. Nothing to what was simulated, which is the same on any machine."""
OPTIONS = ("costs", "shards", "shard_slots")
"""Of the options, where a command has them: what no setting and no profile tells."""
RECORDED = "trace"
"""The name of every recorded workload."""
EVERYWHERE = ("slots", "workers", "execution", "starving_ms", "failures", "limits")
"""Of a setting: the same in all cells."""
BY_WORKLOAD = ("jobs", "big")
"""Of a setting: the same in all cells with one workload at one load."""
REMEDIES = {
    **dict.fromkeys(REVISION, "give --allow-revisions if what changed between them does not matter, or leave one out"),
    **dict.fromkeys(PLACE, "merge runs of one kind of machine and one set of versions, or leave one out"),
    "profile": "merge runs of one profile, or compare them instead (bench compare)",
}
OTHERWISE = "merge runs that were given the same, or compare them instead (bench compare)"


def merge(
    directories: Sequence[Path],
    output: Path,
    *,
    allow_revisions: bool = False,
    told: Callable[[str], None] = lambda _: None,
) -> RunResults:
    """Writes all cells into `output`, each under the id of the run that made it. Repetitions count anew, by seed.

    Nothing is written before everything has been looked at. Raises InvalidResults with the field in which runs differ,
    the cell that two of them have, or what is wrong with a file. `told` hears what is being done.
    """
    results = [read(directory) for directory in directories]
    check(results, allow_revisions=allow_revisions)
    benches = list(dict.fromkeys(one.bench for one in results))
    made = {run.id: run for one in results for run in one.runs}
    with Writer.merging(output, benches[0] if len(benches) == 1 else "merge", list(made.values())) as writer:
        for one, row, repetition in _ordered(results):
            told(f"{row.name} of {one.directory}")
            cell = one.cell(row)
            writer.add(replace(cell, setting=replace(cell.setting, repetition=repetition)), row.run)
    return read(output)


def check(results: Sequence[RunResults], *, allow_revisions: bool) -> None:
    """Raises InvalidResults unless the runs may be merged."""
    cells = [(one, cell) for one in results for cell in one.cells]
    if not cells:
        raise InvalidResults(f"{results[0].directory} has no cells, nor has any other: name runs that have some.")
    virtual = all(cell.setting.execution == "virtual" for _, cell in cells)
    names = (() if allow_revisions else REVISION) + (() if virtual else PLACE)
    known: dict[object, tuple[Path, Any]] = {}
    for one in results:
        for field, value in _identity(one, names):
            _same(known, field, field, value, one.directory)
    for one, cell in cells:
        for key, field, value in _setting(cell):
            _same(known, key, field, value, one.directory)
    _check_overlap(cells)


def _identity(one: RunResults, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for run in one.runs:
        yield from ((name, run.identity.get(name)) for name in names)
        yield from ((f"option {name}", run.options[name]) for name in OPTIONS if name in run.options)
        yield "profile", _contents(run.profile)


def _contents(profile: Mapping[str, Any] | None) -> Any:
    """What a profile says, but for its name, and for which and how many seeds: those are to differ."""
    if profile is None:
        return None
    run = {name: value for name, value in profile["run"].items() if name not in ("seed", "repetitions")}
    return {**{name: value for name, value in profile.items() if name != "name"}, "run": run}


def _setting(cell: CellRow) -> Iterator[tuple[object, str, Any]]:
    """(what must be the same, its name, its value)."""
    setting = cell.setting
    workload = (setting.workload, setting.load)
    yield from ((name, name, getattr(setting, name)) for name in EVERYWHERE)
    yield from (((name, *workload), name, getattr(setting, name)) for name in BY_WORKLOAD)
    # What was recorded is the same for every seed.
    jobs = "workload_digest" if setting.workload == RECORDED else f"workload_digest of seed {setting.seed}"
    yield (jobs, *workload), jobs, setting.workload_digest


def _same(known: dict[object, tuple[Path, Any]], key: object, field: str, value: Any, directory: Path) -> None:
    where, first = known.setdefault(key, (directory, value))
    if value == first:
        return
    field, value, first = _where_they_differ(field, value, first)
    remedy = REMEDIES.get(field.partition(".")[0], OTHERWISE)
    raise InvalidResults(f"{directory}: {field} is {repr(value)[:80]}, in {where} {repr(first)[:80]}: {remedy}.")


def _where_they_differ(field: str, value: Any, first: Any) -> tuple[str, Any, Any]:
    """The innermost field of two objects that differs first."""
    while isinstance(value, dict) and isinstance(first, dict):
        name = next(name for name in [*value, *first] if value.get(name) != first.get(name))
        field, value, first = f"{field}.{name}", value.get(name), first.get(name)
    return field, value, first


def _check_overlap(cells: Sequence[tuple[RunResults, CellRow]]) -> None:
    known: dict[tuple[Arm, int], tuple[RunResults, CellRow]] = {}
    for one, cell in cells:
        first = known.setdefault((arm(cell.setting), cell.setting.seed), (one, cell))
        if first[1] is not cell:
            told = f"{one.directory}: cell is {cell.name!r} with seed {cell.setting.seed}"
            raise InvalidResults(
                f"{told}, which {first[0].directory} has, too: each may be there once, leave one run out."
            )


def _ordered(results: Sequence[RunResults]) -> Iterator[tuple[RunResults, CellRow, int]]:
    """Every cell with its new repetition: arms in the order in which they came, each by seed."""
    cells = [(one, cell) for one in results for cell in one.cells]
    seeds = sorted({cell.setting.seed for _, cell in cells})
    places = {seed: place for place, seed in enumerate(seeds, start=1)}
    arms = list(dict.fromkeys(arm(cell.setting) for _, cell in cells))
    for one, cell in sorted(cells, key=lambda pair: (arms.index(arm(pair[1].setting)), pair[1].setting.seed)):
        yield one, cell, places[cell.setting.seed]
