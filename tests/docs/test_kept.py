"""`docs/operations.md` says of each key and table how long what it holds is kept: what nobody bounds grows for ever."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from queueapp.conf import load
from queueapp.models import DeadLetterInspection, OutboxEntry
from queueapp.scheduler.duties import records
from queueapp.scheduler.duties.records import Records
from queueapp.store.keys import GLOSSARY

PAGE = (Path(__file__).resolve().parents[2] / "docs/operations.md").read_text()
SECTION = PAGE.split("## What is kept\n")[1].split("\n## ")[0]
STORE, DATABASE = SECTION.split("In the database:")


def kinds() -> set[str]:
    """The keys of the glossary by kind: what stands before the first part that is filled in."""
    return {re.split(r"[:<]", name)[0] for name in GLOSSARY}


def test_every_kind_of_key_has_its_bound_in_the_table_once() -> None:
    rows = re.findall(r"^\| [^|]+ \| ((?:`\w+` ?)+) \| ([^|]+) \| [^|]*\|$", STORE, re.MULTILINE)
    named = [kind for keys, _ in rows for kind in re.findall(r"`(\w+)`", keys)]
    assert sorted(named) == sorted(set(named)), "each once"
    assert set(named) == kinds()
    assert all(bound.strip() for _, bound in rows)


def test_every_table_has_its_bound() -> None:
    named = set(re.findall(r"\b([A-Z]\w+)\b", " ".join(re.findall(r"^\| ([^|]+) \|", DATABASE, re.MULTILINE))))
    ours = {
        model.__name__
        for app in ("queueapp", "ductor_flows")
        for model in apps.get_app_config(app).get_models()
        if model._meta.managed and not model._meta.proxy
    }
    assert ours <= named, "Operations and its like have no table"


@pytest.mark.parametrize(
    ("words", "setting", "value"),
    [
        ("24 h, and 100,000 a pool", "result_ttl_ms", 24 * 3_600_000),
        ("24 h, and 100,000 a pool", "result_max", 100_000),
        ("30 d, and 10,000 a tenant", "dead_ttl_ms", 30 * 86_400_000),
        ("30 d, and 10,000 a tenant", "dead_max", 10_000),
        ("365 d |", "records_ttl_ms", 365 * 86_400_000),
        ("30 d after the run has ended", "runs_ttl_ms", 30 * 86_400_000),
        ("`idem` | 24 h", "idempotency_ttl_ms", 24 * 3_600_000),
    ],
)
def test_the_figures_are_the_defaults(words: str, setting: str, value: int) -> None:
    assert words in SECTION
    assert getattr(load({})[0], setting) == value


@pytest.mark.django_db
def test_old_records_and_refused_entries_go_in_bounded_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST", 3)
    monkeypatch.setattr(records, "close_old_connections", lambda: None)  # the test's own is open
    old = timezone.now() - timedelta(days=366)
    for number in range(5):
        DeadLetterInspection.objects.create(job_id=f"d{number}", action="noted")
        values: dict[str, Any] = {"pool": "default", "job": {}, "payload": b"", "due": timezone.now()}
        OutboxEntry.objects.create(job_id=f"r{number}", state="refused", **values)
        OutboxEntry.objects.create(job_id=f"w{number}", state="waiting", **values)
    for model, key in ((DeadLetterInspection, "d4"), (OutboxEntry, "r4")):
        model._default_manager.exclude(job_id=key).update(created=old, updated=old)
    assert Records().run() == 0.0, "there is more"
    assert Records().run() == records.EVERY_S
    assert [row.job_id for row in DeadLetterInspection.objects.all()] == ["d4"]
    assert sorted(row.job_id for row in OutboxEntry.objects.all()) == ["r4", "w0", "w1", "w2", "w3", "w4"]
    assert Records().run() == records.EVERY_S
