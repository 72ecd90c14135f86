"""`make test-all`: the same tests on every pair of Python and Django, on other servers, and the slow and rough ones.

Each cell is one pytest run in an environment of its own. A cell that this machine cannot run is listed as not run, with
the line that would make it possible; it is no failure. A cell without a single test is one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from tools.environment import ROOT, STATE, apt_install, django_for, ensure, environment_of, python_of, say
from tools.pythons import Interpreter, find_all

DJANGOS = ("5.2", "6.0", "6.1")
CELL_EXTRAS = "api,cache,prometheus,test"
CELL_LIMIT_S = 120
OLD_REDIS = "redis==5.2.1"
USUAL = "not faults and not long"


class Cell(NamedTuple):
    """One run: where, which tests, under which extra environment variables."""

    name: str
    directory: Path
    interpreter: Interpreter | None
    django: str
    selection: str
    pins: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()


class Outcome(NamedTuple):
    cell: str
    result: str
    seconds: float
    failed: bool


def version_cells(interpreters: list[Interpreter]) -> list[Cell]:
    """Every pair of the machine's Pythons with the Djangos that support them, and one cell with an old redis-py."""
    cells = []
    for interpreter in sorted(interpreters, key=lambda entry: int(entry.version.split(".")[1])):
        for django in DJANGOS:
            if django != "5.2" and interpreter.version == "3.11":
                continue
            name = f"python {interpreter.version}, django {django}"
            directory = STATE / "matrix" / f"py{interpreter.version}-dj{django}"
            cells.append(Cell(name, directory, interpreter, django, f"compat and {USUAL}"))
    chosen = interpreters[0]
    django = django_for(chosen.version)
    name = f"python {chosen.version}, django {django}, redis-py 5.2.1"
    directory = STATE / "matrix" / f"py{chosen.version}-dj{django}-redis5"
    cells.append(Cell(name, directory, chosen, django, f"compat and {USUAL}", (OLD_REDIS,)))
    return cells


def main_cells(main: Path) -> list[Cell]:
    """Faults and long properties, in the main environment."""
    long = ("--timeout=1800",)
    return [
        Cell("faults", main, None, "", "faults and not long", arguments=("--timeout=600",)),
        Cell("long properties", main, None, "", "long", arguments=long),
    ]


def run(cell: Cell) -> Outcome:
    """Make the cell's environment right and run its tests in it."""
    say(f"\n== {cell.name}")
    if cell.interpreter is not None:
        ensure(cell.directory, cell.interpreter, django=cell.django, extras=CELL_EXTRAS, pins=cell.pins)
    begun = time.monotonic()
    code = pytest(cell.directory, cell.selection, *cell.arguments, variables=dict(cell.variables))
    seconds = time.monotonic() - begun
    result = {0: "passed", 5: "no tests"}.get(code, f"failed (exit {code})")
    if code == 0 and cell.interpreter is not None and seconds > CELL_LIMIT_S:
        result = f"passed, but over {CELL_LIMIT_S} s"
    return Outcome(cell.name, result, seconds, code != 0)


def pytest(directory: Path, selection: str, *arguments: str, variables: dict[str, str] | None = None) -> int:
    """Run pytest in the environment of `directory`, two processes wide: each has a server and a database of its own."""
    wide = str(min(2, os.cpu_count() or 1))
    command = [
        str(python_of(directory)), "-m", "pytest", "-n", wide, "--dist", "worksteal", "-m", selection, *arguments
    ]  # fmt: skip
    return subprocess.call(command, cwd=ROOT, env={**environment_of(directory), **(variables or {})})


def server_cells(main: Path) -> tuple[list[Cell], list[Outcome]]:
    """The usual tests against the distribution's server; what cannot be run is an outcome already."""
    name = "redis-server of the distribution"
    binary = shutil.which("redis-server")
    if binary is None and apt_install("redis-server"):
        binary = shutil.which("redis-server")
    if binary is None:
        return [], [Outcome(name, "not run; type: sudo apt-get install redis-server", 0.0, False)]
    return [Cell(name, main, None, "", USUAL, variables=(("DUCTOR_TEST_SERVER", binary),))], []


def run_all(main: Path) -> list[Outcome]:
    """Every cell, each whatever became of the others."""
    interpreters = [entry for entry in find_all() if entry.can_venv or shutil.which("uv")]
    servers, outcomes = server_cells(main)
    for cell in [*version_cells(interpreters), *servers, *main_cells(main)]:
        try:
            outcomes.append(run(cell))
        except SystemExit:
            outcomes.append(Outcome(cell.name, "not installed", 0.0, True))
    return outcomes
