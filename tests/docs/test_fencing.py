"""The examples of `docs/fencing.md` run as written, and do what it says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models

from queueapp.errors import StaleWriter, UnfencedWrite
from queueapp.fencing import Fence
from queueapp.producer.discovery import registry as tasks
from queueapp.store import ids

PAGE = (Path(__file__).resolve().parents[2] / "docs/fencing.md").read_text()
BLOCKS = re.findall(r"^```python\n# shop/(\w+)\.py\n(.*?)^```$", PAGE, re.S | re.M)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def shop() -> Iterator[SimpleNamespace]:
    """The modules of the page; their models belong to an app that is not installed."""
    known, made = dict(tasks), {}
    sys.modules["shop"] = ModuleType("shop")
    for name, text in BLOCKS:
        module = sys.modules[f"shop.{name}"] = ModuleType(f"shop.{name}")
        text = re.sub(
            r"^(class \w+\((?:models\.Model|FencedModel)\):\n)",
            r'\1    class Meta:\n        app_label = "shop"\n\n',
            text,
            flags=re.M,
        )
        exec(compile(text, name, "exec"), module.__dict__)
        made[name] = module
    yield SimpleNamespace(**made)
    tasks.clear()
    tasks.update(known)
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
    apps.all_models.pop("shop", None)
    apps.clear_cache()


@pytest.fixture
def _tables(transactional_db: None, shop: SimpleNamespace) -> Iterator[None]:
    made: list[type[models.Model]] = [shop.models.Report, shop.bookings.Account, shop.bookings.Booking]
    with connection.schema_editor() as editor:
        for model in made:
            editor.create_model(model)
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            for model in reversed(made):
                editor.delete_model(model)


def run(lease: int, job: str) -> Any:
    return SimpleNamespace(fence=Fence(lease, job_id=job))


def test_every_block_is_used_here(shop: SimpleNamespace) -> None:
    assert [name for name, _ in BLOCKS] == ["models", "tasks", "bookings"]
    assert PAGE.count("```python") == len(BLOCKS)


@pytest.mark.usefixtures("_tables")
def test_a_report_is_kept_from_an_older_run_and_an_older_job(shop: SimpleNamespace) -> None:
    make, monday, tuesday = shop.tasks.make_report.func, ids.new_id(), ids.new_id()
    make(run(2, monday), "2026-11", [1, 2])
    with pytest.raises(StaleWriter):
        make(run(1, monday), "2026-11", [1])
    make(run(1, tuesday), "2026-11", [1, 2, 3])
    with pytest.raises(StaleWriter):
        make(run(3, monday), "2026-11", [1])
    report = shop.models.Report.objects.get()
    assert report.total == 6
    with pytest.raises(UnfencedWrite):
        report.save()


@pytest.mark.usefixtures("_tables")
def test_bookings_of_several_jobs_all_come_in_once(shop: SimpleNamespace) -> None:
    book, older, newer = shop.bookings.book.func, ids.new_id(), ids.new_id()
    account = shop.bookings.Account.objects.create()
    for number, amount in ((1, 10), (2, 5)):
        shop.bookings.Booking.objects.create(number=number, account=account, amount=amount)
    book(run(1, newer), 2)
    book(run(2, older), 1)
    book(run(3, older), 1)
    with pytest.raises(StaleWriter):
        book(run(1, older), 1)
    account.refresh_from_db()
    assert account.balance == 15
