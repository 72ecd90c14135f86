"""A fresh `django-admin startproject`, the built wheel, the README's five steps, and nothing else.

What they say is done word for word: a job enqueued in a view runs, one enqueued in a signal runs, the weight that
somebody gives a tenant in the admin shows in the order of the jobs, and the host's own tests pass.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.project import Browser, Project, until
from tests.packaging.steps import STEPS, commands, files

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(600)]

MONTHS = 12


@pytest.fixture(params=["5.2", "6.1"])
def project(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Iterator[Project]:
    """After the steps, up to the lines that run it."""
    made = Project.make(tmp_path, request.param)
    shutil.copytree(wheel.parent, made.directory / "dist")
    install, run = commands(STEPS, made.django)
    for line in install:
        made.run(line)
    made.run("django-admin startproject mysite .")
    made.run("python manage.py startapp shop")
    for block in files(STEPS):
        block.write(made.directory, made.django)
    test, migrate, *_ = run
    assert "OK" in made.run(test)
    made.run("python manage.py makemigrations --check --dry-run")
    made.run(f"{migrate} -v 0")
    assert "no issues" in made.run("python manage.py check")
    yield made
    made.stop_all()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ended(project: Project, task: str) -> list[str]:
    """What the jobs of a task returned that have ended, the newest first."""
    code = (
        "from queueapp.inspection.jobs import list_jobs; "
        "from shop import tasks; "
        f"jobs = list_jobs('default', 'ended', task='shop.tasks.{task}').jobs; "
        f"print('\\n'.join(str(tasks.{task}.get_result(job.id).return_value) for job in jobs))"
    )
    return project.run(f'python manage.py shell -v 0 -c "{code}"').splitlines()


def report(browser: Browser, month: object, customer: str) -> str:
    """Ask the view for a report; the id of its job."""
    job: str = json.loads(browser.get(f"/reports/{month}/?customer={customer}"))["job"]
    return job


def test_the_five_steps(project: Project) -> None:
    *_, (_, _, stack, superuser) = commands(STEPS, project.django)
    port = free_port()
    browser = Browser(f"http://127.0.0.1:{port}")

    # But for the port: others may use 8000 here.
    running = project.start(f"{stack} --port {port}")
    until(browser.is_up, lambda: running.output)

    # A job enqueued in a view.
    job = report(browser, "2026-11", "acme")
    until(lambda: ended(project, "make_report") == ["the report of 2026-11"], lambda: running.output)
    assert "completed" in project.run(f"python manage.py ductor job {job}")

    # Jobs enqueued in a signal: the superuser's (a person would answer the questions), and that of a user who is added
    # in the admin, which does so inside a transaction.
    project.run(f"{superuser} --noinput --username ada --email ada@example.org")
    until(lambda: ended(project, "welcome") == ["Welcome, ada!"], lambda: running.output)
    browser.send("/admin/login/?next=/admin/", username="ada", password="a long password")
    browser.send("/admin/auth/user/add/", username="grace", password1="of all sorts 7", password2="of all sorts 7")
    until(lambda: ended(project, "welcome") == ["Welcome, grace!", "Welcome, ada!"], lambda: running.output)
    running.stop()

    # A weight: nothing works while the jobs come in, then one worker takes them in order.
    running = project.start(f"{stack} --port {port} --workers 0")
    until(browser.is_up, lambda: running.output)
    [pool] = re.findall(r"/admin/queueapp/pool/(\d+)/change/", browser.get("/admin/queueapp/pool/"))
    limits = {"limits-0-pool": pool, "limits-0-weight": "3"}
    browser.send("/admin/queueapp/tenant/add/", another="limits", key="acme", **limits)
    tenants = {report(browser, month, tenant): tenant for month in range(MONTHS) for tenant in ("acme", "zenith")}
    said = project.run("python manage.py worker --batch --slots 1 -v 2 2>&1")
    order = [tenants[job] for job in re.findall(r"id=(\S+) path=shop\.tasks\.make_report state=RUNNING", said)]
    assert len(order) == 2 * MONTHS, said
    assert 8 <= order[:MONTHS].count("acme") <= 10, f"weight 3 beside 1, so 9 of the first 12: {order}"
    running.stop()
