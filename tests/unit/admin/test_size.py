"""C154 and the admin's own bound: a page costs as little with 100,000 dead letters and tenants as with few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db import connection as database
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from queueapp.admin.choosing import address
from queueapp.models import Pool, Tenant
from queueapp.store import shards
from queueapp.store.embedded import EmbeddedServer
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob
from tests.unit.admin.conftest import Login

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis_url")]

MOST = 10
"""Round trips to the store, and queries, of any page."""
FEW_TENANTS = 7
PARTS = 5_000


@dataclass(slots=True)
class Costs:
    """What a page asked."""

    calls: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Costs]:
    """Counts what goes out: a pipeline is one, however many commands are in it."""
    costs = Costs()
    kind: Any = redis.connection.AbstractConnection
    send = kind.send_packed_command

    def counted(self: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        costs.calls.append(str(command)[:80])
        return send(self, command, *args, **kwargs)

    with monkeypatch.context() as patch, CaptureQueriesContext(database) as captured:
        patch.setattr(kind, "send_packed_command", counted)
        yield costs
    costs.queries = [query["sql"] for query in captured.captured_queries]


def seed(count: int) -> None:
    """So many dead letters: half of them of a few tenants, the others of one tenant each; two tasks, three causes."""
    store = shards.store("default")
    for first in range(0, count, PARTS):
        numbers = range(first, min(count, first + PARTS))
        jobs = [
            NewJob(
                id=new_id(),
                task=f"shop.tasks.job_{number % 2}",
                tenant=f"big-{number % FEW_TENANTS}" if number % 2 else f"t{number}",
                payload=b"{}",
                fingerprint="0" * 16,
            )
            for number in numbers
        ]
        store.enqueue(jobs)
        for reason in range(3):
            store.move_to_dlq([job.id for job in jobs[reason::3]], f"cause_{reason}")
    Tenant.objects.bulk_create([Tenant(key=f"t{number}") for number in range(0, count, 4)], batch_size=PARTS)
    Pool.objects.create(name="default")


def addresses() -> list[str]:
    letters, groups, jobs, pools, seen, tenants = (
        reverse(f"admin:queueapp_{name}")
        for name in (
            "deadletters_changelist",
            "deadletters_groups",
            "jobs_changelist",
            "operations_changelist",
            "tenant_seen",
            "tenant_changelist",
        )
    )
    return [
        letters,
        address(letters, {"offset": "900", "per": "200"}),
        address(letters, {"tenant": "big-3", "per": "200"}),
        address(letters, {"tenant": "big-3", "task": "shop.tasks.job_1", "reason": "cause_2", "per": "200"}),
        address(letters, {"task": "shop.tasks.none", "per": "1000000000"}),
        address(letters, {"reason": "cause_1", "per": "200"}),
        groups,
        *(address(jobs, {"state": state, "per": "200"}) for state in ("dead", "pending", "active", "ended")),
        address(jobs, {"state": "dead", "tenant": "big-1", "task": "shop.tasks.none"}),
        pools,
        reverse("admin:queueapp_operations_pool", args=["default"]),
        seen,
        address(seen, {"offset": "400", "every": "1"}),
        tenants,
        address(tenants, {"q": "t1", "p": "2"}),
    ]


@pytest.fixture
def own_store(own_server: Callable[..., EmbeddedServer]) -> Iterator[None]:
    """A server that ends with the test: taking away so many keys one by one would take longer than making them."""
    with override_settings(DUCTOR={**django_settings.DUCTOR, "REDIS_URL": own_server().url}):
        yield


@pytest.mark.usefixtures("own_store")
@pytest.mark.parametrize("count", [1_200, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_every_page_is_bounded(login: Login, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    seed(count)
    client = login("view_operations", "view_payload", "operate_job", "discard_job", "view_tenant")
    for page in addresses():
        client.get(page)  # connections, scripts, pool codes
        with counting(monkeypatch) as costs:
            answer = client.get(page)
        assert answer.status_code == 200, page
        assert not answer.context.get("fault"), page
        assert len(costs.calls) <= MOST, (page, costs.calls)
        assert len(costs.queries) <= MOST, (page, costs.queries)


def test_c154_the_pages_of_a_long_list_are_stable_and_hold_everything_once(login: Login) -> None:
    seed(430)
    client = login("view_operations")
    seen, page = [], address(reverse("admin:queueapp_deadletters_changelist"), {"per": "100"})
    for _ in range(10):
        answer = client.get(page)
        seen += [row.id for row in answer.context["rows"]]
        if not answer.context["next"]:
            break
        page = reverse("admin:queueapp_deadletters_changelist") + answer.context["next"]
    assert len(seen) == len(set(seen)) == 430


def test_counting_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with counting(monkeypatch) as costs:
        shards.pools()
        before = len(costs.calls)
        shards.pools()
        Tenant.objects.exists()
    assert len(costs.calls) == before + 1
    assert len(costs.queries) == 1


def test_confirming_everything_is_as_cheap(client: Client, login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(1_200)
    client = login("view_operations", "operate_job")
    form = {"scope": "all", "tenant": "big-1", "task": "shop.tasks.job_1", "pool": "default"}
    client.post(reverse("admin:queueapp_deadletters_retry"), form)
    with counting(monkeypatch) as costs:
        answer = client.post(reverse("admin:queueapp_deadletters_retry"), form)
    assert answer.status_code == 200
    assert len(costs.calls) <= MOST
    assert len(costs.queries) <= MOST
