"""The pytest plugin, in test runs of small hosts that are nothing but a settings module and a test module."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from queueapp.testing import pytest_plugin
from queueapp.testing.server import server_url

ROOT = Path(__file__).resolve().parents[2]

SETTINGS = """
SECRET_KEY = "host"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "queueapp"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
TASKS = {"default": {"BACKEND": "queueapp.backend.DuctorBackend"}}
DUCTOR = {"REDIS_URL": "unix:///nonexistent/the-store-of-the-host.sock"}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""
TASKS = """
from queueapp import task

@task
def add(a, b=0):
    return a + b
"""


@dataclass(frozen=True, slots=True)
class Run:
    code: int
    output: str


Host = Callable[..., Run]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Run pytest in a host of its own: `host(tests, *arguments)`, with further settings and variables."""

    def run(
        tests: str, *arguments: str, settings: str | None = SETTINGS, variables: dict[str, str] | None = None
    ) -> Run:
        (tmp_path / "jobs.py").write_text(TASKS)
        (tmp_path / "test_host.py").write_text(tests)
        if settings is not None:
            (tmp_path / "host_settings.py").write_text(settings)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        inherited.pop("DJANGO_SETTINGS_MODULE", None)
        environment = {
            **inherited,
            "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
            # Loading every plugin of this environment takes longer than the tests.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            **({"DJANGO_SETTINGS_MODULE": "host_settings"} if settings is not None else {}),
            **(variables or {}),
        }
        plugins = ["-p", "ductor", *(["-p", "django", "-p", "xdist"] if settings is not None else [])]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *plugins]
        command += [*arguments, "test_host.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
        return Run(done.returncode, done.stdout + done.stderr)

    return run


BLOCKED = """
import pytest
from django.db import transaction
from django.test import TestCase
from queueapp.errors import StoreError
from queueapp.testing import recorded
from jobs import add

@pytest.mark.django_db
def test_at_once():
    add.enqueue(1)

@pytest.mark.django_db(transaction=True)
def test_after_commit():
    with transaction.atomic():
        add.enqueue(1)

class Tests(TestCase):
    def test_captured(self):
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            add.enqueue(1)

    def test_recorded(self):
        with recorded() as jobs:
            add.enqueue(1)
        assert len(jobs) == 1

def test_that_awaits_the_refusal():
    with pytest.raises(StoreError):
        add.enqueue(1)
"""


def test_tests_that_did_not_ask_are_kept_from_the_store(host: Host) -> None:
    run = host(BLOCKED)

    assert "3 failed, 2 passed" in run.output
    for name in ("test_at_once", "test_after_commit", "test_captured"):
        assert f"FAILED test_host.py::{name}" in run.output or f"FAILED test_host.py::Tests::{name}" in run.output
    assert run.output.count("StoreBlocked: Tests do not reach the store unless they ask for one. Use the fixture") >= 3


def test_the_block_can_be_turned_off(host: Host) -> None:
    run = host("from jobs import add\n\ndef test_at_once():\n    add.enqueue(1)\n", "-o", "ductor_block=false")

    assert "StoreUnavailable" in run.output, "it went to the host's own store"
    assert "StoreBlocked" not in run.output


FIXTURES = """
import asyncio
import os
import pytest
from queueapp.store import shards
from jobs import add

def test_recorded(ductor_recorded):
    add.using(tenant="acme").enqueue(1)
    [job] = ductor_recorded
    assert (job.args, job.tenant) == ([1], "acme")

def test_immediate(ductor_immediate):
    assert add.enqueue(1, b=2).return_value == 3
    assert len(ductor_immediate) == 1

@pytest.mark.parametrize("number", range(6))
def test_store(ductor, number):
    assert shards.reads("default").overview().waiting == 0
    result = add.enqueue(number)
    ductor.assert_enqueued(add, args=[number], count=1)
    assert ductor.drain().succeeded == 1
    result.refresh()
    assert result.return_value == number

def test_asynchronous(ductor):
    async def main():
        result = await add.aenqueue(1, 1)
        await ductor.adrain()
        return await result.await_(timeout=5)
    assert asyncio.run(main()).return_value == 2
"""


@pytest.mark.parametrize("width", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_fixtures(host: Host, width: tuple[str, ...]) -> None:
    run = host(FIXTURES, *width)

    assert "9 passed" in run.output, run.output


def test_another_server_is_used_in_a_random_namespace(host: Host) -> None:
    url = server_url()

    run = host(
        "from jobs import add\ndef test_store(ductor):\n    print(ductor.url, ductor.namespace)\n    add.enqueue(1)\n",
        "-s",
        variables={"DUCTOR_TEST_REDIS_URL": url},
    )

    assert "1 passed" in run.output, run.output
    assert f"{url} test-" in run.output


def test_without_a_server_the_fixture_says_what_to_install(host: Host, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from queueapp.store import embedded\n"
        "embedded._bundled_binary = lambda: None\n"
        "embedded.shutil.which = lambda name: None\n"
    )
    run = host("def test_store(ductor): ...\ndef test_recorded(ductor_recorded): ...\n")

    assert "1 passed" in run.output
    assert "The fixture ductor needs a server. No Valkey or Redis server is installed" in run.output


UNTOUCHED = """
import sys

def test_nothing_of_ours_is_there():
    ours = {name for name in sys.modules if name.partition(".")[0] in %s}
    assert ours <= {"queueapp", "queueapp.testing", "queueapp.testing.pytest_plugin"}, ours
"""


def test_a_host_without_the_app_is_left_alone(host: Host) -> None:
    settings = 'SECRET_KEY = "host"\nINSTALLED_APPS = ["django.contrib.contenttypes"]\nUSE_TZ = True\n'

    run = host(UNTOUCHED % '{"queueapp", "redis"}', settings=settings)

    assert "1 passed" in run.output, run.output


def test_a_project_without_django_is_left_alone(host: Host) -> None:
    run = host(UNTOUCHED % '{"queueapp", "redis", "django"}', settings=None)

    assert "1 passed" in run.output, run.output


def test_it_is_an_entry_point() -> None:
    """Which the runs above name; without a name it is loaded in every run of an environment."""
    [point] = entry_points(group="pytest11", name="ductor")
    assert point.load() is pytest_plugin
