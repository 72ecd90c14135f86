"""What `docs/testing.md` says about a whole suite keeps every test of a project from the store, `setUpTestData` too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import pytest
from django.core.management import call_command

from tests.packaging.steps import ROOT, STEPS, files

PAGE = (ROOT / "docs/testing.md").read_text()
BLOCKS = dict(re.findall(r"^```python\n# in (\S+), for [^\n]*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TESTS = """
from django.contrib.auth.models import User
from django.test import TestCase

from queueapp.testing import assert_enqueued, assert_not_enqueued, recorded
from shop.tasks import welcome


class Tests(TestCase):
    @classmethod
    def setUpTestData(cls):
        User.objects.create_user("ada")

    def test_a_user(self):
        User.objects.create_user("grace")

    @recorded()
    def test_another_user(self):
        assert_not_enqueued()
        User.objects.create_user("grace")
        assert_enqueued(welcome, count=1)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    call_command("startproject", "mysite", str(tmp_path))
    for block in files(STEPS):
        block.write(tmp_path, ".".join(map(str, django.VERSION[:2])))
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/tests.py").write_text(TESTS)
    return tmp_path


def run(project: Path, *arguments: str) -> tuple[int, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment = {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "mysite.settings",
        "PYTHONPATH": os.pathsep.join((str(project), str(ROOT))),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run([sys.executable, *arguments], cwd=project, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


PYTEST = (
    "-m",
    "pytest",
    "-q",
    "-p",
    "django",
    "-p",
    "ductor",
    "-p",
    "no:cacheprovider",
    "--rootdir",
    ".",
    "shop/tests.py",
)


def test_pytest(project: Path) -> None:
    assert run(project, *PYTEST)[0] == 1  # else the block below would do nothing
    (project / "conftest.py").write_text(BLOCKS["conftest.py"])

    code, said = run(project, *PYTEST)

    assert code == 0, said


def test_manage_py_test(project: Path) -> None:
    code, said = run(project, "manage.py", "test")
    assert code == 1
    assert "A test needs no server" in said
    (project / "mysite/runner.py").write_text(BLOCKS["mysite/runner.py"])
    with (project / "mysite/settings.py").open("a") as settings:
        settings.write('TEST_RUNNER = "mysite.runner.Runner"\n')

    code, said = run(project, "manage.py", "test")

    assert code == 0, said
