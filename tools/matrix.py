"""`make test-all`: the same tests on every pair of Python and Django, on other servers, and the slow and rough ones.

Each cell is one pytest run in an environment of its own. A cell that this machine cannot run is listed as not run, with
the line that would make it possible; it is no failure. A cell without a single test is one. In CI, as root, what a cell
needs of Debian is installed.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from tools import postgres
from tools.environment import ROOT, STATE, apt_install, django_for, ensure, environment_of, python_of, say
from tools.pythons import Interpreter, find_all

DJANGOS = ("5.2", "6.0", "6.1")
CELL_EXTRAS = "api,cache,prometheus,test"
CELL_LIMIT_S = 120
CI_BEGINS_WITHIN_S = 2_700
"""In CI, whose runs are cut off somewhere, no cell is begun later than so, and it says which. By hand all run."""
OLD_REDIS = "redis==5.2.1"
OWN_CELLS = ("faults", "long", "image", "packaging", "browser", "thorough")
"""Markers of tests that `make test` leaves to cells of their own; `thorough` is `make test-long`."""
USUAL = " and ".join(f"not {marker}" for marker in OWN_CELLS)
MOMENTS = (
    "tests/conformance",
    "tests/host",
    "tests/unit/admin",
    "tests/unit/api",
    "tests/unit/outbox",
    "tests/unit/sync",
    "tests/unit/test_backend.py",
    "tests/unit/test_results.py",
)
"""Where tests stand that give or show moments."""
IMAGE_PYTHON, IMAGE_DJANGO = "3.13", "6.0"
IMAGE_REQUIREMENTS = "tools/image-requirements.txt"


def nothing() -> AbstractContextManager[Mapping[str, str]]:
    """What most cells need around their tests."""
    return nullcontext({})


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
    extras: str = CELL_EXTRAS
    surroundings: Callable[[], AbstractContextManager[Mapping[str, str]]] = nothing
    """What runs while the tests do; its variables are theirs."""


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
    """In the main environment: naive moments, the built package in fresh projects, faults, long properties."""
    return [
        Cell("USE_TZ off", main, None, "", USUAL, variables=(("DUCTOR_TEST_USE_TZ", "0"),), arguments=MOMENTS),
        Cell("packaging", main, None, "", "packaging", arguments=("tests/packaging", "--timeout=600")),
        Cell("faults", main, None, "", "faults and not long", arguments=("--timeout=600",)),
        Cell("long properties", main, None, "", "long", arguments=("--timeout=1800",)),
    ]


def run(cell: Cell) -> Outcome:
    """Make the cell's environment right and run its tests in it."""
    say(f"\n== {cell.name}")
    if cell.interpreter is not None:
        ensure(cell.directory, cell.interpreter, django=cell.django, extras=cell.extras, pins=cell.pins)
    begun = time.monotonic()
    try:
        with cell.surroundings() as more:
            variables = {**dict(cell.variables), **more}
            code = pytest(cell.directory, cell.selection, *cell.arguments, variables=variables)
    except RuntimeError as error:
        say(str(error))
        return Outcome(cell.name, "failed (not started)", time.monotonic() - begun, True)
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


def server_cell(main: Path) -> Cell | Outcome:
    """The usual tests against the distribution's server."""
    name = "redis-server of the distribution"
    found = program("redis-server", "redis-server")
    if found is None:
        return not_run(name, "sudo apt-get install redis-server")
    return Cell(name, main, None, "", USUAL, variables=(("DUCTOR_TEST_SERVER", found),))


def postgres_cell(main: Path) -> Cell | Outcome:
    """Whatever touches the database, on PostgreSQL."""
    name = "postgresql"
    programs = postgres.find()
    if programs is None and apt_install("postgresql"):
        programs = postgres.find()
    if programs is None:
        return not_run(name, "sudo apt-get install postgresql")
    found = programs

    @contextmanager
    def surroundings() -> Iterator[Mapping[str, str]]:
        with postgres.server(found) as url:
            yield {"DUCTOR_TEST_DATABASE_URL": url, "DUCTOR_TEST_ONLY_SQL": "1"}

    return Cell(name, main, None, "", USUAL, surroundings=surroundings)


def image_cell(interpreters: list[Interpreter]) -> Cell | Outcome:
    """The exact versions of the container image, and the server that it runs."""
    name = "packages of the image"
    chosen = next((entry for entry in interpreters if entry.version == IMAGE_PYTHON), None)
    if chosen is None:
        return not_run(name, f"uv python install {IMAGE_PYTHON}")
    lines = (ROOT / IMAGE_REQUIREMENTS).read_text().splitlines()
    pins = tuple(line for line in lines if line and not line.startswith("#"))
    where = ("tests/integration/test_image_server.py",)
    return Cell(name, STATE / "matrix" / "image", chosen, IMAGE_DJANGO, "image", pins, arguments=where, extras="test")


def browser_cell(main: Path) -> Cell | Outcome:
    """The admin in a real browser."""
    name = "browser"
    if program("chromedriver", "chromium", "chromium-driver") is None or _chromium() is None:
        return not_run(name, "sudo apt-get install chromium chromium-driver")
    return Cell(name, main, None, "", "browser", arguments=("tests/browser", "--timeout=300"))


def program(name: str, *packages: str) -> str | None:
    """Where a program is; in CI its packages are installed for it."""
    found = shutil.which(name)
    return found if found or not apt_install(*packages) else shutil.which(name)


def not_run(name: str, command: str, why: str = "") -> Outcome:
    return Outcome(name, f"not run{why and f' ({why})'}; type: {command}", 0.0, False)


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


def run_all(main: Path) -> list[Outcome]:
    """Every cell, each whatever became of the others."""
    interpreters = [entry for entry in find_all() if entry.can_venv or shutil.which("uv")]
    others = [server_cell(main), postgres_cell(main), image_cell(interpreters), browser_cell(main)]
    return run_cells([*version_cells(interpreters), *others, *main_cells(main)])


def run_cells(cells: Sequence[Cell | Outcome], clock: Callable[[], float] = time.monotonic) -> list[Outcome]:
    """Runs what can run."""
    outcomes = []
    latest = clock() + (CI_BEGINS_WITHIN_S if os.environ.get("CI") else math.inf)
    for cell in cells:
        if isinstance(cell, Outcome):
            outcomes.append(cell)
            continue
        if clock() > latest:
            outcomes.append(not_run(cell.name, "make test-all", f"CI begins no cell after {CI_BEGINS_WITHIN_S} s"))
            continue
        try:
            outcomes.append(run(cell))
        except SystemExit:
            outcomes.append(Outcome(cell.name, "not installed", 0.0, True))
    return outcomes
