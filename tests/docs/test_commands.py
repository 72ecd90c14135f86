"""Every example of `manage.py ductor`, in its help and on the pages, does what it is shown for, one after the other."""

from __future__ import annotations

import io
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

import queueapp
from flows import declaring, flow, models, step
from flows.versions import load_flows
from queueapp.inspection.jobs import find_job
from queueapp.management.commands.ductor import Command
from queueapp.models import Pool, Schedule
from queueapp.producer.discovery import registry
from queueapp.store import shards
from queueapp.store.records import Failed

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(ROOT.glob("docs/*.md"))
HELP = [line.strip().removeprefix("{command} ") for line in Command.examples.splitlines() if "{command}" in line]
ON_PAGES = {
    page.name: [
        line.partition("manage.py ductor ")[2]
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if re.match(r"(python )?manage\.py ductor ", line)
    ]
    for page in PAGES
}
ID, GROUP = "3gk2xw.0.0123456789abcdefghijkl", "5f0c2a91d3be"
RUN = "rP7x0123456789abcdefgh"
"""Of a run, as the pages show it."""
JUDGED = ("doctor",)
"""What ends with another code than 0 where all is not well."""


@queueapp.task
def send(address: str = "", amount: int = 0, token: str = "") -> None: ...


def import_upload(upload_id: int) -> object:
    return step(send, kwargs={"amount": upload_id})


@pytest.fixture
def shop(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The pools, tenants, schedules and the dead letter that the examples speak of; the dead letter's id."""
    for name in ("emails", "reports", "slow"):
        Pool.objects.create(name=name)
    for name in ("shop.tasks.send_mail", "shop.tasks.charge"):
        monkeypatch.setitem(registry, name, send)
    for name in ("nightly report", "acme's monthly report", "shop.tasks.tidy_up"):
        Schedule.objects.create(name=name, task="shop.tasks.send_mail", args=["a"], cron="0 3 * * *")
    task = send.using(tenant="acme", queue_name="emails", on_commit=False)
    task.using(run_after=datetime(2099, 1, 1, tzinfo=UTC)).enqueue("b@shop.example")
    job_id = task.enqueue("a@shop.example", amount=3, token="hidden").id
    bury(1)
    load_flows()  # the demonstration's has the same name
    monkeypatch.setattr(declaring, "registry", {})
    flow(import_upload).using(tenant="acme", key="of the examples").start(7).cancel("to be resumed by one")
    monkeypatch.setattr("builtins.input", lambda question: "emails" if "Type its name" in question else "y")
    return job_id


def bury(seq: int) -> None:
    """Its job fails for good, also once an example has retried it."""
    store = shards.store("emails")
    for leased in store.check_and_lease("w1.0123ab", seq, want=1, begin=1, lease_ms=30_000).jobs:
        failed = Failed(id=leased.id, attempts=leased.attempts, run_ms=1, error=b'{"class":"a.B"}', fingerprint=GROUP)
        store.fail([failed])


def run(line: str, job_id: str) -> str:
    """What an example prints; comments and what the shell does are left out."""
    [run_id] = models.Run.objects.filter(key="of the examples").values_list("id", flat=True)
    words = shlex.split(re.split(r" {3,}| #|>", line)[0].replace(ID, job_id).replace(RUN, run_id))
    out = io.StringIO()
    try:
        call_command("ductor", *words, stdout=out)
    except CommandError:
        if words[0] not in JUDGED:
            raise
    return out.getvalue()


def test_the_examples_of_the_help(shop: str) -> None:
    assert len(HELP) >= 28
    for line in HELP:
        assert run(line, shop), line


@pytest.mark.parametrize("page", [name for name, lines in ON_PAGES.items() if lines])
def test_the_examples_of_the_pages(shop: str, page: str) -> None:
    for seq, line in enumerate(ON_PAGES[page], start=2):
        run(line, shop)
        bury(seq)


def test_the_shop_is_there(shop: str) -> None:
    job: Any = find_job(shop)
    assert (job.state, job.group) == ("dead", GROUP)
    assert sum(map(len, ON_PAGES.values())) >= 10
