"""The examples of docs/testing.md, run by pytest in the project that the README's steps make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import pytest
from django.core.management import call_command

import queueapp.testing
from tests.packaging.steps import ROOT, STEPS, files

PAGE = (ROOT / "docs/testing.md").read_text()
pytestmark = pytest.mark.compat


def test_the_examples_pass(tmp_path: Path) -> None:
    version = ".".join(map(str, django.VERSION[:2]))
    call_command("startproject", "mysite", str(tmp_path))
    examples = files(PAGE)
    for block in [*files(STEPS), *examples]:
        block.write(tmp_path, version)
    (tmp_path / "shop/__init__.py").touch()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment = {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "mysite.settings",
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    plugins = ["-p", "django", "-p", "ductor", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", *plugins, "--rootdir", str(tmp_path), "shop"]

    done = subprocess.run(
        [*command, "-o", "python_files=test*.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for block in (block for block in examples if Path(block.path).name.startswith("test")):
        assert f"PASSED {block.path}" in done.stdout, block.path


def test_every_public_name_is_there() -> None:
    named = set(re.findall(r"\b\w+\b", PAGE))
    assert set(queueapp.testing.__all__) - named <= {"Drained", "Ductor", "EnqueuedJob", "Recorder", "StoreBlocked"}
    for name in queueapp.testing.__all__:
        assert getattr(queueapp.testing, name) is not None
