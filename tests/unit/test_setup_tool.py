"""The bootstrap behind make: which Python it takes, what it installs, when it rests, what it says when it cannot."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools import environment, matrix, postgres, pythons, setup
from tools.pythons import Interpreter

ROOT = Path(__file__).resolve().parents[2]


def interpreter(version: str, *, can_venv: bool = True, has_wheels: bool = True) -> Interpreter:
    return Interpreter(version, version + ".1", f"/usr/bin/python{version}", can_venv, has_wheels)


def test_the_tools_start_on_python_3_8() -> None:
    for path in sorted((ROOT / "tools").glob("*.py")):
        tree = ast.parse(path.read_text(), feature_version=(3, 8))
        modules = {
            name.split(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert modules <= set(sys.stdlib_module_names) | {"tools"}, path


def test_this_python_is_found() -> None:
    found = pythons.probe(sys.executable)
    assert found is not None
    assert found.version == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.version in {entry.version for entry in pythons.find_all()}


def test_what_is_no_python_is_passed_over(tmp_path: Path) -> None:
    script = tmp_path / "python3.13"
    script.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    script.chmod(0o755)
    assert pythons.probe(str(script)) is None
    assert pythons.probe(str(tmp_path / "nothing")) is None


def test_one_interpreter_a_version_in_the_order_of_preference(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {
        "a": interpreter("3.11"),
        "b": interpreter("3.12", can_venv=False),
        "c": interpreter("3.12"),
        "d": interpreter("3.10"),
        "e": interpreter("3.13"),
    }
    monkeypatch.setattr(pythons, "_candidates", lambda: list(there))
    monkeypatch.setattr(pythons, "probe", lambda candidate: there[candidate])
    assert pythons.find_all() == [there["e"], there["c"], there["a"]]


def test_one_that_can_make_environments_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUCTOR_PYTHON", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(environment, "find_all", lambda: [interpreter("3.13", can_venv=False), interpreter("3.11")])
    assert environment.choose().version == "3.11"


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        environment.choose()
    assert caught.value.code == 1
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1
    return said


def test_without_a_venv_module_the_one_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DUCTOR_PYTHON", raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(environment, "find_all", lambda: [interpreter("3.12", can_venv=False)])
    assert "Type: sudo apt-get install python3.12-venv" in refusal(capsys)


def test_without_any_python_the_one_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DUCTOR_PYTHON", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(environment, "find_all", list)
    assert "No Python 3.11 to 3.14 was found" in refusal(capsys)


def test_a_wish_that_cannot_be_met_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUCTOR_PYTHON", "/nonexistent/python")
    assert "is no Python that runs here" in refusal(capsys)
    monkeypatch.setattr(environment, "probe", lambda candidate: interpreter("3.9"))
    assert "Ductor needs 3.11" in refusal(capsys)


@pytest.mark.parametrize(
    ("python", "django", "wheels", "expected"),
    [
        ("3.13", "6.0", True, "api,prometheus,dev"),
        ("3.11", "5.2", True, "api,prometheus,dev,tasks52"),
        ("3.13", "6.1", True, "api,dev"),
        ("3.13", "6.0", False, "api,prometheus"),
    ],
)
def test_what_is_installed(python: str, django: str, wheels: bool, expected: str) -> None:
    wanted = environment.requirements(
        interpreter(python, has_wheels=wheels), django, "api,prometheus", ("redis==5.2.1",)
    )
    assert wanted == ["-e", f".[{expected}]", f"Django=={django}.*", "redis==5.2.1"]


def test_an_environment_is_made_once_and_anew_when_something_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[list[str]] = []
    directory = tmp_path / "venv"

    def make(where: Path, chosen: Interpreter) -> None:
        python = environment.python_of(where)
        python.parent.mkdir(parents=True, exist_ok=True)
        python.touch()

    monkeypatch.delenv("DUCTOR_PYTHON", raising=False)
    monkeypatch.setattr(environment, "_make", make)
    monkeypatch.setattr(environment, "_install", lambda where, chosen, wanted: made.append(wanted))
    monkeypatch.setattr(environment, "choose", lambda: interpreter("3.13"))
    environment.ensure(directory, None)
    environment.ensure(directory, None)
    assert len(made) == 1
    environment.ensure(directory, None, pins=("redis==5.2.1",))
    assert len(made) == 2
    environment.ensure(directory, interpreter("3.12"), pins=("redis==5.2.1",))
    assert len(made) == 3
    assert json.loads((directory / "ductor.json").read_text())["interpreter"][0] == "3.12"
    environment.python_of(directory).unlink()
    environment.ensure(directory, interpreter("3.12"), pins=("redis==5.2.1",))
    assert len(made) == 4


def test_the_matrix_is_every_pair_and_an_old_redis_py() -> None:
    cells = matrix.version_cells([interpreter("3.13"), interpreter("3.11")])
    assert [cell.name for cell in cells] == [
        "python 3.11, django 5.2",
        "python 3.13, django 5.2",
        "python 3.13, django 6.0",
        "python 3.13, django 6.1",
        "python 3.13, django 6.0, redis-py 5.2.1",
    ]
    assert cells[-1].pins == ("redis==5.2.1",)
    assert len({cell.directory for cell in cells}) == len(cells)


@pytest.mark.parametrize(
    ("cell", "command"),
    [
        (matrix.server_cell, "sudo apt-get install redis-server"),
        (matrix.postgres_cell, "sudo apt-get install postgresql"),
        (matrix.browser_cell, "sudo apt-get install chromium chromium-driver"),
        (lambda main: matrix.image_cell([interpreter("3.11")]), "uv python install 3.13"),
    ],
)
def test_a_cell_that_cannot_run_here_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, cell: Callable[[Path], object], command: str
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(matrix, "apt_install", lambda *packages: False)
    monkeypatch.setattr(postgres, "find", lambda: None)
    found = cell(ROOT)
    assert isinstance(found, matrix.Outcome)
    assert (found.result, found.failed) == (f"not run; type: {command}", False)


@pytest.mark.skipif(postgres.find() is None, reason="no PostgreSQL here: sudo apt-get install postgresql")
def test_the_cell_of_postgresql_tells_its_tests_where_it_is() -> None:
    cell = matrix.postgres_cell(ROOT)
    assert isinstance(cell, matrix.Cell)
    with cell.surroundings() as variables:
        assert variables["DUCTOR_TEST_DATABASE_URL"].startswith("postgres://")
        assert variables["DUCTOR_TEST_ONLY_SQL"] == "1"


def test_what_a_cell_lacks_is_installed_where_that_is_ours_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}" if installed else None)

    def install(*packages: str) -> bool:
        installed.extend(packages)
        return True

    monkeypatch.setattr(matrix, "apt_install", install)
    assert isinstance(matrix.browser_cell(ROOT), matrix.Cell)
    assert installed == ["chromium", "chromium-driver"]


def test_the_image_cell_has_the_image_s_versions() -> None:
    cell = matrix.image_cell([interpreter("3.12"), interpreter("3.13")])
    assert isinstance(cell, matrix.Cell)
    assert cell.interpreter == interpreter("3.13")
    assert f"python:{matrix.IMAGE_PYTHON}-slim" in (ROOT / "Dockerfile").read_text()
    assert any(pin.startswith("gunicorn==") for pin in cell.pins)
    assert f"Django=={matrix.IMAGE_DJANGO}." in " ".join(cell.pins)


def test_the_places_that_cells_name_are_there() -> None:
    for place in (*matrix.MOMENTS, matrix.IMAGE_REQUIREMENTS):
        assert (ROOT / place).exists(), place


def test_every_marker_belongs_to_a_cell() -> None:
    """What `make test` leaves out runs somewhere."""
    image = matrix.image_cell([interpreter("3.13")])
    assert isinstance(image, matrix.Cell)
    selections = {cell.selection for cell in [image, *matrix.main_cells(ROOT)]} | {"browser"}
    selections |= {"thorough"} if "test-long" in setup.VERBS else set()
    for marker in matrix.OWN_CELLS:
        assert any(marker in selection.split(" and ") for selection in selections), marker
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert set(matrix.OWN_CELLS) <= {line.split(":")[0] for line in known}


@pytest.mark.parametrize("ci", [True, False])
def test_ci_begins_no_cell_so_late_that_it_would_be_cut_off(monkeypatch: pytest.MonkeyPatch, ci: bool) -> None:
    if ci:
        monkeypatch.setenv("CI", "true")
    else:
        monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(matrix, "run", lambda cell: matrix.Outcome(cell.name, "passed", 1.0, False))
    moments = iter([0.0, 1.0, matrix.CI_BEGINS_WITHIN_S + 1.0])
    outcomes = matrix.run_cells(matrix.main_cells(ROOT)[:2], lambda: next(moments))
    assert [outcome.failed for outcome in outcomes] == [False, False]
    assert outcomes[0].result == "passed"
    assert outcomes[1].result.startswith("not run (CI begins no cell after 2700 s)") is ci


def test_a_cell_whose_surroundings_do_not_start_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[int] = []
    monkeypatch.setattr(matrix, "pytest", lambda *arguments, **options: outcomes.append(0))

    @contextmanager
    def broken() -> Iterator[dict[str, str]]:
        if outcomes == []:
            raise RuntimeError("no room")
        yield {}

    outcome = matrix.run(matrix.main_cells(ROOT)[0]._replace(surroundings=broken))
    assert (outcome.result, outcome.failed) == ("failed (not started)", True)


@pytest.mark.skipif(postgres.find() is None, reason="no PostgreSQL here: sudo apt-get install postgresql")
def test_a_private_postgresql_is_started_and_leaves_nothing_behind() -> None:
    programs = postgres.find()
    assert programs is not None
    with postgres.server(programs) as url:
        directory = Path(url.partition("?host=")[2])
        pid = int((directory / "data/postmaster.pid").read_text().splitlines()[0])
        assert (directory / ".s.PGSQL.5432").is_socket()
        command = Path(f"/proc/{pid}/cmdline")
        if command.exists():
            assert b"listen_addresses=\0" in command.read_bytes(), "it is on no network"
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_postgresql_that_cannot_start_says_why() -> None:
    # Not pytest's own directory, which only its owner may enter.
    with tempfile.TemporaryDirectory() as place:
        programs = Path(place)
        programs.chmod(0o755)
        for name in ("initdb", "postgres"):
            (programs / name).write_text("#!/bin/sh\necho 'postgres 14.1: no locale'; [ \"$1\" = --version ]\n")
            (programs / name).chmod(0o755)
        with pytest.raises(RuntimeError, match="no locale"), postgres.server(programs):
            pass


@pytest.mark.parametrize(("code", "failed"), [(0, False), (1, True), (5, True)])
def test_a_cell_fails_when_its_tests_do_or_when_it_has_none(
    monkeypatch: pytest.MonkeyPatch, code: int, failed: bool
) -> None:
    monkeypatch.setattr(matrix, "pytest", lambda *arguments, **options: code)
    assert matrix.run(matrix.main_cells(ROOT)[0]).failed is failed


def test_nothing_is_installed_on_a_machine_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("subprocess.run", lambda *arguments, **options: pytest.fail("ran apt-get"))
    assert environment.apt_install("redis-server") is False


def test_help_and_unknown_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main([]) == 0
    assert setup.main(["dmeo"]) == 2
    assert "make test-all" in capsys.readouterr().out


def test_the_summary_counts_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    setup.summary([matrix.Outcome("a", "passed", 1.0, False), matrix.Outcome("bb", "failed", 2.0, True)], 3.5)
    assert "1 of 2 failed, 3.5 s" in capsys.readouterr().out


def test_make_is_a_thin_skin() -> None:
    # The tests may themselves run under make, which would show where the inner one goes.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    shown = subprocess.run(
        ["make", "-n", "test-all", "ARGS="], cwd=ROOT, env=variables, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip().endswith("tools/setup.py test-all")
