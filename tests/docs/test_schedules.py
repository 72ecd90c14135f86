"""The examples of `docs/schedules.md` run as written, and its tables say what the code does."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from queueapp.codec import decode_arguments
from queueapp.firings import ALL_MOST, CATCH_UP, EVERY_MAX_S, LATE_MS, OVERLAP, Rule
from queueapp.models import Schedule
from queueapp.producer.discovery import registry as tasks
from queueapp.producer.task import find
from queueapp.schedules import declared
from queueapp.schedules.firing import CLAIM_S, fire_due
from queueapp.schedules.jobs import KNOWN_MS
from queueapp.schedules.rows import bring_into_rows
from queueapp.store.store import Store

PAGE = (Path(__file__).resolve().parents[2] / "docs/schedules.md").read_text()
BLOCKS = {
    block.splitlines()[0].lstrip("# "): block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
}

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    modules, schedules, known = set(sys.modules), dict(declared.registry), dict(tasks)
    declared.registry.clear()
    yield
    declared.registry.clear()
    declared.registry.update(schedules)
    tasks.clear()
    tasks.update(known)
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] == "shop":
            del sys.modules[name]


def module(name: str, block: str) -> Any:
    sys.modules.setdefault("shop", ModuleType("shop"))
    made = sys.modules[name] = ModuleType(name)
    exec(compile(BLOCKS[block], name, "exec"), made.__dict__)
    return made


def test_every_block_is_used_here() -> None:
    assert set(BLOCKS) == {"shop/tasks.py", "shop/reports.py"}


def test_the_declarations_become_rows(store: Store) -> None:
    module("shop.tasks", "shop/tasks.py")
    done = bring_into_rows()
    assert (sorted(done.made), done.refused) == (
        *(["acme's monthly report", "shop.tasks.look_for_mail", "shop.tasks.tidy_up"], {}),
    )
    report = Schedule.objects.get(name="acme's monthly report")
    assert (report.tenant, report.priority, report.args, report.kwargs) == ("acme", 10, ["last"], {"copies": 2})
    assert (report.catch_up, report.overlap) == ("all", "skip")
    mail = Schedule.objects.get(name="shop.tasks.look_for_mail")
    assert (mail.every_seconds, mail.jitter_seconds) == (90, 30)


def test_the_job_knows_which_firing_it_is(store: Store) -> None:
    module("shop.reports", "shop/reports.py")
    bring_into_rows()
    six = round(datetime(2025, 6, 1, 6, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)
    Schedule.objects.update(next_ms=six)

    fire_due(six + 3_600_000)

    [job] = store.check_and_lease("w", 1, want=5, begin=5, lease_ms=60_000).jobs
    context = type("Context", (), {"metadata": decode_arguments(job.payload)[2]["metadata"]})
    assert find(job.task).func(context) == "shop.reports.daily_figures for 2025-06-01, late: True"


def test_the_table_of_options_is_that_of_the_function() -> None:
    rows = PAGE.split("| option | default | meaning |")[1].split("\n\n")[0]
    named = {name for row in re.findall(r"^\| ([^|]+) \|", rows, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert named == declared.GIVEN - {"args", "kwargs"}
    listed = PAGE.split("options from `.using(...)`: ")[1].split(". What is wrong")[0].replace("(deadline)", "")
    assert set(re.findall(r"[a-z_]{4,}", listed)) - {"seconds"} == declared.OPTIONS | set(declared.COLUMNS.values())


def test_the_tables_of_rules_and_the_bounds() -> None:
    for heading, words in (("When nobody was there", CATCH_UP), ("When the last job is not over", OVERLAP)):
        section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
        assert tuple(re.findall(r'^\| `"(\w+)"`', section, re.M)) == words
    assert f"at most the newest {ALL_MOST:,}" in PAGE
    assert (LATE_MS, KNOWN_MS, CLAIM_S + 5, EVERY_MAX_S) == (60_000, 3_600_000, 15, 366 * 86_400)


def test_the_table_of_summer_time() -> None:
    zone = ZoneInfo("Europe/Berlin")

    def day(cron: str, *date: int) -> list[str]:
        first = round(datetime(*date, tzinfo=zone).timestamp() * 1000)  # type: ignore[arg-type, misc]  # the tuple has the parts of a moment
        found: list[str] = []
        for moment in Rule(cron=cron, zone="Europe/Berlin").firings(first - 1):
            local = datetime.fromtimestamp(moment / 1000, UTC).astimezone(zone)
            if local.day != date[2]:
                return found
            found.append(f"{local:%H:%M}")
        raise AssertionError

    spring, autumn = (2025, 3, 30), (2025, 10, 26)
    assert (day("30 2 * * *", *spring), day("30 2 * * *", *autumn)) == (["03:00"], ["02:30"])
    assert (len(day("0 * * * *", *spring)), len(day("0 * * * *", *autumn))) == (23, 25)
    assert len(day("0 0-23 * * *", *autumn)) == 24
