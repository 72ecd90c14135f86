"""The wheel, built once, from a copy of the sources: building leaves traces beside them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.steps import ROOT

SOURCES = (
    *("pyproject.toml", "README.md", "queueapp", "flows", "tests"),
    *("tools", "ductor_project", "docs", "templates", "static"),
)


@pytest.fixture(autouse=True)
def namespace() -> str:
    """In place of the fixture that gives every other test a server."""
    return "ductor"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel, in a directory `dist`."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        origin = ROOT / name
        if origin.is_dir():
            shutil.copytree(origin, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        elif origin.exists():
            shutil.copy(origin, source / name)
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", *isolation, "-q", "-w", "dist", "."]
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        command = ["uv", "build", "--quiet", "--wheel", "-o", "dist", "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = (source / "dist").glob("*.whl")
    return built
