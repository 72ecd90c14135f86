"""What the wheel holds: both packages with their scripts, pages and migrations, and nothing else."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.packaging.steps import ROOT

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_it_holds_every_file_of_the_packages_and_no_other(names: set[str]) -> None:
    package = {
        str(path.relative_to(ROOT))
        for top in ("queueapp", "flows")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.parts)
    }
    ours = {name for name in names if not re.match(r"django_ductor-[^/]+\.dist-info/", name)}

    assert ours - package == set()
    assert package - ours == set()


@pytest.mark.parametrize(
    "pattern",
    [
        r"queueapp/store/lua/\w+\.lua",
        r"queueapp/store/lua/include/\w+\.lua",
        r"queueapp/templates/.+\.html",
        r"queueapp/static/.+\.css",
        r"queueapp/migrations/0001_initial\.py",
        r"queueapp/testing/pytest_plugin\.py",
        r"queueapp/py\.typed",
        r"flows/templates/.+\.html",
        r"flows/static/.+\.css",
        r"flows/migrations/0001_initial\.py",
        r"flows/py\.typed",
    ],
)
def test_it_holds_what_is_no_python(names: set[str], pattern: str) -> None:
    assert any(re.fullmatch(pattern, name) for name in names)


def test_it_names_the_pytest_plugin_and_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [points] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt")]
        [metadata] = [archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA")]

    assert points.split() == ["[pytest11]", "ductor", "=", "queueapp.testing.pytest_plugin"]
    needs = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.MULTILINE)
    assert sorted(needs) == ["Django", "cronsim", "prometheus-client", "redis"]
