"""Rows of the outbox that no enqueue has written: each is put off by itself, and nothing of it reaches the store."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from queueapp.models import OutboxEntry
from queueapp.producer import entries
from queueapp.producer.relaying import relay
from queueapp.store import shards
from queueapp.store.ids import new_id
from queueapp.store.records import NewJob
from queueapp.store.store import Store

pytestmark = pytest.mark.django_db

JOBS: tuple[Any, ...] = (
    None,
    5,
    "x",
    [],
    {},
    {"version": "x"},
    {"version": 99},
    {"version": 1},
    {"version": 1, "job": []},
)
KEY = {"digest": "d" * 22, "text": "customer:7", "limit": 2, "pattern": "p" * 22}
FIELDS: tuple[tuple[str, Any], ...] = (
    ("id", 5),
    ("id", "x:y"),
    ("id", "-" * 22),
    ("tenant", None),
    ("tenant", ""),
    ("tenant", "a|b"),
    ("tenant", "a\n"),
    ("lane", "x|y"),
    ("task", ["x"]),
    ("task", "\ud800"),
    ("priority", "x"),
    ("priority", 101),
    ("priority", True),
    ("due_ms", 1e300),
    ("due_ms", -1),
    ("max_attempts", None),
    ("cost", {}),
    ("cost", float("1e300")),
    ("tier", "first"),
    ("fingerprint", "0|\n{}"),
    ("idempotency", "|"),
    ("deadline_ms", "soon"),
    ("deadline_ms", -1),
    ("keys", "x"),
    ("keys", [5]),
    ("keys", [{}]),
    ("keys", [KEY | {"more": 1}]),
    ("keys", [KEY | {"digest": "a|b"}]),
    ("keys", [KEY | {"pattern": ""}]),
    ("keys", [KEY | {"limit": 0}]),
    ("keys", [KEY | {"limit": True}]),
    ("keys", [KEY | {"limit": "1"}]),
    ("keys", [KEY | {"text": "a\nb"}]),
    ("keys", [KEY | {"text": ""}]),
    ("keys", [KEY | {"text": "x" * 257}]),
    ("keys", [KEY | {"text": 5}]),
    ("keys", [KEY, KEY]),
    ("keys", [KEY | {"digest": letter * 22} for letter in "ba"]),
    ("keys", [KEY | {"digest": letter * 22} for letter in "abcde"]),
    ("of_tomorrow", "\0"),
)


def row(pool: str = "default", *, key: str = "", fingerprint: str = "0" * 16, task: str = "shop.gone") -> OutboxEntry:
    """A row of a job whose task is not in the code any more, as `outbox.keep` writes it."""
    job = NewJob(id=new_id(), task=task, tenant="acme", payload=b"{}", fingerprint=fingerprint, idempotency=key)
    return OutboxEntry.objects.create(
        job_id=shards.keys("default").public_id(job.id),
        pool=pool,
        tenant="acme",
        task=task,
        job={"version": 1, "backend": "default", "kept_ms": 0, "job": entries.held(job)},
        payload=job.payload,
        due=timezone.now(),
    )


def put_off_alone(entry: OutboxEntry) -> None:
    """The next row is sent, this one says why it is not."""
    good = row()
    found = relay()
    assert (found.sent, found.put_off, found.refused) == (1, 1, 0)
    entry.refresh_from_db()
    assert (entry.state, entry.claim) == ("waiting", "")
    assert "cannot be read by this release" in entry.error
    assert not OutboxEntry.objects.filter(pk=good.pk).exists()
    assert set(shards.pools()) == {"default"}


@pytest.mark.parametrize("job", JOBS, ids=repr)
def test_a_row_without_a_job_is_put_off(store: Store, job: Any) -> None:
    entry = row()
    OutboxEntry.objects.filter(pk=entry.pk).update(job=job if job is not None else {"version": None})
    put_off_alone(entry)


@pytest.mark.parametrize(("name", "value"), FIELDS, ids=repr)
def test_a_row_with_a_job_that_no_enqueue_makes_is_put_off(store: Store, name: str, value: Any) -> None:
    if connection.vendor == "postgresql" and value in ("\ud800", "\0"):
        pytest.skip("PostgreSQL keeps no such text in a JSON field")
    entry = row()
    entry.job["job"][name] = value
    entry.save()
    put_off_alone(entry)


@pytest.mark.parametrize("pool", ["elsewhere", "Übel\n", ""])
def test_a_row_of_another_pool_makes_no_pool(store: Store, pool: str) -> None:
    put_off_alone(row(pool))


def test_a_refused_row_that_cannot_be_announced_costs_the_others_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    row(key="k" * 22)
    assert relay().sent == 1
    refused = row(key="k" * 22, fingerprint="1" * 16)
    del refused.job["backend"]
    refused.save()
    unread = row()
    OutboxEntry.objects.filter(pk=unread.pk).update(job=[])
    caplog.set_level(logging.ERROR)

    found = relay()

    assert (found.sent, found.refused, found.put_off) == (0, 1, 1)
    refused.refresh_from_db()
    unread.refresh_from_db()
    assert (refused.state, unread.claim) == ("refused", "")
    assert "not announced" in caplog.text
