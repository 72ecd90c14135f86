"""The examples of `docs/enqueueing.md` run, and do what the page says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.test.utils import override_settings

from queueapp.middleware import TenantMiddleware
from queueapp.moments import now_ms
from queueapp.producer.discovery import registry
from queueapp.producer.preparation import prepare
from queueapp.producer.tenancy import current_tenant, entered
from queueapp.signals import enqueue_failed
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, Failed, Returned
from queueapp.worker.attempt import run_one
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.slots import Held
from tests.working import work

PAGE = (Path(__file__).resolve().parents[2] / "docs/enqueueing.md").read_text()
BLOCKS = {
    block.splitlines()[0].lstrip("# "): block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
}

pytestmark = pytest.mark.django_db(transaction=True)


class Declined(Exception):
    """The card was declined."""


def decline(order: object) -> None:
    raise Declined


def module(name: str, block: str) -> Any:
    made = ModuleType(name)
    sys.modules[name] = made
    exec(compile(BLOCKS[block], name, "exec"), made.__dict__)
    return made


@pytest.fixture
def shop() -> Iterator[ModuleType]:
    """The host project of the examples: its orders are groups."""
    before = set(sys.modules)
    sys.modules["shop"] = ModuleType("shop")
    models = sys.modules["shop.models"] = ModuleType("shop.models")
    models.Order = Group  # type: ignore[attr-defined]  # an attribute of this test
    yield module("shop.tasks", "shop/tasks.py")
    registry.pop("shop.tasks.send_invoice", None)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "shop":
            del sys.modules[name]


def test_every_block_is_used_here() -> None:
    assert set(BLOCKS) == {
        "shop/tasks.py",
        "wrong: sent while the transaction is open",
        "right: nothing to do but to leave `on_commit` alone",
        "shop/alarms.py",
        "shop/work.py",
        "settings.py",
        "shop/tenants.py",
        "shop/deadlines.py",
        "shop/charging.py",
        "shop/exports.py",
        "shop/imports.py",
    }


def test_the_wrong_way_sends_an_invoice_for_no_order(shop: Any, reads: Reads) -> None:
    wrong = module("shop.wrong", "wrong: sent while the transaction is open")
    with pytest.raises(Declined):
        wrong.place_order("order", decline)

    assert (reads.overview().waiting, Group.objects.count()) == (1, 0)


def test_the_right_way_sends_after_commit_and_not_after_a_rollback(shop: Any, reads: Reads) -> None:
    right = module("shop.right", "right: nothing to do but to leave `on_commit` alone")
    with pytest.raises(Declined):
        right.place_order("order", decline)
    assert (reads.overview().waiting, Group.objects.count()) == (0, 0)

    result = right.place_order("order", lambda order: None)
    assert (result.state, reads.overview().waiting) == ("pending", 1)
    assert shop.send_invoice.call(Group.objects.get().pk) == "invoice of order"


def test_a_receiver_learns_what_nothing_will_send(shop: Any, reads: Reads) -> None:
    alarms = module("shop.alarms", "shop/alarms.py")
    try:
        keyed = shop.send_invoice.using(idempotency_key="k")
        keyed.enqueue(1)
        from django.db import transaction

        with transaction.atomic():
            result = keyed.enqueue(2)
    finally:
        enqueue_failed.disconnect(alarms.note)

    assert alarms.lost == [(result.id, "conflict")]


def test_a_company_is_a_tenant(shop: Any, reads: Reads) -> None:
    work = module("shop.work", "shop/work.py")
    company = Group.objects.create(name="company")
    [result] = work.bill(company, [Group.objects.create(name="order")])

    record = reads.job(result.id[-22:])
    assert record is not None
    assert record.tenant == str(company.pk)


def test_settings_and_context(shop: Any) -> None:
    tenants = module("shop.tenants", "shop/tenants.py")
    settings = module("shop.settings", "settings.py")
    seen: list[str | None] = []

    def view(request: HttpRequest) -> HttpResponse:
        seen.append(current_tenant())
        return HttpResponse()

    with override_settings(DUCTOR={**settings.DUCTOR, "TENANT_CONTEXT": tenants.activate}):
        TenantMiddleware(view)(RequestFactory().get("/", headers={"x-company": "acme"}))
        with entered("acme"):
            pass
    assert (seen, tenants.log) == (["acme"], ["enter acme", "leave acme"])


def test_a_duration_is_the_task_s_and_a_moment_the_job_s(shop: Any, reads: Reads) -> None:
    deadlines = module("shop.deadlines", "shop/deadlines.py")
    before, closing = now_ms(), datetime(2099, 1, 31, 9, tzinfo=UTC)
    try:
        ids = [deadlines.confirm.enqueue(1).id, deadlines.confirm_before(1, closing).id]
    finally:
        registry.pop("shop.deadlines.confirm")

    [first, second] = [job.deadline_ms for job in reads.jobs([each[-22:] for each in ids]) if job is not None]
    assert before + 600_000 <= first <= now_ms() + 600_000
    assert second == round(closing.timestamp() * 1000)


def test_keys_are_filled_in_from_arguments_and_tenant(shop: Any) -> None:
    charging = module("shop.charging", "shop/charging.py")
    try:
        jobs = [prepare(charging.charge, (7,), {}).job, prepare(charging.export.using(tenant="acme"), (1,), {}).job]
    finally:
        for name in ("charge", "export"):
            registry.pop(f"shop.charging.{name}")

    texts = [{(key.text, key.limit) for key in job.keys} for job in jobs]
    assert texts == [{("customer:7", 2)}, {("gateway", 10), ("export:acme", 1)}]


def leased(worker: str) -> Held:
    """The next job, leased by a worker that a test speaks for."""
    store = shards.store("default")
    [job] = store.check_and_lease(worker, 1, want=1, begin=1, lease_ms=60_000).jobs
    return Held(job, Line("default", store, worker, lease_ms=60_000))


def test_a_body_that_looks_ends_early_and_a_coroutine_is_cancelled(shop: Any, reads: Reads) -> None:
    exports = module("shop.exports", "shop/exports.py")
    whole, cut, watched = exports.export_all.enqueue(3), exports.export_all.using(lane="b"), exports.watch
    assert work() == 1
    whole.refresh()
    assert (whole.return_value, whole.progress["done"]) == (3, 3)

    for number, (result, outcome) in enumerate(((cut.enqueue(3), Completed), (watched.enqueue(60), Failed))):
        held = leased(f"w{number}")
        assert result.cancel() is True
        held.cancel()
        ended = run_one(held, Faults())
        assert isinstance(ended, (Completed, Failed))
        assert type(ended) is outcome
        store = shards.store("default")
        told = store.cycle(f"w{number}", 9, want=0, begin=0, lease_ms=1, finished=[ended])
        assert told.finished == ["cancelled"]
        result.refresh()
        assert (result.outcome, result.progress) == ("cancelled", None)


def test_an_import_goes_on_where_it_was(shop: Any, reads: Reads) -> None:
    imports = module("shop.imports", "shop/imports.py")
    result = imports.import_pages.enqueue(4)
    job = leased("w1").job
    store = shards.store("default")
    assert store.save(job.id, 1, {"checkpoint": b"3"}) == "done"
    store.partition_requeue([Returned(id=job.id, attempts=1)])
    held = leased("w2")
    saved: list[object] = []

    def save(*said: object) -> str:
        saved.append(said)
        return "done"

    held.line.store.save = save  # type: ignore[method-assign, assignment]  # stands in for it in this test
    ended = run_one(held, Faults())
    assert isinstance(ended, Completed)
    assert ended.result == b"4"
    assert saved == [(job.id, 2, {"checkpoint": b"4"})], "one page was left"
    assert result.id.endswith(job.id)
