"""`Dockerfile` and `.dockerignore`, checked without an engine."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch

from packaging.requirements import Requirement

from tests.unit.deployment import compose

ROOT = compose.ROOT


def allowed() -> set[str]:
    """What `.dockerignore` lets in, after it has kept everything out."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    return {line[1:] for line in lines if line.startswith("!")}


def requirements() -> dict[str, Requirement]:
    lines = (ROOT / "tools/image-requirements.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {requirement.name.lower(): requirement for requirement in found}


def test_what_runs_is_no_root_and_owns_no_code() -> None:
    last = compose.stages()[-1]
    users = [rest for instruction, rest in last if instruction == "USER"]
    assert users == ["ductor"]
    position = last.index(("USER", "ductor"))
    assert not [rest for instruction, rest in last[position:] if instruction in {"COPY", "RUN"}]
    assert not any("--chown" in rest for _, rest in last)


def test_both_stages_have_the_same_slim_python_that_we_support() -> None:
    images = {rest.split()[0] for instruction, rest in compose.instructions() if instruction == "FROM"}
    [image] = images
    version = re.fullmatch(r"python:(3\.\d+)-slim", image)
    assert version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]


def test_commands_are_in_exec_form_so_that_signals_arrive() -> None:
    """C128: a shell as process 1 does not pass SIGTERM on."""
    for instruction, rest in compose.instructions():
        if instruction in {"CMD", "ENTRYPOINT"}:
            assert json.loads(rest)
            assert json.loads(rest)[0] not in {"sh", "bash", "/bin/sh"}


def test_what_is_copied_is_there_and_let_in() -> None:
    let_in = allowed()
    for instruction, rest in compose.instructions():
        if instruction == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in let_in, source


def test_each_of_our_packages_is_built_into_it() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    packages = {name for name in tools["setuptools"]["packages"]["find"]["include"] if "." not in name}
    copied = {
        source for instruction, rest in compose.instructions() if instruction == "COPY" for source in rest.split()
    }
    assert packages == {"queueapp", "flows"}
    assert packages <= copied


def test_nothing_secret_is_let_in() -> None:
    for name in (".env", ".git", ".ductor", ".venv", "docker-compose.yml", "tests"):
        assert not any(fnmatch(name, pattern) for pattern in allowed()), name


def test_no_secret_stays_in_the_image() -> None:
    for instruction, rest in compose.instructions():
        assert instruction != "ARG"
        if instruction == "ENV":
            assert not re.search(r"SECRET|PASSWORD|_URL", rest)


def test_every_package_is_pinned_and_fits_what_we_declare() -> None:
    pinned = requirements()
    for requirement in pinned.values():
        assert re.fullmatch(r"==[\d.]+", str(requirement.specifier)), requirement
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for declared in [*project["dependencies"], *project["optional-dependencies"]["api"]]:
        needed = Requirement(declared)
        version = str(pinned[needed.name.lower()].specifier).removeprefix("==")
        assert needed.specifier.contains(version), declared
    assert {"gunicorn", "whitenoise", "psycopg"} <= pinned.keys()
