"""`docs/quickstart.md`, done word for word in a project of this environment; only the wheel is not installed for it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

from tests.packaging.project import Browser, Project, until
from tests.packaging.steps import ROOT, STEPS, commands, files
from tests.packaging.test_five_steps import free_port

PAGE = (ROOT / "docs/quickstart.md").read_text()
DJANGO = ".".join(map(str, django.VERSION[:2]))


@pytest.fixture(autouse=True)
def namespace() -> str:
    """In place of the fixture that gives every other test a server: the project starts its own."""
    return "ductor"


class Here(Project):
    """A project that uses the environment of the tests, and Ductor's sources."""

    @property
    def variables(self) -> dict[str, str]:
        given: dict[str, str] = Project.variables.__get__(self)
        return {**given, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Here]:
    (tmp_path / "project").mkdir()
    made = Here(tmp_path / "project", Path(sys.prefix), DJANGO)
    yield made
    made.stop_all()


def order(output: str) -> str:
    """The letters that `flood` shows: who started when."""
    letters: str = re.findall(r"^[bs]+$", output, re.MULTILINE)[-1]
    return letters


@pytest.mark.packaging
@pytest.mark.timeout(300)
def test_the_quickstart(project: Here) -> None:
    start, _, run, flood, weighted, failure, mended, test = commands(PAGE, DJANGO)
    for line in start:
        project.run(line)
    for block in files(PAGE):
        block.write(project.directory, DJANGO)
    migrate, superuser, stack = run
    project.run(f"{migrate} -v 0")
    project.run(f"{superuser} --noinput --username ada --email ada@example.org")
    port = free_port()
    browser = Browser(f"http://127.0.0.1:{port}")
    running = project.start(f"{stack} --port {port}")
    until(browser.is_up, lambda: running.output)

    # The small customer is served at once: a plain queue would have its jobs last.
    letters = order(project.run(*flood))
    assert (letters.count("b"), letters.count("s")) == (60, 3)
    assert letters.rindex("s") < 20, letters
    running.wait_for("state=SUCCESSFUL")

    browser.send("/admin/login/?next=/admin/", username="ada", password="a long password")
    [pool] = re.findall(r"/admin/queueapp/pool/(\d+)/change/", browser.get("/admin/queueapp/pool/"))
    limits = {"limits-0-pool": pool, "limits-0-weight": "3"}
    browser.send("/admin/queueapp/tenant/add/", another="limits", key="big", **limits)
    letters = order(project.run(*weighted))
    assert 6 <= letters[:40].count("s") <= 14, f"weight 3 beside 1, so about 10 of the first 40: {letters}"

    charged, groups = failure
    assert project.run(charged).splitlines()[-1] == "FAILED"
    assert "shop.tasks.charge" in project.run(groups)
    bank, retry, ended = mended
    project.run(bank)
    assert project.run(retry).splitlines()[-1] == "1 retried."
    until(lambda: "completed" in project.run(ended), lambda: running.output)

    assert "OK" in project.run(*test)
    assert "/reports/" in project.run(
        'python manage.py shell -v 0 -c "from django.urls import reverse; '
        "from shop.views import report; print(reverse(report, args=['x']))\""
    )


def test_it_installs_and_sets_what_the_readme_does() -> None:
    _, install, *_ = commands(PAGE, DJANGO)
    assert [install] == commands(STEPS, DJANGO)[:1]
    settings = "mysite/settings.py"
    assert [block for block in files(PAGE) if block.path == settings] == [
        block for block in files(STEPS) if block.path == settings
    ]
