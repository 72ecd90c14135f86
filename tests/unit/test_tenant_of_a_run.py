"""A run belongs to its job's tenant: the body, what it enqueues, the host's own context, and who listens to its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import override_settings

from queueapp import task
from queueapp.codec import encode_arguments
from queueapp.compat import task_finished, task_started
from queueapp.producer.backoff import fixed
from queueapp.producer.tenancy import current_tenant
from queueapp.store.reads import Reads
from queueapp.store.records import Completed, Failed
from queueapp.worker import attempt, tidying
from queueapp.worker.faults import Faults
from queueapp.worker.line import Line
from queueapp.worker.slots import Held, Outcome
from tests.producing import add
from tests.unit.fake_store import FakeStore, leased

pytestmark = pytest.mark.django_db(transaction=True)

schemas: list[str] = []
order: list[str] = []


@contextmanager
def schema(name: str) -> Iterator[None]:
    """What django-tenants' schema_context does: something on the connection of this thread."""
    order.append("enter")
    schemas.append(name)
    connection.schema_of_test = name  # type: ignore[attr-defined]  # an attribute of this test
    try:
        yield
    finally:
        del connection.schema_of_test  # type: ignore[attr-defined]  # an attribute of this test
        schemas.pop()
        order.append("leave")


@contextmanager
def closed_schema(name: str) -> Iterator[None]:
    if name:
        raise PermissionError("this schema is closed")
    yield


def seen() -> list[Any]:
    return [current_tenant(), list(schemas), getattr(connection, "schema_of_test", None)]


@task
def look() -> list[Any]:
    return seen()


@task
async def look_later() -> list[Any]:
    """What its synchronous parts see, the ORM's among them."""
    from asgiref.sync import sync_to_async

    await Group.objects.acount()
    return await sync_to_async(seen)()


@task(max_attempts=3, backoff=fixed(7))
def tried_again() -> None: ...


@task
def raises() -> None:
    raise LookupError


@task
def enqueues() -> str:
    return add.enqueue(1).id


@task
async def enqueues_later() -> str:
    return (await add.aenqueue(1)).id


@pytest.fixture(autouse=True)
def _afresh() -> None:
    schemas.clear()
    order.clear()


def run(function: str, **values: Any) -> Outcome:
    store = FakeStore()
    job = leased(task=f"{__name__}.{function}", payload=encode_arguments([], {}), **values)
    store.active[job.id] = job.attempts
    return attempt.run_one(Held(job, Line("default", store, "me", lease_ms=30_000)), Faults())


def result_of(outcome: Outcome) -> Any:
    assert isinstance(outcome, Completed), outcome
    return json.loads(outcome.result or b"null")


def in_context(source: Any) -> Any:
    from django.conf import settings

    return override_settings(DUCTOR={**settings.DUCTOR, "TENANT_CONTEXT": source})


@pytest.mark.parametrize("function", ["look", "look_later"])
def test_tenant_and_context_are_entered_around_the_body(function: str) -> None:
    with in_context(schema):
        assert result_of(run(function, tenant="acme")) == ["acme", ["acme"], "acme"]
    assert (current_tenant(), schemas) == (None, [])


def test_they_are_left_when_the_body_raises() -> None:
    with in_context(schema):
        outcome = run("raises")
    assert isinstance(outcome, Failed)
    assert json.loads(outcome.error)["class"] == "builtins.LookupError"
    assert order == ["enter", "leave"]


def test_a_context_that_cannot_be_entered_is_a_failure_of_the_job_that_names_it() -> None:
    finished: list[Any] = []

    def receive(task_result: Any, **_: Any) -> None:
        finished.append((task_result.status, current_tenant()))

    task_finished.connect(receive)
    try:
        with in_context(closed_schema):
            again = run("tried_again", tenant="acme", max_attempts=3)
            final = run("look", tenant="acme")
    finally:
        task_finished.disconnect(receive)

    assert isinstance(again, Failed)
    assert again.retry_ms == 7000, "by the task's own backoff"
    assert isinstance(final, Failed)
    assert final.retry_ms is None
    error = json.loads(final.error)
    assert error["class"] == "queueapp.errors.TenantContextError"
    assert all(words in error["message"] for words in ("TENANT_CONTEXT", "closed_schema", "'acme'", "is closed"))
    assert finished == [("FAILED", "acme")]


def test_stale_connections_are_closed_before_and_after_and_not_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "close_old_connections", lambda: order.append("close"))
    monkeypatch.setattr(tidying, "FRESH_S", 0)
    with in_context(schema):
        run("look")
    assert order == ["close", "enter", "leave", "close"]


def test_once_between_two_bodies_that_follow_each_other_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tidying, "close_old_connections", lambda: order.append("close"))
    monkeypatch.setattr(tidying, "FRESH_S", 3600)
    run("look")
    order.clear()
    run("look")
    assert order == ["close"]


def test_who_listens_belongs_to_the_tenant_too() -> None:
    heard: list[Any] = []

    def receive(**_: Any) -> None:
        heard.append((current_tenant(), list(schemas)))

    task_started.connect(receive)
    task_finished.connect(receive)
    try:
        with in_context(schema):
            run("look", tenant="acme")
            run("raises", tenant="acme")
    finally:
        task_started.disconnect(receive)
        task_finished.disconnect(receive)

    assert heard == [("acme", ["acme"]), ("acme", [])] * 2


@pytest.mark.parametrize("function", ["enqueues", "enqueues_later"])
def test_what_the_body_enqueues_stays_with_the_tenant(function: str, reads: Reads) -> None:
    record = reads.job(str(result_of(run(function, tenant="acme")))[-22:])
    assert record is not None
    assert record.tenant == "acme"


def test_a_tool_that_enqueues_a_results_task_anew_keeps_its_tenant_and_lane(reads: Reads) -> None:
    """As the retry of a monitor does, which knows the options of django.tasks alone."""
    first = add.get_result(add.using(tenant="acme", lane="mail").enqueue(1).id)
    again = first.task.using(priority=3, queue_name="default", backend="default").enqueue(*first.args)

    record = reads.job(again.id[-22:])
    assert record is not None
    assert (record.tenant, record.lane, record.priority) == ("acme", "mail", 3)
